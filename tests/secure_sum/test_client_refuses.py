"""What a client refuses, each played as the attack that it stops."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fedprikl.errors import (
    CohortTooSmallError,
    InvalidInputError,
    MessageDecodeError,
    RejectedMessageError,
    UnsafeRequestError,
    WrongStepError,
)
from fedprikl.secure_sum import AggregatorStep, ClientRules, ClientStep, SumClient
from fedprikl.secure_sum.messages import (
    Echo,
    EchoInbox,
    KeyAdvert,
    PeerKeys,
    ShareInbox,
    Survivors,
    UnmaskShares,
    sign,
)

from .helpers import Cohort, identities, make_plan, seeded

EVERYBODY = frozenset(range(5))


def survivors(cohort: Cohort, alive: set[int], dropped: set[int]) -> bytes:
    return Survivors(cohort.plan.round_id, frozenset(alive), frozenset(dropped)).encode()


def refuses_for_good(client: SumClient) -> bool:
    """Whether a client that refused answers nothing any more."""
    for ask in (client.share_keys, client.echo, client.reveal):
        with pytest.raises(WrongStepError):
            ask(b"")
    return client.step is ClientStep.CLOSED


def test_both_shares_of_one_peer_listed_alive_and_dropped() -> None:
    """The attack on Flower's client: name a victim in both lists and receive both shares."""
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.ECHOES)
    attack = survivors(cohort, {0, 1, 2, 3, 4}, {2})
    for i in (0, 1, 3, 4):
        with pytest.raises(UnsafeRequestError, match="overlap"):
            cohort.clients[i].echo(attack)
        assert refuses_for_good(cohort.clients[i])


def test_both_shares_of_one_peer_in_two_requests() -> None:
    """Asking for the seed share now and for the key share later gets one answer only."""
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.UNMASK)
    answer = UnmaskShares.decode(cohort.answer(0))
    assert [owner for owner, _ in answer.self_seeds] == [1, 2, 3, 4]
    assert not answer.mask_keys
    with pytest.raises(WrongStepError):
        cohort.clients[0].echo(survivors(cohort, {0, 1, 3, 4}, {2}))
    with pytest.raises(WrongStepError):
        cohort.answer(0)


def test_two_different_survivor_lists_for_one_client() -> None:
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.ECHOES)
    cohort.clients[0].echo(survivors(cohort, {0, 1, 2, 3, 4}, set()))
    with pytest.raises(WrongStepError):
        cohort.clients[0].echo(survivors(cohort, {0, 1, 3, 4}, {2}))


def test_different_survivor_lists_for_different_clients() -> None:
    """Half are told that the victim is alive, half that it dropped: the echoes give it away."""
    cohort = Cohort(make_plan(6, 3)).until(AggregatorStep.ECHOES)
    alive = survivors(cohort, set(range(6)), set())
    dropped = survivors(cohort, {0, 1, 2, 3, 4}, {5})
    echoes = {i: Echo.decode(cohort.clients[i].echo(dropped)) for i in (2, 3, 4)}
    cohort.clients[0].echo(alive)
    tags = [(i, dict(echo.tags)[0]) for i, echo in echoes.items()]
    with pytest.raises(UnsafeRequestError, match="neighbour 2 was told of other survivors"):
        cohort.clients[0].reveal(EchoInbox(cohort.plan.round_id, 0, tags).encode())
    assert refuses_for_good(cohort.clients[0])


def split(cohort: Cohort, told: bytes, group: set[int], corrupt: set[int]) -> list[UnmaskShares]:
    """What a group reveals that hears only each other and corrupt clients, who echo anything."""
    echoes = {i: dict(Echo.decode(cohort.clients[i].echo(told)).tags) for i in group}
    digest = hashlib.sha256(told).digest()
    for j in corrupt:
        echoes[j] = {i: cohort.clients[j]._channels[i].tag(digest) for i in group}
    answers = []
    for i in group:
        tags = sorted((j, tags[i]) for j, tags in echoes.items() if j != i)
        letter = EchoInbox(cohort.plan.round_id, i, tags).encode()
        answers.append(UnmaskShares.decode(cohort.clients[i].reveal(letter)))
    return answers


