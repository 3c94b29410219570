"""The plan: what all parties agree on before any data is touched. All of it is public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args

from fedprikl.checks import (
    check_delta,
    check_design_effect,
    check_epsilon,
    check_false_alarm,
    check_finite,
    check_instant,
    check_open_unit,
    check_positive_int,
)
from fedprikl.documents import (
    Format,
    canonical,
    digest,
    named,
    parse_document,
    read_exactly,
    read_file,
    to_plain,
)
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import TimeInterval, Unit
from fedprikl.privacy.account import LedgerRound
from fedprikl.protocol.keys import SigningKey, is_fingerprint, is_sealing_key, verify_signature
from fedprikl.protocol.question import WHOLE, AskedView, Question
from fedprikl.protocol.series import Once, Series
from fedprikl.protocol.servers import Servers
from fedprikl.reference import Spread, View

Trust = Literal["aggregator", "none", "servers"]
Control = Literal["family", "discovery"]
Empty = Literal["reference", "away"]
FORMAT = Format("plan", advice="Make it again with `fedprikl plan`.")
MOST_RELEASES = 100_000  # that are composed
MOST_PARTS = 100.0  # beyond, so many parts would be needed that no plan has
SHARES = 1e-9  # how far the sum of all shares may be from 1
LEAST_EPSILON, LARGEST_EPSILON = 1e-5, 1e7  # of one question: beyond, noise is slow or overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one release may cost, and all releases that count the same unit together.

    A release of several parts, each with noise of its own, costs less at `delta` than the epsilons
    of its parts add up to. So these may be larger: they add up to `epsilon` times `parts`, and what
    they cost together, which every reader of a plan computes, is at most `epsilon`.

    >>> Budget(epsilon=0.5, releases=2, total_epsilon=1.0, total_delta=2e-6).total
    (1.0, 2e-06)
    """

    epsilon: float  # of one release
    delta: float = 1e-6
    parts: float = 1.0  # the epsilons of all parts of a release together, over its own epsilon
    releases: int = 1  # how often the same records may be counted under the plan
    total_epsilon: float | None = None  # of all releases together; None: that of one
    total_delta: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not 1 <= check_finite(self.parts, "parts") <= MOST_PARTS:
            raise InvalidInputError(f"The parts of a budget are a factor from 1 to {MOST_PARTS:g}.")
        if check_positive_int(self.releases, "releases") > MOST_RELEASES:
            raise InvalidInputError(f"A plan is for at most {MOST_RELEASES:,} releases.")
        check_epsilon(self.total[0])
        check_delta(self.total[1])

    @property
    def total(self) -> tuple[float, float]:
        """The (epsilon, delta) that all releases need together."""
        epsilon = self.epsilon if self.total_epsilon is None else self.total_epsilon
        return epsilon, self.delta if self.total_delta is None else self.total_delta


@dataclass(frozen=True, slots=True)
class OneRecord:
    """The budget protects one record: all records of a client are counted."""

    kind: Literal["record"] = "record"


