"""The client: holds records, agrees to a plan or not, and counts only into a secure sum.

A client has a policy: what it agrees to, whatever the plan says.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import bytes_of_text, canonical, parse_document, text_of_bytes
from fedprikl.errors import InvalidInputError, MissingExtraError, PolicyRefusal, WrongStepError
from fedprikl.privacy import SECURE_NOISE, Charge, NoiseSource, Unit
from fedprikl.protocol.keys import Roster, SigningKey
from fedprikl.protocol.plan import Budget, Plan, SignedPlan, Trust
from fedprikl.protocol.question import AskedView
from fedprikl.protocol.report import make_reports
from fedprikl.protocol.round import INDEX, Invitation, Step, plan_cohort, sum_nonce
from fedprikl.protocol.series import Once, Series
from fedprikl.protocol.sums import trust_of, view_places
from fedprikl.records import Draw
from fedprikl.reference import Reference
from fedprikl.reference.domain import Table
from fedprikl.secure_sum import SEED_BYTES, ClientRules, SumClient
from fedprikl.secure_sum.masking import Agree, AgreeOnce

NO_ROOM = "the plan has no room for as many records as this client holds"
NO_RECORDS = "it holds no records, and the plan lets such clients stay away"
ViewKind = Literal["whole", "columns", "pairs"]
KINDS: tuple[ViewKind, ...] = get_args(ViewKind)  # by the number of columns that a view names
NOT_DRAWN = "its counts are not those of exactly as many records as the plan draws of each client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits a client sets for itself. Outside of them it takes no part and says why."""

    largest_epsilon: float = 2.0
    largest_delta: float = 1e-5
    most_points: int = 10_000  # counts, of the domain and of columns
    smallest_cohort: int = 3
    smallest_threshold: int = 2
    organisers: frozenset[str] = frozenset()  # public keys, one of which signed; empty: any plan
    trusts: frozenset[Trust] = frozenset(get_args(Trust))  # whom it lets see exact sums
    require_roster: bool = False  # take part only among clients that the plan knows
    populations: frozenset[str] | None = None  # that it belongs to; None accepts any name
    views: frozenset[ViewKind] | None = None  # that may be asked about; None: all
    columns: frozenset[str] | None = None  # that may be asked about, also as part of the whole
    least_corruption: float = 0.0  # the share of a cohort that a plan must allow to collude
    longest_validity: timedelta | None = None  # of a plan; None accepts plans without an end
    most_counts: int = 1  # how often the same records may be counted; kept by the site's memory
    most_drawn: int = 100_000  # records that it draws, where whole clients are protected
    units: frozenset[Unit] = frozenset(get_args(Unit))  # {"client"}: only if all of it is protected

    def __post_init__(self) -> None:
        """Refuses what limits nothing: no number is larger than NaN."""
        for name, largest in (("epsilon", self.largest_epsilon), ("delta", self.largest_delta)):
            if not (isinstance(largest, int | float) and largest > 0):
                raise InvalidInputError(
                    f"The limit largest-{name} is {largest!r:.40}. Give a number above 0, like "
                    "largest-epsilon 1 or largest-delta 1e-6."
                )


def check_parts(plan: Plan, policy: Policy) -> None:
    """Refuses a plan whose parts cost more together than it says."""
    try:
        trust_of(plan).check_parts()
    except InvalidInputError as error:
        raise PolicyRefusal(str(error)) from None
    except MissingExtraError:  # a site that cannot compose: parts cost at most their sum
        if plan.budget.epsilon * plan.budget.parts > policy.largest_epsilon:
            raise PolicyRefusal(
                "its parts may cost more together than the limit, and composing them needs "
                "pip install 'fedprikl[plan]'"
            ) from None


def check_invitation(
    invitation: Invitation, policy: Policy, reference: Reference, *, at: str
) -> None:
    """Raises `PolicyRefusal` unless the client may take part. Nothing has been sent before.

    `at` is the client's own time, ISO 8601 with an offset.
    """
    plan, sums = invitation.signed.plan, invitation.sums
    check_plan(invitation.signed, policy, reference, at=at)
    check_parts(plan, policy)
    if sums.minimum < policy.smallest_cohort or sums.threshold < policy.smallest_threshold:
        raise PolicyRefusal(
            f"a sum of {sums.minimum} clients with threshold {sums.threshold} is too small"
        )
    check_corruption(plan, policy)
    _check_points(invitation, reference)
    check_period(invitation, at=at)
    if not _fits_the_plan(invitation):
        raise PolicyRefusal("the secure sum does not fit the plan")


