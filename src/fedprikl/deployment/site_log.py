"""The site's log: what was asked of a site, what its people said, what left, and what it cost.

    asked             a plan, or a round of it, waits for a person to say yes
    approved, denied  what the person said, and who it was
    sent              counts left: when, for whom, under which plan, of which views, at which cost

It is only ever appended to, so what people read is what is enforced: a site's total of a year is
the sum over its entries `sent`. Plans lie beside the entries. Nothing in it depends on a record:
not how many there are, and not whether they were drawn.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from fedprikl.deployment.policy import SitePolicy
from fedprikl.deployment.site_memory import Left
from fedprikl.documents import canonical, minute, parse_document, read_fields, to_plain
from fedprikl.errors import DeploymentError, InvalidInputError, MissingExtraError, PolicyRefusal
from fedprikl.libraries import check_plan_extra
from fedprikl.privacy import AccountedRelease, Charge, TimeInterval, Unit
from fedprikl.privacy.account import TimedCharge, exposures, worst_epsilon
from fedprikl.privacy.ledger import ROUNDING
from fedprikl.protocol import Invitation, Plan, SignedPlan
from fedprikl.protocol.sums import ScoredSum, trust_of
from fedprikl.store import Entry, Head, Store, StoreKind

SITE_LOG = StoreKind(
    name="site log",
    application=0x66706B74,  # "fpkt"
    error=DeploymentError,
    damaged=DeploymentError,
    advice="Without it nobody knows what has left this site, so it answers nothing. Bring back a "
    "copy made after its last round.",
    unwritten="nothing was sent",
    half_written="Nothing was sent; try again once the disk works.",
)
YEAR = timedelta(days=365)
State = Literal["waiting", "approved", "denied", "used"]
WAITS = "it waits for a person at this site to say yes; ask again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What waits for a yes, or got its answer."""

    number: int  # of its entry, by which people name it
    at: str
    organiser: str  # as the policy calls it
    key: str
    plan: str  # fingerprint
    document: str  # of the signed plan, beside the entries
    scope: Literal["plan", "round"]
    period: int | None
    state: State = "waiting"
    by: str = ""
    decided_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Counts that left, masked, and what the release may cost each record in them."""

    number: int
    at: str
    organiser: str
    key: str
    plan: str
    document: str
    round_id: str
    population: str
    period: int | None
    times: TimeInterval | None  # of the records; None: all
    unit: Unit
    trust: str
    views: tuple[str, ...]
    counts: int  # numbers in the masked vector, but for those of the sum itself
    epsilon: float
    delta: float


@dataclass(slots=True)
class LogBook:
    """What the entries of a log say, one after the other."""

    requests: dict[int, Request] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)

    def apply(self, entry: Entry) -> None:
        """One entry; an error if this software would never have written it."""
        body = dict(entry.body) | {"number": entry.number}
        match body["event"]:
            case "asked":
                usual = {"state": "waiting", "by": "", "decided_at": ""}
                self.requests[entry.number] = read_fields(Request, body | usual)
            case "approved" | "denied" as state:
                number = int(body["request"])
                self.requests[number] = replace(
                    self.requests[number],
                    state=state,
                    by=str(body["by"]),
                    decided_at=str(body["at"]),
                )
            case "sent":
                sent = read_fields(Sent, body)
                self.sent.append(sent)
                for number, each in self.requests.items():
                    if each.scope == "round" and _about(each, sent.plan, sent.period):
                        self.requests[number] = replace(each, state="used")
            case _:
                raise ValueError

    def request_for(self, policy: SitePolicy, plan: Plan, period: int | None) -> Request | None:
        """The newest request about a round that has not been used up."""
        scope = "plan" if policy.approve == "new plans" else "round"
        wanted = None if scope == "plan" else period
        found = [
            each
            for each in self.requests.values()
            if each.scope == scope and _about(each, plan.fingerprint, wanted)
        ]
        return found[-1] if found and found[-1].state != "used" else None

    def since(self, at: str) -> list[Sent]:
        """What left in the year before a time; also what has a later time, as clocks go back."""
        start = datetime.fromisoformat(at) - YEAR
        return [each for each in self.sent if datetime.fromisoformat(each.at) > start]


def _about(request: Request, plan: str, period: int | None) -> bool:
    return (request.plan, request.period) == (plan, period)


class SiteLog:
    """One site's log. Refuses with a `PolicyRefusal` that depends on no record.

    `anchor`: its newest head that the site's memory knows, so that an older copy is noticed.
    """

    def __init__(self, path: Path, anchor: Head | None = None) -> None:
        self._path, self._anchor = path, anchor

    def check(self, invitation: Invitation, policy: SitePolicy, *, at: str) -> None:
        """Raises unless a round may begin. What needs a yes and has none is noted, once."""
        signed, period = invitation.signed, invitation.period
        with self._open() as store:
            with store.reading():
                book = self._replayed(store)
            self._check_total(store, book, signed.plan, period, policy, at)
            if policy.approve == "always":
                return
            known = book.request_for(policy, signed.plan, period)
            if known is None:
                known = self._note(store, signed, period, policy, at)
            _check_yes(known)

    def send(self, invitation: Invitation, policy: SitePolicy, *, at: str) -> Head:
        """Writes down that counts leave, if they still may; the new head."""
        signed, plan, period = invitation.signed, invitation.signed.plan, invitation.period
        with self._open() as store, store.writing():
            book = self._replayed(store)
            if policy.approve != "always":
                _check_yes(book.request_for(policy, plan, period))
            self._check_total(store, book, plan, period, policy, at)
            cost = stated_cost(plan)
            sent = Sent(
                number=0,
                **_asked(store, signed, policy, at),
                round_id=invitation.round_id,
                population=plan.population,
                period=period,
                times=plan.charged_times(period),
                unit=plan.unit.kind,
                trust=plan.trust,
                views=tuple(view.name or "the whole" for view in plan.views),
                counts=len(invitation.cells) + plan.column_points,
                epsilon=cost.proved_epsilon,
                delta=cost.proved_delta,
            )
            return store.append({"event": "sent"} | to_plain(sent))

    def decide(self, number: int, *, yes: bool, by: str, at: str) -> Request:
        """Writes down what a person said to a request; the last word counts."""
        with self._open(create=False) as store, store.writing():
            book = self._replayed(store)
            if number not in book.requests:
                known = ", ".join(map(str, book.requests)) or "none yet"
                raise InvalidInputError(
                    f"There is no request {number}. Known: {known}; see `fedprikl site requests`."
                )
            if book.requests[number].state == "used":
                raise InvalidInputError(
                    f"Request {number} was answered, and the counts have left. Nothing was changed."
                )
            event = "approved" if yes else "denied"
            store.append({"event": event, "request": number, "by": by, "at": at})
            return self._replayed(store).requests[number]

    def read(self) -> LogBook:
        """What it says; nothing if there is none yet."""
        if not self._path.exists() and self._anchor is None:
            return LogBook()
        with self._open() as store, store.reading():
            return self._replayed(store)

    def left(self, known: Collection[int] = ()) -> Left:
        """What left under which plan and in which period, but for entries with known numbers."""
        if not self._path.exists() and self._anchor is None:
            return {}
        with self._open() as store, store.reading():
            new = [each for each in self._replayed(store).sent if each.number not in known]
            return {each.number: (_load(store, each.document), each.period) for each in new}

    def entries(self) -> list[Entry]:
        """All entries, verified."""
        if not self._path.exists() and self._anchor is None:
            return []
        with self._open() as store, store.reading():
            return store.entries(self._anchor)

    def plan_of(self, document: str) -> SignedPlan:
        """A plan that was asked."""
        with self._open(create=False) as store, store.reading():
            return _load(store, document)

    def spent(self, policy: SitePolicy, *, at: str) -> float:
        """What the releases of the last year cost a record together, at most."""
        if not self._path.exists() and self._anchor is None:
            return 0.0
        with self._open() as store, store.reading():
            return _total(store, self._replayed(store).since(at), (), policy)

    def check_year(self, plan: Plan, policy: SitePolicy, *, at: str) -> None:
        """Refuses one more release of a plan if those of a year would cost a record too much."""
        if not self._path.exists() and self._anchor is None:
            cost = (stated_cost(plan), plan.charged_times(None))
            _check_limit(_safe_sum([cost], policy.delta_per_year), policy)
            return
        with self._open() as store, store.reading():
            self._check_total(store, self._replayed(store), plan, None, policy, at)

    def before(
        self, signed: SignedPlan, period: int | None, policy: SitePolicy | None, *, at: str
    ) -> tuple[int, float]:
        """How often counts of these records left, and what a year costs one after this round.

        The cost is not a number where the policy is unknown.
        """
        times = signed.plan.charged_times(period)
        with self._open(create=False) as store, store.reading():
            book = self._replayed(store)
            left = [e for e in book.sent if times is None or times.overlaps(e.times)]
            if policy is None:
                return len(left), math.nan
            return len(left), _total(store, book.since(at), [(signed.plan, times)], policy)

    def _note(
        self, store: Store, signed: SignedPlan, period: int | None, policy: SitePolicy, at: str
    ) -> Request:
        with store.writing():
            book = self._replayed(store)
            known = book.request_for(policy, signed.plan, period)
            if known is None:
                body = _asked(store, signed, policy, at)
                scope = "plan" if policy.approve == "new plans" else "round"
                own = {"scope": scope, "period": None if scope == "plan" else period}
                store.append({"event": "asked"} | body | own)
                known = self._replayed(store).request_for(policy, signed.plan, period)
        assert known is not None  # noqa: S101  it was just written
        return known

    def _check_total(
        self,
        store: Store,
        book: LogBook,
        plan: Plan,
        period: int | None,
        policy: SitePolicy,
        at: str,
    ) -> None:
        if policy.epsilon_per_year is None:
            return
        total = _total(store, book.since(at), [(plan, plan.charged_times(period))], policy)
        _check_limit(total, policy)

    def _open(self, *, create: bool = True) -> Store:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Store(self._path, SITE_LOG, create=create)

    def _replayed(self, store: Store) -> LogBook:
        book = LogBook()
        store.replay(store.entries(self._anchor), book.apply)
        return book


def _check_limit(total: float, policy: SitePolicy) -> None:
    limit = policy.epsilon_per_year
    if limit is not None and total > limit * (1 + ROUNDING):
        raise PolicyRefusal(
            f"with this round the releases of a year would cost a record epsilon {total:.4g} "
            f"(delta {policy.delta_per_year:g}), and it allows {limit:g} (largest-epsilon-per-year)"
        )


def _check_yes(request: Request | None) -> None:
    if request is None or request.state == "waiting":
        raise PolicyRefusal(WAITS)
    if request.state == "denied":
        raise PolicyRefusal("a person at this site said no")


def _asked(store: Store, signed: SignedPlan, policy: SitePolicy, at: str) -> dict[str, str]:
    """Who asked for what, inside `writing()`; the plan is kept beside the entries."""
    body = canonical(signed.to_dict())
    return {
        "at": at,
        "organiser": policy.name_of(signed.signer),
        "key": signed.signer,
        "plan": signed.plan.fingerprint,
        "document": store.keep_document(body),
    }


def _load(store: Store, document: str) -> SignedPlan:
    body = store.document(document)
    if body is None:
        raise DeploymentError(f"The site log lacks a plan. {SITE_LOG.advice}")
    return SignedPlan.from_dict(parse_document(body, "plan"))


def stated_cost(plan: Plan) -> AccountedRelease:
    """What a release of the plan costs a unit at most, without composing anything.

    Where parts can be composed, a plan whose parts cost more than it says was refused before.
    """
    parts = plan.budget.parts
    if parts > 1:
        with suppress(MissingExtraError):
            check_plan_extra()
            parts = 1.0
    return _known(plan.budget.epsilon * parts, plan.budget.delta)


def _known(epsilon: float, delta: float) -> AccountedRelease:
    return AccountedRelease(proved_epsilon=epsilon, proved_delta=delta)


def _total(
    store: Store,
    sent: Sequence[Sent],
    more: Iterable[tuple[Plan, TimeInterval | None]],
    policy: SitePolicy,
) -> float:
    """The epsilon at the policy's delta of what left and what is asked, against one record.

    The sum of all epsilons, as long as it is small enough: it needs no library. Beyond the limit
    releases are composed by the ledger's account, which gives less, if that is installed.
    """
    delta, limit, asked = policy.delta_per_year, policy.epsilon_per_year, list(more)
    stated: list[TimedCharge] = [
        *((_known(each.epsilon, each.delta), each.times) for each in sent),
        *((stated_cost(plan), times) for plan, times in asked),
    ]
    simple = _safe_sum(stated, delta)
    if limit is not None and simple <= limit:
        return simple
    plans = [*((_load(store, each.document).plan, each.times) for each in sent), *asked]
    try:
        composed: list[TimedCharge] = [
            (_charge(plan, stated=cost), times)
            for (plan, times), (cost, _) in zip(plans, stated, strict=True)
        ]
        return min(simple, worst_epsilon(composed, delta=delta))
    except MissingExtraError:
        return simple


def _charge(plan: Plan, *, stated: Charge) -> Charge:
    """What the ledger would reserve; of noise shares, which depend on the cohort, what is stated.

    A plan that was accepted before is calibrated again: the noise follows from the plan alone.
    """
    trust = trust_of(plan)
    return trust.composed if isinstance(trust, ScoredSum) else stated


def _safe_sum(charges: Iterable[TimedCharge], delta: float) -> float:
    """Basic composition, for whatever record has lost most; infinite beyond delta."""
    worst = 0.0
    for each in exposures(charges):
        known = [charge for charge in each if isinstance(charge, AccountedRelease)]
        if math.fsum(charge.proved_delta for charge in known) > delta * (1 + ROUNDING):
            return math.inf
        worst = max(worst, math.fsum(charge.proved_epsilon for charge in known))
    return worst


def how_often(times: int) -> str:
    """In words.

    >>> how_often(1), how_often(2)
    ('once', '2 times')
    """
    return "once" if times == 1 else f"{times:,} times"


def plan_in_words(signed: SignedPlan, period: int | None = None) -> list[str]:
    """What a plan asks of a site, in sentences for whoever has to say yes."""
    plan, budget, when = signed.plan, signed.plan.budget, signed.plan.when
    views = ", ".join(view.name or "the whole table" for view in plan.views)
    whom = "one record" if plan.unit.kind == "record" else "all that this site holds"
    seen = "the aggregator alone" if plan.trust == "aggregator" else "nobody: each site adds noise"
    often = "one release" if budget.releases == 1 else f"at most {budget.releases} releases"
    lines = [
        f"about: the population {plan.population!r}, compared with the reference "
        f"{plan.reference[:16]}",
        f"counts of: {views}; {plan.points + plan.column_points:,} numbers in all",
        f"cost at most: epsilon {budget.epsilon:g}, delta {budget.delta:g} for each release, which "
        f"protects {whom}; {often} about the same records under this plan",
        f"who sees exact sums of several sites: {seen}; nobody sees those of this site",
        f"among: {'known sites only (a roster)' if plan.roster else 'whoever is registered'}",
    ]
    if when.kind == "series":
        last = f", {when.periods} in all"
        lines.append(f"when: every {when.every} from {when.first}{last}")
        if period is not None:
            now = when.counted_by(period)
            lines.append(f"now: records from {now.start:%Y-%m-%d} up to {now.end:%Y-%m-%d}")
    until = plan.validity.valid_until
    valid = f"until {minute(until)}" if until else "for ever"
    return [*lines, f"the plan is valid {valid}"]