def test_a_client_can_insist_on_a_threshold_against_colluding_neighbours() -> None:
    """Three of ten collude, t = 5 = k/2 + 1: both secrets of client 0 fall, or nobody joins."""
    private, roster = identities(10)
    plan = make_plan(10, 5, roster=roster)
    cohort = Cohort(plan, private=private).until(AggregatorStep.ECHOES)
    corrupt = {7, 8, 9}
    alive = split(cohort, survivors(cohort, set(range(10)), set()), {1, 2, 3}, corrupt)
    dropped = split(cohort, survivors(cohort, set(range(1, 10)), {0}), {4, 5, 6}, corrupt)
    assert sum(0 in dict(answer.self_seeds) for answer in alive) + len(corrupt) >= 5
    assert sum(0 in dict(answer.mask_keys) for answer in dropped) + len(corrupt) >= 5

    careful = ClientRules(colluding_neighbours=3)
    with pytest.raises(UnsafeRequestError, match=r"insists on a threshold t with 2 t > k \+ c"):
        Cohort(plan, private=private, rules=careful)
    Cohort(make_plan(10, 7, roster=roster), private=private, rules=careful)


def test_without_enough_echoes_nothing_is_revealed() -> None:
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.UNMASK)
    few = replace(
        EchoInbox.decode(cohort.letters[0]), tags=EchoInbox.decode(cohort.letters[0]).tags[:2]
    )
    with pytest.raises(CohortTooSmallError, match="2 of its neighbours echoed"):
        cohort.clients[0].reveal(few.encode())
    assert refuses_for_good(cohort.clients[0])


@pytest.mark.parametrize(
    ("alive", "dropped", "reason"),
    [
        ({1, 2, 3, 4}, {0}, "not among the survivors"),
        ({0, 1, 2, 3}, set(), "not the neighbours whose shares it holds"),
        ({0, 1, 2, 3, 4, 5}, set(), "not in the cohort"),
        ({0, 1, 2, 3, 4}, {5}, "not in the cohort"),
    ],
)
def test_survivors_that_do_not_fit(alive: set[int], dropped: set[int], reason: str) -> None:
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.ECHOES)
    with pytest.raises(UnsafeRequestError, match=reason):
        cohort.clients[0].echo(survivors(cohort, alive, dropped))
    assert refuses_for_good(cohort.clients[0])


def test_too_few_survivors() -> None:
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.ECHOES)
    with pytest.raises(CohortTooSmallError, match="3 inputs remain of at least 4"):
        cohort.clients[0].echo(survivors(cohort, {0, 1, 2}, {3, 4}))
    assert refuses_for_good(cohort.clients[0])


def test_too_few_surviving_neighbours_on_a_sparse_graph() -> None:
    cohort = Cohort(make_plan(20, 3, 4)).until(AggregatorStep.ECHOES)
    near = cohort.plan.graph().of(0)
    with pytest.raises(CohortTooSmallError, match="0 of its neighbours survived"):
        cohort.clients[0].echo(survivors(cohort, set(range(20)) - near, set(near)))


def test_a_clients_own_minimum_goes_beyond_the_plans() -> None:
    rules = ClientRules(minimum_clients=4)
    cohort = Cohort(make_plan(5, 3), rules=rules).until(AggregatorStep.ECHOES)
    with pytest.raises(CohortTooSmallError):
        cohort.clients[0].echo(survivors(cohort, {0, 1, 2}, {3, 4}))


@pytest.mark.parametrize(
    "rules",
    [
        ClientRules(minimum_clients=5),
        ClientRules(minimum_threshold=4),
        ClientRules(colluding_neighbours=2),
        ClientRules(require_roster=True),
    ],
)
def test_a_plan_below_the_clients_own_rules(rules: ClientRules) -> None:
    with pytest.raises(UnsafeRequestError, match="insists"):
        SumClient(make_plan(5, 3), 0, bytes(32), rules=rules)


@pytest.mark.parametrize(
    "rules",
    [
        ClientRules(minimum_clients=4),
        ClientRules(minimum_threshold=3),
        ClientRules(colluding_neighbours=1),
    ],
)
def test_a_plan_that_just_meets_the_clients_own_rules(rules: ClientRules) -> None:
    cohort = Cohort(make_plan(5, 3), rules=rules).until(AggregatorStep.ECHOES)
    cohort.clients[0].echo(survivors(cohort, {0, 1, 2, 3}, {4}))