def check_plan(signed: SignedPlan, policy: Policy, reference: Reference, *, at: str) -> None:
    """Raises `PolicyRefusal` unless the client agrees to the plan, whoever adds up."""
    plan, budget = signed.plan, signed.plan.budget
    check_asker(signed, policy)
    check_validity(plan, policy, at=at)
    if policy.populations is not None and plan.population not in policy.populations:
        raise PolicyRefusal(
            f"the plan is about the population {plan.population!r:.60}, another than this client "
            "belongs to (populations)"
        )
    if plan.reference != reference.fingerprint:
        raise PolicyRefusal(
            f"the plan is about the reference {plan.reference[:16]}, and this client has "
            f"{reference.fingerprint[:16]}"
        )
    if plan.trust not in policy.trusts:
        raise PolicyRefusal(f"this client takes no part in a round with trust {plan.trust!r}")
    check_protected(plan, policy)
    if beyond := beyond_limits(budget, policy.largest_epsilon, policy.largest_delta):
        raise PolicyRefusal(beyond)
    _check_views(plan, policy, reference)


def beyond_limits(budget: Budget, epsilon: float, delta: float) -> str:
    """Which of epsilon and delta of a release exceed these limits; empty if neither does.

    >>> beyond_limits(Budget(epsilon=1.5, delta=1e-6), 1.0, 1e-5)
    'epsilon 1.5 exceeds the limit 1 (largest-epsilon)'
    """
    asked = {"epsilon": (budget.epsilon, epsilon), "delta": (budget.delta, delta)}
    return " and ".join(
        f"{name} {spent:g} exceeds the limit {limit:g} (largest-{name})"
        for name, (spent, limit) in asked.items()
        if not spent <= limit
    )


def check_corruption(plan: Plan, policy: Policy) -> None:
    """Raises `PolicyRefusal` unless the plan reckons with enough colluding clients."""
    if not plan.sums.corruption >= policy.least_corruption:
        raise PolicyRefusal(
            f"the plan reckons with a share of {plan.sums.corruption:g} colluding clients, this "
            f"client insists on {policy.least_corruption:g}"
        )


def check_asker(signed: SignedPlan, policy: Policy) -> None:
    """Raises `PolicyRefusal` unless somebody signed the plan whom the client trusts."""
    if policy.organisers and not any(map(signed.is_signed_by, policy.organisers)):
        raise PolicyRefusal(
            "the plan is not signed by an organiser this client trusts, but by "
            f"{signed.signer[:16] or 'nobody'}"
        )


def _check_views(plan: Plan, policy: Policy, reference: Reference) -> None:
    """As many counts, of views and columns, as the client allows; the whole has all columns."""
    counts = plan.points + plan.column_points
    if not 1 <= counts <= policy.most_points:
        raise PolicyRefusal(f"{counts} counts are asked, at most {policy.most_points} allowed")
    try:
        view_places(plan, reference)
    except InvalidInputError:
        raise PolicyRefusal(
            "the plan asks about columns that the reference does not have"
        ) from None
    for asked in plan.views:
        kind, known = KINDS[len(asked.columns)], policy.views
        if known is not None and kind not in known:
            raise PolicyRefusal(f"the plan asks about {kind}, this client answers about others")
        columns = _columns_of(asked, reference)
        if policy.columns is not None and not columns <= policy.columns:
            first = min(columns - policy.columns)
            raise PolicyRefusal(
                f"the plan asks about the column {first!r:.60}, about which this client answers "
                "nothing (columns)"
            )


def _columns_of(asked: AskedView, reference: Reference) -> set[str]:
    """The columns of a record that a view reads; a view may be called otherwise than they are."""
    found = [view for view in reference.views if view.columns == asked.columns]
    encoder = (found[0] if found else reference.whole).domain.encoder
    table = encoder if isinstance(encoder, Table) else getattr(encoder, "table", None)
    return set(table.names) if table else {"value"}


def _read(message: bytes) -> tuple[Invitation, Invitation]:
    """The invitation in a message, and what its whole cohort is told: that of client 0.

    All members are told the same but for their `index`. Those in one process read it once.
    """
    match INDEX.split(message):
        case before, index, after:
            to_all = _invitation(before + b',"index":0,' + after)
            return replace(to_all, index=int(index)), to_all
    found = _invitation(message)
    return found, found


