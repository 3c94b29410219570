"""A cohort of the real parties that tests can stop at any step and interfere with."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fedprikl.checks import Ints
from fedprikl.secure_sum import (
    SEED_BYTES,
    AggregatorStep,
    ClientRules,
    Leaves,
    SumAggregator,
    SumClient,
    SumPlan,
    secure_sum,
)
from fedprikl.secure_sum.masking import Agree, ClientKeys


def seeded(seed: int) -> Callable[[int], bytes]:
    """Reproducible randomness for tests, in place of the operating system's."""
    return np.random.default_rng(seed).bytes


def make_plan(
    clients: int = 5,
    threshold: int | None = None,
    neighbours: int | None = None,
    maxima: Sequence[int] = (7, 3),
    seed: int = 0,
    roster: Sequence[bytes] = (),
) -> SumPlan:
    k = clients - 1 if neighbours is None else neighbours
    t = k // 2 + 1 if threshold is None else threshold
    return SumPlan(
        nonce=seeded(seed)(32),
        clients=clients,
        neighbours=k,
        threshold=t,
        minimum=t + 1,
        maxima=tuple(maxima),
        roster=tuple(roster),
    )


def make_inputs(plan: SumPlan, seed: int = 0) -> Ints:
    rng = np.random.default_rng(seed)
    shape = (plan.clients, len(plan.maxima))
    return rng.integers(0, np.asarray(plan.maxima) + 1, shape, dtype=np.int64)


def identities(count: int) -> tuple[list[bytes], list[bytes]]:
    """Private identities and the roster of their public keys."""
    private = [seeded(1000 + i)(32) for i in range(count)]
    keys = [
        ClientKeys.from_seed(bytes(32), round_id=b"", index=0, identity=each).sign_key
        for each in private
    ]
    return private, [key.public_key().public_bytes_raw() for key in keys]


class Cohort:
    """Real clients and a real aggregator; `letters` are the aggregator's last messages."""

    def __init__(
        self,
        plan: SumPlan,
        seed: int = 0,
        private: Sequence[bytes] = (),
        rules: ClientRules | None = None,
        inputs: Ints | None = None,
        agreement: Agree | None = None,
    ) -> None:
        random = seeded(seed)
        self.plan = plan
        self.inputs = make_inputs(plan, seed) if inputs is None else inputs
        self.aggregator = SumAggregator(plan)
        self.clients = [
            SumClient(
                plan,
                i,
                random(SEED_BYTES),
                identity=private[i] if private else None,
                rules=rules,
                agreement=agreement,
            )
            for i in range(plan.clients)
        ]
        self.letters: dict[int, bytes] = dict.fromkeys(range(plan.clients), b"")
        self.sent: list[dict[int, bytes]] = []

    def answer(self, client: int) -> bytes:
        """What a client answers to its last letter."""
        it, letter = self.clients[client], self.letters[client]
        match self.aggregator.step:
            case AggregatorStep.ADVERTS:
                return it.advertise()
            case AggregatorStep.SHARES:
                return it.share_keys(letter)
            case AggregatorStep.INPUTS:
                return it.mask_input(letter, self.inputs[client])
            case AggregatorStep.ECHOES:
                return it.echo(letter)
            case _:
                return it.reveal(letter)

    def answer_all(self, without: Iterable[int] = ()) -> dict[int, bytes]:
        """Everybody's answers, delivered."""
        absent = set(without)
        answers = {i: self.answer(i) for i in self.letters if i not in absent}
        for i, data in answers.items():
            self.aggregator.receive(i, data)
        self.sent.append(answers)
        return answers

    def next(self) -> None:
        """Ends the step at the aggregator and fetches its letters."""
        self.letters = {
            AggregatorStep.ADVERTS: self.aggregator.send_keys,
            AggregatorStep.SHARES: self.aggregator.send_shares,
            AggregatorStep.INPUTS: self.aggregator.send_survivors,
            AggregatorStep.ECHOES: self.aggregator.send_echoes,
        }[self.aggregator.step]()

    def until(self, step: AggregatorStep) -> "Cohort":
        """Everybody honest until the aggregator waits for this step's messages."""
        while self.aggregator.step is not step:
            self.answer_all()
            self.next()
        return self

    def finish(self) -> Ints:
        """The sum, if everybody is honest from here on."""
        while self.aggregator.step is not AggregatorStep.UNMASK:
            self.answer_all()
            self.next()
        self.answer_all()
        return self.aggregator.unmask().total


def plain_sum_holds(plan: SumPlan, dropouts: dict[int, Leaves], seed: int) -> bool:
    inputs = make_inputs(plan, seed)
    result = secure_sum(plan, inputs, dropouts=dropouts, randomness=seeded(seed))
    early = {i for i, when in dropouts.items() if when.value <= Leaves.BEFORE_INPUT.value}
    assert set(result.included) <= set(range(plan.clients)) - early
    assert not result.rejected
    return np.array_equal(result.total, inputs[list(result.included)].sum(axis=0))