def test_keys_of_strangers_and_too_few_keys() -> None:
    plan = make_plan(20, 3, 4)
    cohort = Cohort(plan).until(AggregatorStep.SHARES)
    mine = PeerKeys.decode(cohort.letters[0])
    stranger = next(i for i in range(1, 20) if i not in plan.graph().of(0))
    record = mine.adverts[0][1]
    with pytest.raises(UnsafeRequestError, match="not its neighbours"):
        cohort.clients[0].share_keys(replace(mine, adverts=[(stranger, record)]).encode())
    other = PeerKeys.decode(cohort.letters[1])
    with pytest.raises(CohortTooSmallError, match="2 of its neighbours sent adverts"):
        cohort.clients[1].share_keys(replace(other, adverts=other.adverts[:2]).encode())


def test_shares_of_clients_whose_keys_were_withheld() -> None:
    """A peer whose key was never shown has no channel, so its box is refused."""
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.SHARES)
    keys = PeerKeys.decode(cohort.letters[0])
    cohort.clients[0].share_keys(replace(keys, adverts=keys.adverts[:3]).encode())
    boxes = [(i, bytes(88)) for i in (1, 2, 3, 4)]
    letter = ShareInbox(cohort.plan.round_id, 0, boxes).encode()
    with pytest.raises(UnsafeRequestError, match="never shown"):
        cohort.clients[0].mask_input(letter, [0, 0])


def test_keys_of_low_order() -> None:
    """A key that leads to an all-zero secret is refused before it protects anything."""
    cohort = Cohort(make_plan(3, 2)).until(AggregatorStep.SHARES)
    keys = PeerKeys.decode(cohort.letters[0])
    record = keys.adverts[0][1]
    bad_seal = record[:32] + bytes(32) + record[64:]
    with pytest.raises(UnsafeRequestError, match="sealing key of neighbour 1 is of low order"):
        cohort.clients[0].share_keys(
            replace(keys, adverts=[(1, bad_seal), keys.adverts[1]]).encode()
        )
    keys = PeerKeys.decode(cohort.letters[2])
    record = keys.adverts[1][1]
    bad_mask = record[:64] + bytes(32) + record[96:]
    cohort.clients[2].share_keys(replace(keys, adverts=[keys.adverts[0], (1, bad_mask)]).encode())
    inbox = ShareInbox(cohort.plan.round_id, 2, [(0, bytes(88)), (1, bytes(88))]).encode()
    with pytest.raises(UnsafeRequestError, match="mask key of neighbour 1 is of low order"):
        cohort.clients[2].mask_input(inbox, [0, 0])


def test_a_relay_cannot_substitute_keys_when_there_is_a_roster() -> None:
    private, roster = identities(5)
    plan = make_plan(5, 3, roster=roster)
    cohort = Cohort(plan, private=private).until(AggregatorStep.SHARES)
    keys = PeerKeys.decode(cohort.letters[0])
    adverts = dict(keys.adverts)
    # The relay's own keys, once with the victim's identity and signature, once signed by itself.
    relay = SumClient(plan, 1, seeded(99)(32), identity=private[1])
    fresh = KeyAdvert.decode(relay.advertise())
    spliced = adverts[1][:32] + fresh.seal_key + fresh.mask_key + adverts[1][96:]
    with pytest.raises(UnsafeRequestError, match="signature on the keys of neighbour 1"):
        cohort.clients[0].share_keys(
            replace(keys, adverts=sorted({**adverts, 1: spliced}.items())).encode()
        )
    forged = sign(replace(fresh, sender=1, verify_key=roster[2]), relay._keys.sign_key)
    resigned = KeyAdvert.decode(forged).record()
    other = PeerKeys.decode(cohort.letters[3])
    both = {**dict(other.adverts), 1: resigned}
    with pytest.raises(UnsafeRequestError, match="not signed by its identity"):
        cohort.clients[3].share_keys(replace(other, adverts=sorted(both.items())).encode())


def test_boxes_cannot_be_moved_or_changed() -> None:
    """A flipped bit, a box of another sender: neither opens, the round goes on without it."""
    cohort = Cohort(make_plan(6, 3)).until(AggregatorStep.INPUTS)
    inbox = ShareInbox.decode(cohort.letters[0])
    boxes = dict(inbox.boxes)
    flipped = bytes([boxes[1][0] ^ 1]) + boxes[1][1:]
    moved = {**boxes, 1: flipped, 2: boxes[3]}
    cohort.letters[0] = replace(inbox, boxes=sorted(moved.items())).encode()
    total = cohort.finish()
    assert cohort.clients[0].damaged == (1, 2)
    assert np.array_equal(total, cohort.inputs.sum(axis=0))


