"""The client: holds records, counts the asked points, and exceeds only through a secure sum."""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import bytes_of_text, canonical, parse_document, text_of_bytes
from fedprikl.errors import InvalidInputError, PolicyRefusal, WrongStepError
from fedprikl.privacy import SECURE_NOISE, Charge, NoiseSource
from fedprikl.protocol.keys import Address, Roster, SigningKey
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.policy import Policy, check_invitation, check_roster
from fedprikl.protocol.round import Invitation, Step
from fedprikl.protocol.sums import trust_of, view_places
from fedprikl.records import Draw
from fedprikl.reference import Reference
from fedprikl.secure_sum import SEED_BYTES, ClientRules, SumClient

NO_ROOM = "the plan has no room for as many records as this client holds"
NO_RECORDS = "it holds no records, and the plan lets such clients stay away"
NOT_DRAWN = "its counts are not those of exactly as many records as the plan draws of each client"


class ClientSession:
    """One client in one round, from its invitation on: each step is answered once, in order.

    `to_bytes` is for a client whose process ends between two messages. It holds the seed and the
    messages so far; everything else of the secure sum follows from them, so `from_bytes` plays the
    messages again rather than storing keys. Whoever keeps it must see to it that an old copy is
    never used: two answers to one step could expose somebody.

    Secret: the seed and the vector, and so `to_bytes`. The identity, which signs where there is a
    roster, outlives the round and is not in it.
    """

    def __init__(
        self,
        invitation: Invitation,
        *,
        vector: Ints,
        seed: bytes,
        rules: ClientRules,
        identity: SigningKey | None = None,
    ) -> None:
        self.invitation = invitation
        self._vector, self._seed, self._rules = vector, seed, rules
        self._messages: list[bytes] = []
        signer = identity if invitation.sums.roster else None
        self._sum = SumClient(
            invitation.sums,
            invitation.index,
            seed,
            identity=None if signer is None else signer.private_bytes(),
            rules=rules,
        )

    def __repr__(self) -> str:
        return f"<ClientSession {self.invitation.index} in round {self.invitation.round_id[:8]}>"

    @property
    def is_over(self) -> bool:
        """Whether every step has been answered."""
        return len(self._messages) == len(Step)

    @property
    def spoilt(self) -> bool:
        """Whether a neighbour shared what does not open, so that the sum may never open either."""
        return bool(self._sum.damaged)

    @property
    def charge(self) -> Charge | None:
        """What the opened sum costs the records in it; None if it is opened to be noised."""
        trust = trust_of(self.invitation.signed.plan)
        return trust.client_charge(self.invitation.sums.clients)

    def address(self, step: Step) -> Address:
        """Where this client's answer of a step belongs."""
        return self.invitation.address(step)

    def answer(self, step: Step, message: bytes) -> bytes:
        """The client's answer to the message of a step, for the aggregator alone."""
        if self.is_over or step is not list(Step)[len(self._messages)]:
            raise WrongStepError("Every step of a round is answered once, in order.")
        match step:
            case Step.ADVERTISE:
                message = b""  # the invitation, which is kept already
                answer = self._sum.advertise()
            case Step.SHARE:
                answer = self._sum.share_keys(message)
            case Step.INPUT:
                answer = self._sum.mask_input(message, self._vector)
            case Step.ECHO:
                answer = self._sum.echo(message)
            case Step.REVEAL:
                answer = self._sum.reveal(message)
        self._messages.append(message)
        return answer

    def to_bytes(self) -> bytes:
        """SECRET: all of it, to go on in another process."""
        return canonical(
            {
                "invitation": text_of_bytes(self.invitation.to_bytes()),
                "vector": self._vector.tolist(),
                "seed": text_of_bytes(self._seed),
                "rules": asdict(self._rules),
                "messages": [text_of_bytes(message) for message in self._messages],
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, *, identity: SigningKey | None = None) -> "ClientSession":
        """The session as it was when `to_bytes` was called; the identity is handed in again."""
        document = parse_document(data, "session")
        try:
            session = cls(
                Invitation.from_bytes(bytes_of_text(document["invitation"])),
                vector=np.array(document["vector"], dtype=np.int64),
                seed=bytes_of_text(document["seed"]),
                rules=ClientRules(**document["rules"]),
                identity=identity,
            )
            messages = [bytes_of_text(message) for message in document["messages"]]
        except (KeyError, TypeError):
            raise InvalidInputError("What this client kept of the round is damaged.") from None
        for step, message in zip(Step, messages, strict=False):
            session.answer(step, message)
        return session


def draw_of(plan: Plan) -> Draw | None:
    """What each client draws of its records before it counts them; None: it counts all of them.

    >>> from fedprikl.protocol import AskedView, Budget, Question, WholeClient
    >>> asked = {"views": (AskedView(points=3),), "questions": (Question(),)}
    >>> who = {"population": "p", "reference": 64 * "0", "unit": WholeClient(20)}
    >>> draw_of(Plan(budget=Budget(epsilon=1.0), **who, **asked))
    Draw(records=20, empty='reference')
    """
    return None if plan.unit.kind == "record" else Draw(plan.unit.records, plan.unit.empty)


class Client:
    """One client in any number of rounds. Its counts leave it only under the masks of a sum.

    1. `join` checks the invitation against the client's own policy and remembers the round
    2. the session that it returns answers the steps of the secure sum

    Holds: its records' counts. Sends: masked counts of the asked points and of its records.

    Where the plan protects whole clients, the counts are those of exactly k drawn records
    (`draw_of`), or the client refuses: then the number of records it sends says nothing about it.
    A client without records refuses too if the plan lets such clients stay away. Whoever sees who
    takes part then sees who holds records, and so does everybody who is told N = k x clients: such
    a plan protects what a client's records are, not whether it has any.
    """

    def __init__(
        self,
        counts: Ints,
        reference: Reference,
        *,
        policy: Policy | None = None,
        randomness: Callable[[int], bytes],
        views: Sequence[Ints] = (),
        source: NoiseSource = SECURE_NOISE,
        identity: SigningKey | None = None,
        roster: Roster | None = None,
        period: int | None = None,
    ) -> None:
        self._counts = counts  # SECRET: records per cell of the domain, "other" last
        self._views = views  # SECRET: the same for each view of the reference
        self._reference = reference
        self._policy = policy or Policy()
        self._randomness = randomness
        self._source = source
        self._identity, self._roster = identity, roster  # for plans that name a roster
        self._period = period  # of a series, whose records were counted
        self._answered: set[str] = set()
        self._newest: dict[tuple[str, str], int] = {}  # serial by organiser and population

    def __repr__(self) -> str:
        return f"<Client, {len(self._answered)} rounds joined>"

    @property
    def identity(self) -> bytes | None:
        """Its public key, by which a roster knows it."""
        return None if self._identity is None else bytes.fromhex(self._identity.public)

    def join(self, message: bytes, *, at: str) -> ClientSession:
        """Takes an invitation, or refuses with a `PolicyRefusal`; a round is joined only once.

        `at` is the client's own time. A plan with a lower serial number than the newest that this
        client has seen of the same organiser and population is refused.
        """
        invitation = Invitation.from_bytes(message)
        plan, lineage = invitation.signed.plan, invitation.signed.lineage
        if invitation.round_id in self._answered:
            raise PolicyRefusal("this round has been answered already")
        check_invitation(invitation, self._policy, self._reference, at=at)
        if plan.validity.serial < self._newest.get(lineage, 0):
            raise PolicyRefusal("the organiser has replaced this plan by a newer one")
        check_roster(invitation, self._policy, self._roster, self._identity)
        if invitation.period != self._period:
            raise PolicyRefusal("its counts are of another period than the one that is asked")
        self._check_records(plan)
        self._newest[lineage] = plan.validity.serial
        self._answered.add(invitation.round_id)
        return ClientSession(
            invitation,
            vector=self._vector(invitation),
            seed=self._randomness(SEED_BYTES),
            rules=ClientRules(
                minimum_clients=self._policy.smallest_cohort,
                minimum_threshold=self._policy.smallest_threshold,
                colluding_neighbours=int(plan.sums.corruption * invitation.sums.neighbours),
                require_roster=plan.roster != "",
            ),
            identity=self._identity,
        )

    def _check_records(self, plan: Plan) -> None:
        """Refuses more records than there is room for; of a draw, any number but k."""
        records, unit = int(self._counts.sum()), plan.unit
        if records > plan.sums.most_records:
            raise PolicyRefusal(NO_ROOM)
        if unit.kind == "record":
            return
        if records == 0 and unit.empty == "away":
            raise PolicyRefusal(NO_RECORDS)
        if any(int(counts.sum()) != unit.records for counts in (self._counts, *self._views)):
            raise PolicyRefusal(NOT_DRAWN)

    def _vector(self, invitation: Invitation) -> Ints:
        """Counts of the asked points and the number of records; noised where the plan says so."""
        plan = invitation.signed.plan
        counts = [self._views[place][:-1] for place in view_places(plan, self._reference)]
        if plan.points:
            counts.insert(0, self._counts[np.array(invitation.cells)])
        return trust_of(plan).vector(
            counts,
            int(self._counts.sum()),
            sums=invitation.sums,
            source=self._source,
            randomness=self._randomness,
        )