@lru_cache(maxsize=4)
def _invitation(message: bytes) -> Invitation:
    return Invitation.from_bytes(message)


@lru_cache(maxsize=4)  # an invitation never changes, and is only the same as itself
def _may_take_part(to_all: Invitation, policy: Policy, reference: Reference, at: str) -> None:
    """`check_invitation`, which does not depend on the client's place, once for a cohort."""
    check_invitation(to_all, policy, reference, at=at)


def check_protected(plan: Plan, policy: Policy) -> None:
    """Raises `PolicyRefusal` unless the client agrees to whom the plan protects, and how."""
    if plan.unit.kind not in policy.units:
        raise PolicyRefusal(f"this client takes no part where one {plan.unit.kind} is protected")
    if plan.unit.kind == "client" and plan.unit.records > policy.most_drawn:
        raise PolicyRefusal(
            f"{plan.unit.records:,} records are to be drawn, at most {policy.most_drawn:,} allowed"
        )


def check_period(invitation: Invitation, *, at: str) -> None:
    """Raises `PolicyRefusal` unless a period of the plan's series is asked that is over.

    `at` is the client's own time: records that are yet to come cannot be counted once.
    """
    check_over(invitation.signed.plan.when, invitation.period, at=at)


def check_over(when: Once | Series, number: int | None, *, at: str) -> None:
    """The same for the number of a period; None: of a plan without a series."""
    if when.kind == "once" and number is None:
        return
    if when.kind == "once" or number is None or not 0 <= number < when.periods:
        raise PolicyRefusal("a period is asked that the plan does not have, or none where it has")
    if when.period(number).end > datetime.fromisoformat(at):
        raise PolicyRefusal("the period is not over yet by this client's clock")


def check_validity(plan: Plan, policy: Policy, *, at: str) -> None:
    """Raises `PolicyRefusal` unless the plan may be used now, and not for too long."""
    if not plan.validity.includes(at):
        raise PolicyRefusal("the plan has expired, or is not valid yet")
    if policy.longest_validity is not None and (
        plan.validity.length is None or plan.validity.length > policy.longest_validity
    ):
        raise PolicyRefusal(
            f"the plan is valid for more than {policy.longest_validity.days} days, or for ever"
        )


def check_roster(
    invitation: Invitation, policy: Policy, roster: Roster | None, identity: SigningKey | None
) -> None:
    """Raises `PolicyRefusal` unless all of the cohort are who the signed plan says may take part.

    It looks at no record, so the reason may be told in the open.
    """
    plan, sums, index = invitation.signed.plan, invitation.sums, invitation.index
    if not plan.roster:
        if policy.require_roster:
            raise PolicyRefusal("the plan names no roster, and this client insists on one")
        if sums.roster:
            raise PolicyRefusal("the secure sum has a roster, but the plan names none")
        return
    if roster is None or identity is None:
        raise PolicyRefusal("the plan names a roster, and this client has none or no identity")
    if roster.fingerprint != plan.roster:
        raise PolicyRefusal(
            f"the plan names another roster ({plan.roster[:16]}) than this client has "
            f"({roster.fingerprint[:16]}): the newest kit or roster.txt has it"
        )
    if not sums.roster or not roster.holds(sums.roster):
        raise PolicyRefusal("the cohort has members who are not in the roster")
    if sums.roster[index : index + 1] != (bytes.fromhex(identity.public),):
        raise PolicyRefusal("its identity does not stand at its place in the cohort")
    least = trust_of(plan).smallest_cohort(len(roster))
    if sums.clients < least:
        raise PolicyRefusal(
            f"the cohort has {sums.clients} clients; where nobody is trusted it needs {least} of "
            f"the roster's {len(roster)}"
        )