def test_echoes_of_strangers() -> None:
    cohort = Cohort(make_plan(20, 3, 4)).until(AggregatorStep.UNMASK)
    inbox = EchoInbox.decode(cohort.letters[0])
    stranger = next(i for i in range(1, 20) if i not in cohort.plan.graph().of(0))
    tags = sorted([*inbox.tags, (stranger, bytes(16))])
    with pytest.raises(UnsafeRequestError, match="not a neighbour"):
        cohort.clients[0].reveal(replace(inbox, tags=tags).encode())
    outside = sorted([*EchoInbox.decode(cohort.letters[1]).tags, (77, bytes(16))])
    with pytest.raises(UnsafeRequestError, match="not among the survivors"):
        cohort.clients[1].reveal(EchoInbox(cohort.plan.round_id, 1, outside).encode())


def test_messages_of_other_rounds_clients_and_kinds_change_nothing() -> None:
    """They are rejected, and the honest message that comes later is still answered."""
    cohort = Cohort(make_plan(5, 3)).until(AggregatorStep.SHARES)
    foreign = Cohort(make_plan(5, 3, seed=9)).until(AggregatorStep.SHARES)
    client = cohort.clients[0]
    with pytest.raises(
        RejectedMessageError, match="aggregator was rejected: it belongs to another"
    ):
        client.share_keys(foreign.letters[0])
    with pytest.raises(RejectedMessageError, match="addressed to another client"):
        client.share_keys(cohort.letters[1])
    with pytest.raises(MessageDecodeError, match="expected a PeerKeys, got a Survivors"):
        client.share_keys(survivors(cohort, set(EVERYBODY), set()))
    with pytest.raises(MessageDecodeError):
        client.share_keys(b"nonsense")
    assert np.array_equal(cohort.finish(), cohort.inputs.sum(axis=0))


def test_bad_values_can_be_corrected() -> None:
    cohort = Cohort(make_plan(3, 2)).until(AggregatorStep.INPUTS)
    for impossible in ([8, 0], [0, 4], [-1, 0]):  # the maxima are 7 and 3
        with pytest.raises(InvalidInputError, match="above the public maximum"):
            cohort.clients[0].mask_input(cohort.letters[0], impossible)
    for odd in ([1], [1, 2, 3], [[1, 2]], [1.0, 2.0], [True, False], [1, [2]], ["1", "2"]):
        with pytest.raises(InvalidInputError, match="list of 2 whole numbers"):
            cohort.clients[0].mask_input(cohort.letters[0], odd)  # type: ignore[arg-type]
    cohort.inputs[0] = [7, 3]
    assert np.array_equal(cohort.finish(), cohort.inputs.sum(axis=0))


def test_objects_are_used_once_and_in_order() -> None:
    cohort = Cohort(make_plan(3, 2))
    cohort.clients[0].advertise()
    with pytest.raises(WrongStepError, match="every step once"):
        cohort.clients[0].advertise()
    with pytest.raises(WrongStepError, match="used once, in order"):
        cohort.clients[0].reveal(b"")


def test_wrong_construction() -> None:
    plan = make_plan(3, 2)
    private, roster = identities(3)
    signed = make_plan(3, 2, roster=roster)
    with pytest.raises(InvalidInputError, match="not one of 0 to 2"):
        SumClient(plan, 3, bytes(32))
    for index in ("0", 1.0, True, None, -1):
        with pytest.raises(InvalidInputError, match="not one of 0 to 2"):
            SumClient(plan, index, bytes(32))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="32 bytes"):
        SumClient(plan, 0, bytes(31))
    with pytest.raises(InvalidInputError, match="exactly if the plan has a roster"):
        SumClient(plan, 0, bytes(32), identity=private[0])
    with pytest.raises(InvalidInputError, match="exactly if the plan has a roster"):
        SumClient(signed, 0, bytes(32))
    with pytest.raises(InvalidInputError, match="not the one the roster has"):
        SumClient(signed, 0, bytes(32), identity=private[1])
    with pytest.raises(InvalidInputError, match="32 private bytes"):
        SumClient(signed, 0, bytes(32), identity=b"short")