@dataclass(frozen=True, slots=True)
class WholeClient:
    """The budget protects a client with all it holds: it contributes `records` drawn ones."""

    records: int  # k   that each client draws; of the reference, as far as its own do not suffice
    empty: Empty = "reference"  # a client without records: draws of the reference, or stays away
    kind: Literal["client"] = "client"

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records of each client")


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRules:
    """How the clients are dealt into secure sums."""

    batches: int = 1  # T   disjoint groups of clients that are asked different points
    cohort: int = 50  # clients of one secure sum, about
    dropout: float = 0.1  # share of a cohort that may vanish
    corruption: float = 0.1  # share of a cohort that may collude with the aggregator
    most_records: int = 10**6  # of one client; sizes the ring

    def __post_init__(self) -> None:
        for name in ("batches", "cohort", "most_records"):
            check_positive_int(getattr(self, name), name)
        for name in ("dropout", "corruption"):
            if not 0 <= check_finite(getattr(self, name), name) < 0.5:
                raise InvalidInputError(f"{name} is a share from 0 to under one half.")
        if self.cohort < 3:
            raise InvalidInputError("A cohort needs at least 3 clients, or a sum hides nobody.")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRules:
    """When the verdict says drift.

    `control` says what the false-alarm rate of columns is about: the "family" of all of them (the
    probability that any column without drift is called drifted), or "discovery" (the expected
    share of such columns among those called drifted).
    """

    false_alarm: float = 0.01  # how often it may call out drift where there is none; per year in
    # a series, of all its releases together
    design_effect: float | None = None  # of counts without drift; None: as the reference shows
    client_effect: float = 1.0  # the part of it due to the intra-client correlation
    threshold: float | None = None  # in the unit of the divergence; drawn into the report
    control: Control = "family"
    false_discovery: float = 0.1  # share of cells called shifted that have not
    tolerate: float = 0.0  # total variation up to which a drift does not matter, in every view
    tolerate_columns: tuple[tuple[str, float], ...] = ()  # the same of single columns, by name

    def __post_init__(self) -> None:
        check_false_alarm(self.false_alarm)
        if self.design_effect is not None:
            check_design_effect(self.design_effect)
        check_design_effect(self.client_effect)
        if self.threshold is not None:
            check_finite(self.threshold, "threshold")
        check_open_unit(self.false_discovery, "false_discovery", "Use 0.1 for one cell in ten.")
        for tolerance in (self.tolerate, *(each for _, each in self.tolerate_columns)):
            if not 0 <= check_finite(tolerance, "tolerate") < 1:
                raise InvalidInputError(
                    "What is tolerated is a total variation from 0 to under 1, like 0.05: the "
                    "share of records that would have to move."
                )

    def tolerance(self, name: str) -> float:
        """The total variation up to which a drift of this view does not matter.

        >>> VerdictRules(tolerate=0.05, tolerate_columns=(("age", 0.1),)).tolerance("age")
        0.1
        """
        return dict(self.tolerate_columns).get(name, self.tolerate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When a plan may be used. Times are ISO 8601 with an offset; empty: no limit."""

    serial: int = 0  # of an organiser's plans for a population; a newer one replaces older ones
    valid_from: str = ""
    valid_until: str = ""  # a plan that travels needs one

    def __post_init__(self) -> None:
        if not 0 <= self.serial < 2**53:
            raise InvalidInputError("The serial number of a plan is a whole number from 0.")
        limits = [check_instant(at) for at in (self.valid_from, self.valid_until) if at != ""]
        if len(limits) == 2 and limits[0] >= limits[1]:
            raise InvalidInputError("A plan must end after it begins: check its validity.")

    def includes(self, at: str) -> bool:
        """Whether the plan may be used at this time (ISO 8601 with an offset)."""
        now = check_instant(at)
        begun = self.valid_from == "" or check_instant(self.valid_from) <= now
        return begun and (self.valid_until == "" or now <= check_instant(self.valid_until))

    @property
    def length(self) -> timedelta | None:
        """How long it may be used; None: for ever."""
        if "" in (self.valid_from, self.valid_until):
            return None
        return check_instant(self.valid_until) - check_instant(self.valid_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything the parties agree on before any data is touched. All of it is public.

    It is made of parts: who takes part (`population`, `roster`), what is compared with what
    (`reference`, `views`, `questions`), whom the budget protects (`unit`, `budget`), who may see
    exact sums of counts (`trust`), and `when`: once, or in every period of a series, whose releases
    are noisy counts. `fedprikl.planning.plan_round` chooses what is best for a reference.

    With trust in the "aggregator", that adds the noise. With "none", every client adds a share of
    the noise before anything is summed. With "servers", each of three `servers` holds a share of
    every sum that alone says nothing, and adds a share of the noise before anything is opened.

    >>> from fedprikl.protocol import AskedView, Budget, Plan, Question
    >>> plan = Plan(
    ...     population="patients",
    ...     reference=64 * "0",  # Reference.fingerprint
    ...     budget=Budget(epsilon=1.0),
    ...     views=(AskedView(points=100), AskedView(columns=("age",), points=10)),
    ...     questions=(
    ...         Question(share=0.5),
    ...         Question(share=0.5, divergence="tv", views=(("age",),), release="counts"),
    ...     ),
    ... )
    >>> plan.trust, plan.points, plan.column_points, plan.budget.total
    ('aggregator', 100, 10, (1.0, 1e-06))
    >>> Plan.from_dict(plan.to_dict()) == plan
    True
    """

    population: str  # whose budget is charged
    reference: str  # fingerprint of the reference
    roster: str = ""  # fingerprint of the clients' identities; empty: anybody may take part
    trust: Trust = "aggregator"  # who may see exact sums
    aggregator: str = ""  # X25519 public key that answers are sealed to, where a relay carries them
    servers: Servers | None = None  # where these are trusted, none of them alone
    unit: OneRecord | WholeClient = field(default_factory=OneRecord)  # whom the budget protects
    budget: Budget
    when: Once | Series = field(default_factory=Once)
    views: tuple[AskedView, ...]  # what each client counts, in this order
    questions: tuple[Question, ...]  # the first is the size
    sums: SumRules = field(default_factory=SumRules)
    verdict: VerdictRules = field(default_factory=VerdictRules)
    validity: Validity = field(default_factory=Validity)
    as_read: bytes = field(default=b"", init=False, repr=False)  # the signed text, if it is older

    def __post_init__(self) -> None:
        self._check_names()
        self._check_views()
        self._check_releases()
        self._check_series()
        if self.unit.kind == "client" and self.unit.records > self.sums.most_records:
            raise InvalidInputError(
                "A client contributes more records than most_records, the most of one client."
            )
        try:
            check_false_alarm(self.false_alarm_of_each)
        except InvalidInputError:
            raise InvalidInputError(
                "The whole and the columns have half of the false-alarm rate each, which is too "
                f"little of {self.verdict.false_alarm}. Raise it, or ask about one of the two."
            ) from None

    def _check_names(self) -> None:
        if not self.population.strip():
            raise InvalidInputError("A plan names the population whose budget it charges.")
        if not self.population.isprintable():
            raise InvalidInputError("The name of a population has printable characters only.")
        if self.trust not in get_args(Trust):
            known = " or ".join(map(repr, get_args(Trust)))
            raise InvalidInputError(f"Trust is {known}, got {self.trust!r:.40}.")
        if (self.trust == "servers") is (self.servers is None):
            raise InvalidInputError(
                "A plan names three servers if, and only if, its trust is 'servers'."
            )
        if len(self.reference) != 64:
            raise InvalidInputError("A plan carries the fingerprint of its reference.")
        if self.aggregator != "" and not is_sealing_key(self.aggregator):
            raise InvalidInputError(
                "The aggregator's key is not an X25519 public key of 64 hexadecimal digits; "
                "`fedprikl keys` prints it."
            )
        if self.roster != "" and not is_fingerprint(self.roster):
            raise InvalidInputError(
                "The roster of a plan is a fingerprint of 64 hexadecimal digits, or empty."
            )

    def _check_views(self) -> None:
        """Questions that one vector of counts and one budget can answer."""
        if not self.questions:
            raise InvalidInputError("A plan asks at least one question.")
        columns = tuple(view.columns for view in self.columns)
        asked = [views for views in ((WHOLE,) if self.points else (), columns) if views]
        names = [view.columns for view in self.views]
        if (
            names != [name for views in asked for name in views]
            or list(dict.fromkeys(each.views for each in self.questions)) != asked
        ):
            raise InvalidInputError(
                "A plan asks about the whole, about columns, or first about the whole and then "
                "about columns: name all of these columns, in the same order, in each question "
                "about columns."
            )
        if len(set(names)) < len(names):
            raise InvalidInputError("A plan asks about each view once.")
        kinds = {(each.divergence, each.of_whole or each.release) for each in self.questions}
        if len(kinds) < len(self.questions):
            raise InvalidInputError("A plan asks for each divergence once.")
        if columns and not any(each.release == "counts" for each in self.about_columns):
            raise InvalidInputError("The columns' noisy counts need a share of the budget.")
        if abs(math.fsum(each.share for each in self.questions) - 1) > SHARES:
            raise InvalidInputError(
                "The shares of the questions must sum to 1: together they have the whole budget."
            )

    def _check_releases(self) -> None:
        """What leaves the aggregator, given whom the clients trust."""
        options = {each.release for each in self.questions}
        if self.trust == "servers":
            self._check_servers()
        if self.trust == "none":
            if options != {"counts"}:
                raise InvalidInputError(
                    "Where nobody is trusted only noisy counts are released: give every question "
                    "release='counts'."
                )
            if len({each.noise for each in self.questions}) > 1:
                raise InvalidInputError(
                    "Where nobody is trusted all counts have one noise: give every question the "
                    "same."
                )
        for group in self.groups:
            if len({each.noise for each in group}) > 1:
                raise InvalidInputError(
                    "Questions that are read off the same counts have one noise: give them the "
                    "same."
                )
            share = math.fsum(each.share for each in group)
            epsilon = self.budget.epsilon * self.budget.parts * share
            if not LEAST_EPSILON <= epsilon <= LARGEST_EPSILON:
                raise InvalidInputError(
                    f"The epsilon of each question lies between {LEAST_EPSILON:g} and "
                    f"{LARGEST_EPSILON:g}; {group[0].divergence!r} has {epsilon:g}. Change the "
                    "plan's epsilon, or ask for less."
                )
        whole = {each.release for each in self.about_whole}
        if self.trust == "aggregator" and "counts" in whole and self.sums.batches > 1:
            raise InvalidInputError(
                "A trusted aggregator releases noisy counts of one batch only: use batches=1, or "
                "release='value'."
            )

    def _check_servers(self) -> None:
        """What three servers can compute on shares, of one vector that a client sends once."""
        values = [each for each in self.questions if each.release != "counts"]
        if any((each.divergence, each.release) != ("tv", "value") for each in values):
            raise InvalidInputError(
                "Three servers release noisy counts, and values of tv: give every other question "
                "release='counts'."
            )
        if any(each.maximum_step is not None for each in values):
            raise InvalidInputError("A value of tv from three servers has no maximum step.")
        if self.sums.batches > 1 or self.aggregator:
            raise InvalidInputError(
                "With three servers all clients are one batch, and there is no aggregator's key."
            )

    def check_lost(self) -> None:
        """Refuses an answer without one server where some view has no counts to read it off.

        The search for a plan tries parts of it.
        """
        counted = {each.views for each in self.questions if each.release == "counts"}
        lost = "nothing" if self.servers is None else self.servers.lost
        if lost == "counts" and any(each.views not in counted for each in self.questions):
            raise InvalidInputError(
                "With one server lost only counts are released (lost='counts'), so every view "
                "needs a question with release='counts'."
            )

    def check_tolerance(self) -> None:
        """Refuses a tolerance that no answer tells; the search for a plan tries parts of it."""
        names = [name for name, _ in self.verdict.tolerate_columns]
        if len(set(names)) < len(names) or not set(names) <= {each.name for each in self.columns}:
            raise InvalidInputError(
                "A tolerance of one column names a column that is asked, and each once: got "
                f"{', '.join(map(repr, names)):.200}."
            )
        told = any(each.divergence == "tv" or each.release == "counts" for each in self.about_whole)
        if self.verdict.tolerate and self.about_whole and not told:
            raise InvalidInputError(
                "A tolerance is a total variation, so ask about that too: --ask kl,tv."
            )

    def _check_series(self) -> None:
        """Of noisy counts alone: what is said of many periods is read off their sums."""
        if self.when.kind == "once":
            return
        if self.sums.batches > 1 or {each.release for each in self.questions} != {"counts"}:
            raise InvalidInputError(
                "A series is released as noisy counts of one batch, so that they add up over time: "
                "give every question release='counts'."
            )
        exposures = self.when.exposures(self.unit.kind)
        if self.budget.releases != exposures:
            raise InvalidInputError(
                f"Each {self.unit.kind} is in {exposures} releases of the series, so the plan "
                f"needs releases={exposures}."
            )

    @property
    def is_series(self) -> bool:
        """Whether there is a release for every period of a series."""
        return self.when.kind == "series"

    @property
    def series(self) -> Series:
        """The series of the plan; refused if it has none."""
        if self.when.kind == "once":
            raise InvalidInputError(
                "The plan is for one release. Plan a series: `fedprikl plan --every week --until "
                "2027-12-31`."
            )
        return self.when

    @property
    def contribution_bound(self) -> int:
        """How many records one protected unit contributes: 1, or all that a client draws."""
        return 1 if self.unit.kind == "record" else self.unit.records

    @property
    def stated_unit(self) -> tuple[Unit, int | None, bool]:
        """As a privacy statement says it: whom, how many records, and who may stay away."""
        if self.unit.kind == "record":
            return "record", None, False
        return "client", self.unit.records, self.unit.empty == "away"

    def __repr__(self) -> str:
        return (
            f"<Plan of {self.population!r}: {self.points + self.column_points:,} cells, "
            f"epsilon {self.budget.epsilon:.3g}, trust {self.trust}, unit {self.unit.kind}>"
        )

    def spread(self, view: View, clients: Sequence[int]) -> float | Spread:
        """How counts vary without drift: by the plan, or by the reference for who was counted.

        `clients` are those of each batch.
        """
        if self.verdict.design_effect is not None:
            return self.verdict.design_effect
        return view.spread(clients=clients, per_client=self.stated_unit[1])

    @property
    def about_whole(self) -> tuple[Question, ...]:
        """The questions about the whole joint domain."""
        return tuple(each for each in self.questions if each.of_whole)

    @property
    def about_columns(self) -> tuple[Question, ...]:
        """The questions about columns and pairs."""
        return tuple(each for each in self.questions if not each.of_whole)

    @property
    def groups(self) -> tuple[tuple[Question, ...], ...]:
        """The questions that one mechanism answers: one by one, or all read off the same counts.

        In the order in which the budget is shared out and noise is drawn: by views, and of the same
        views noisy counts last.
        """
        found: list[tuple[Question, ...]] = []
        for views in dict.fromkeys(each.views for each in self.questions):
            same = [each for each in self.questions if each.views == views]
            found += [(each,) for each in same if each.release != "counts"]
            counts = tuple(each for each in same if each.release == "counts")
            found += [counts] if counts else []
        return tuple(found)

    @property
    def question(self) -> Question:
        """The first question about the whole: how large the drift is."""
        if not self.about_whole:
            raise InvalidInputError("The plan asks about columns only, not about the whole.")
        return self.about_whole[0]

    @property
    def whole(self) -> AskedView:
        """How the whole is asked; refused if only columns are."""
        for view in self.views:
            if view.columns == WHOLE:
                return view
        raise InvalidInputError("The plan asks about columns only, not about the whole.")

    @property
    def columns(self) -> tuple[AskedView, ...]:
        """The columns and pairs that are asked."""
        return tuple(view for view in self.views if view.columns != WHOLE)

    @property
    def points(self) -> int:
        """Counts each client reports of the joint domain; 0 if only columns are asked."""
        return sum(view.points for view in self.views if view.columns == WHOLE)

    @property
    def column_points(self) -> int:
        """Counts each client reports of columns."""
        return sum(view.points for view in self.columns)

    @property
    def false_alarm_of_each(self) -> float:
        """Of the verdict on the whole, and of all columns: half of it each where both are asked."""
        both = self.about_whole and self.columns
        return self.verdict.false_alarm / 2 if both else self.verdict.false_alarm

    def charged_times(self, period: int | None) -> TimeInterval | None:
        """The moments of the records that a round is charged for; None: of all of them.

        A record has one moment, and pays for the periods that count it. A client is in every
        period.
        """
        if self.when.kind == "once" or period is None or self.unit.kind == "client":
            return None
        return self.when.counted_by(period).times

    def charge_note(self, period: int | None) -> str:
        """What a ledger notes of a charge without a time interval: its plan and its period."""
        if not self.is_series or period is None or self.unit.kind == "record":
            return ""
        return f"plan {self.fingerprint[:16]}, period {period}"

    def charged_periods(self, known: LedgerRound) -> list[int]:
        """Periods of the plan's series with records that a round was charged for.

        A charge without a time interval is one of the series only if its note says so.
        """
        if self.when.kind == "once":
            return []
        series, times = self.when, known.times
        if times is None:
            return [n for n in range(series.periods) if known.note == self.charge_note(n) != ""]
        if times.clock != series.clock:
            return []
        later = range(series.last_over(times.start) + 1, series.periods)
        return list(takewhile(lambda n: series.period(n).times.overlaps(times), later))

    def changed(self, **changes: Any) -> "Plan":
        """The plan with other values; those of its parts go by their own names, like epsilon."""
        for name in ("budget", "sums", "verdict", "validity"):
            part = getattr(self, name)
            own = {f.name: changes.pop(f.name) for f in fields(part) if f.name in changes}
            if own:
                changes[name] = replace(part, **own)
        return replace(self, **changes)

    def asking(self, points: int, exponent: float = 1.0) -> "Plan":
        """The plan with other points of the whole."""
        whole = AskedView(points=points, exponent=exponent)
        return replace(self, views=tuple(view if view.columns else whole for view in self.views))

    def with_noise(self, noise: str) -> "Plan":
        """The plan with this noise on the whole, or on all counts where nobody is trusted."""
        return replace(
            self,
            questions=tuple(
                replace(each, noise=noise) if each.of_whole or self.trust == "none" else each
                for each in self.questions
            ),
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content."""
        return digest(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        if self.as_read:
            return parse_document(self.as_read, "plan")
        names = (each.name for each in fields(self) if each.init)
        return FORMAT.head | {name: to_plain(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Plan":
        """The plan of a document; unknown or missing fields are refused."""
        content = FORMAT.current(document)
        plan = read_exactly(cls, content, "plan")
        if content is not document:
            object.__setattr__(plan, "as_read", canonical(document))
        plan.check_tolerance()
        plan.check_lost()
        budget = plan.budget  # the search for a plan tries others on the way
        if budget.total[0] < budget.epsilon or budget.total[1] < budget.delta:
            raise InvalidInputError(
                "The budget of all releases together is smaller than that of one. Raise "
                "total_epsilon and total_delta, or leave them out."
            )
        return plan


@dataclass(frozen=True, slots=True)
class SignedPlan:
    """A plan with the signature of whoever answers for it (or none).

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([50, 50])
    >>> plan = fk.plan(reference, clients=3, records=60, epsilon=1).plan
    >>> key = fk.SigningKey.generate()
    >>> signed = SignedPlan.sign(plan, key)
    >>> signed.is_signed_by(key.public)
    True
    >>> signed.is_signed_by(fk.SigningKey.generate().public)
    False
    """

    plan: Plan
    signer: str = ""  # public key, hexadecimal
    signature: str = ""

    @classmethod
    def sign(cls, plan: Plan, key: SigningKey) -> "SignedPlan":
        """The plan, signed."""
        return cls(plan, key.public, key.sign(canonical(plan.to_dict())))

    def is_signed_by(self, public: str) -> bool:
        """Whether the holder of this key answers for the plan."""
        body = canonical(self.plan.to_dict())
        return self.signer == public and verify_signature(public, self.signature, body)

    @property
    def lineage(self) -> tuple[str, str]:
        """Whose plans for whom: of one lineage, a higher serial number replaces a lower."""
        return self.signer, self.plan.population

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"plan": self.plan.to_dict(), "signer": self.signer, "signature": self.signature}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "SignedPlan":
        """The signed plan of a document; whether the signature fits is `is_signed_by`'s to say."""
        match document:
            case {"plan": dict(plan), "signer": str(signer), "signature": str(signature), **rest}:
                if not rest:
                    return cls(Plan.from_dict(plan), signer, signature)
        raise InvalidInputError("This is not a signed plan: plan, signer and signature are needed.")

    @classmethod
    def load(cls, path: str | Path) -> "SignedPlan":
        """The signed plan of a file."""
        content = read_file(path, "plan")
        with named(path):
            return cls.from_dict(parse_document(content, "plan"))