def _fits_the_plan(invitation: Invitation) -> bool:
    """Whether every number of the secure sum follows from the plan and from what is asked.

    The plan is signed, the invitation is not. With fewer neighbours, a lower threshold or another
    minimum than the plan's, fewer colluders or less noise would do than the plan promises. With
    another nonce, the other members may have been asked something else.
    """
    plan, sums, cells = invitation.signed.plan, invitation.sums, invitation.cells
    nonce = sum_nonce(
        plan,
        invitation.round_id,
        cohort=invitation.cohort,
        batch=invitation.batch,
        cells=cells,
        period=invitation.period,
    )
    try:
        expected = plan_cohort(plan, clients=sums.clients, nonce=nonce, roster=sums.roster)
    except InvalidInputError:
        return False
    if sums == expected or not trust_of(plan).shares_noise:
        return sums == expected
    # The reach of noise shares is a real number rounded up, and the last bit of that may differ
    # between processors. One less still lies beyond what the account cuts off (16 sigma, or
    # 2^-tail_bits); one more cuts off less. What is stated is what this client then uses.
    *noisy, records, mark = expected.maxima
    return any(
        sums == replace(expected, maxima=(*(top + more for top in noisy), records, mark))
        for more in (-2, 2)
    )


def _check_points(invitation: Invitation, reference: Reference) -> None:
    plan, cells = invitation.signed.plan, invitation.cells
    if len(cells) != plan.points or invitation.batch >= plan.sums.batches:
        raise PolicyRefusal("other points or batches are asked than the plan has")
    if len(set(cells)) < len(cells):
        raise PolicyRefusal("a point is asked twice")
    inside = max(cells, default=0) < reference.domain.size
    if not inside or min(reference.whole.mass[list(cells)], default=1) <= 0:
        raise PolicyRefusal("a point is not a cell of the reference")


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
        agreement: Agree | None = None,
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
            agreement=agreement,
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


def check_records(plan: Plan, counts: Ints, views: Sequence[Ints]) -> None:
    """Refuses more records than there is room for; of a draw, any number but k."""
    records, unit = int(counts.sum()), plan.unit
    if records > plan.sums.most_records:
        raise PolicyRefusal(NO_ROOM)
    if unit.kind == "record":
        return
    if records == 0 and unit.empty == "away":
        raise PolicyRefusal(NO_RECORDS)
    if any(int(each.sum()) != unit.records for each in (counts, *views)):
        raise PolicyRefusal(NOT_DRAWN)


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
    Of a client that holds fewer, some of the k are the reference's.
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
        agreement: AgreeOnce | None = None,
    ) -> None:
        self._counts = counts  # SECRET: records per cell of the domain, "other" last
        self._views = views  # SECRET: the same for each view of the reference
        self._reference = reference
        self._policy = policy or Policy()
        self._randomness = randomness
        self._source = source
        self._identity, self._roster = identity, roster  # for plans that name a roster
        self._period = period  # of a series, whose records were counted
        self._agreement = agreement  # on keys, with others in this process; None: by itself
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
        invitation = self._agree(message, at)
        plan, once = invitation.signed.plan, self._agreement
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
            agreement=None if once is None else once.of_sum(invitation.sums.round_id),
        )

    def report(self, message: bytes, servers: Sequence[str], *, at: str) -> tuple[bytes, ...]:
        """Takes an invitation of three servers, or refuses as `join` does: a message to each.

        `servers` are the public keys that these are sealed to.
        """
        invitation = self._agree(message, at)
        plan = invitation.signed.plan
        if plan.servers is None:
            raise PolicyRefusal("the plan names no servers that a report could be sent to")
        return make_reports(
            self._vector(invitation),
            plan=bytes.fromhex(plan.fingerprint),
            period=invitation.period or 0,
            suite=plan.servers.suite,
            servers=servers,
            identity=self._identity if plan.roster else None,
            randomness=self._randomness,
        )

    def _agree(self, message: bytes, at: str) -> Invitation:
        """The invitation, if this client takes part: it remembers the round and the plan."""
        invitation, to_all = _read(message)
        plan, lineage = invitation.signed.plan, invitation.signed.lineage
        if invitation.round_id in self._answered:
            raise PolicyRefusal("this round has been answered already")
        _may_take_part(to_all, self._policy, self._reference, at)
        if plan.validity.serial < self._newest.get(lineage, 0):
            raise PolicyRefusal("the organiser has replaced this plan by a newer one")
        check_roster(invitation, self._policy, self._roster, self._identity)
        if invitation.period != self._period:
            raise PolicyRefusal("its counts are of another period than the one that is asked")
        check_records(plan, self._counts, self._views)
        self._newest[lineage] = plan.validity.serial
        self._answered.add(invitation.round_id)
        return invitation

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
