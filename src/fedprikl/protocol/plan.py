"""The plan: what all parties agree on before any data is touched. All of it is public."""

import math
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from fedprikl.checks import (
    check_delta,
    check_epsilon,
    check_finite,
    check_instant,
    check_positive_int,
)
from fedprikl.documents import canonical, check_version, digest, parse_document
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import check_design_effect, check_false_alarm
from fedprikl.privacy import NoiseKind, Unit
from fedprikl.protocol.keys import SigningKey, is_sealing_key, verify_signature
from fedprikl.protocol.question import ColumnQuestions, Question
from fedprikl.protocol.roster import is_fingerprint
from fedprikl.protocol.series import Series

NUMBERS = (
    "epsilon",
    "delta",
    "dropout",
    "corruption",
    "threshold",
    "false_alarm",
    "design_effect",
    "client_effect",
    "budget_epsilon",
    "budget_delta",
)
Trust = Literal["aggregator", "none"]
Empty = Literal["reference", "away"]
FORMAT, VERSION = "fedprikl plan", 10
SHARES = 1e-9  # how far the sum of all shares may be from 1
LEAST_EPSILON, LARGEST_EPSILON = 1e-5, 1e7  # of one question: beyond, noise is slow or overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything the parties agree on before any data is touched. All of it is public.

    `trust` says who may see exact sums of counts: the "aggregator", which adds the noise, or
    "none": then every client adds a share of the noise before anything is summed. `epsilon` and
    `delta` are those of one release, `budget_epsilon` and `budget_delta` of all `releases` that
    count the same record. With a `series` there is a release for every period, from noisy counts;
    `false_alarm` is then the rate per year of the whole series. `unit` says whom the budget
    protects: one record, or one client with all it holds, which then contributes `per_client` drawn
    records, no more and no fewer. `fedprikl.planning.plan_round` chooses what is best for a
    reference.

    Examples
    --------
    >>> from fedprikl.protocol import Plan, Question
    >>> plan = Plan(
    ...     population="patients",
    ...     reference=64 * "0",  # Reference.fingerprint
    ...     epsilon=1.0,
    ...     questions=(Question(points=100),),
    ... )
    >>> plan.trust, plan.question.points, plan.budget
    ('aggregator', 100, (1.0, 1e-06))

    """

    population: str  # whose budget is charged
    reference: str  # fingerprint of the reference
    trust: Trust = "aggregator"  # who may see exact sums
    unit: Unit = "record"  # who is protected: one record, or all records of one client
    per_client: int | None = None  # k   records that each client draws, if the unit is the client
    empty: Empty = "reference"  # a client without records: draws of the reference, or stays away
    epsilon: float
    delta: float = 1e-6
    questions: tuple[Question, ...]  # about the whole, from the same counts; the first is the size
    columns: ColumnQuestions | None = None  # about every column by itself
    batches: int = 1  # T   disjoint groups of clients that are asked different points
    noise: NoiseKind = "auto"
    cohort: int = 50  # clients of one secure sum, about
    dropout: float = 0.1  # share of a cohort that may vanish
    corruption: float = 0.1  # share of a cohort that may collude with the aggregator
    most_records: int = 10**6  # of one client; sizes the ring
    threshold: float | None = None  # in the unit of the divergence; drawn into the report
    false_alarm: float = 0.01  # how often the verdict may call out drift where there is none
    design_effect: float | None = None  # of counts without drift; None: as the reference shows
    client_effect: float = 1.0  # the part of it due to clients whose records are alike
    aggregator: str = ""  # X25519 public key that answers are sealed to, where a relay carries them
    roster: str = ""  # fingerprint of the clients' identities; empty: anybody may take part
    serial: int = 0  # of an organiser's plans for a population; a newer one replaces older ones
    valid_from: str = ""  # ISO 8601 with an offset; empty: no limit
    valid_until: str = ""  # a plan that travels needs one
    releases: int = 1  # how often the same records may be counted under this plan
    series: Series | None = None  # a release for every period; None: about all records
    budget_epsilon: float | None = None  # of all releases together; None: that of one
    budget_delta: float | None = None

    def __post_init__(self) -> None:
        self._check_names()
        for name in NUMBERS:  # a text would be signed as a text and used as a number
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise InvalidInputError(f"{name} of a plan must be a number, got {value!r:.40}.")
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        for name in ("batches", "cohort", "most_records", "releases"):
            check_positive_int(getattr(self, name), name)
        self._check_questions()
        self._check_choices()
        self._check_unit()
        self._check_releases()
        self._check_series()
        check_false_alarm(self.false_alarm)
        try:
            check_false_alarm(self.false_alarm_of_each)
        except InvalidInputError:
            raise InvalidInputError(
                "The whole and the columns have half of the false-alarm rate each, which is too "
                f"little of {self.false_alarm}. Raise it, or ask about one of the two."
            ) from None
        if self.design_effect is not None:
            check_design_effect(self.design_effect)
        check_design_effect(self.client_effect)
        self._check_validity()
        if self.budget_epsilon is not None:
            check_epsilon(self.budget_epsilon)
        if self.budget_delta is not None:
            check_delta(self.budget_delta)
        if self.aggregator != "" and not is_sealing_key(self.aggregator):
            raise InvalidInputError(
                "The aggregator's key is not an X25519 public key of 64 hexadecimal digits; "
                "`fedprikl keys` prints it."
            )
        if self.roster != "" and not is_fingerprint(self.roster):
            raise InvalidInputError(
                "The roster of a plan is a fingerprint of 64 hexadecimal digits, or empty."
            )

    def _check_questions(self) -> None:
        """Questions that one vector of counts and one budget can answer."""
        asked = self.questions
        if not isinstance(asked, tuple) or not all(isinstance(each, Question) for each in asked):
            raise InvalidInputError("The questions of a plan are a tuple of `Question`.")
        if self.columns is not None and not isinstance(self.columns, ColumnQuestions):
            raise InvalidInputError("The columns of a plan are `ColumnQuestions`, or None.")
        if not asked and self.columns is None:
            raise InvalidInputError("A plan asks at least one question.")
        if len({each.divergence for each in asked}) < len(asked):
            raise InvalidInputError("A plan asks for each divergence once.")
        if len({(each.points, each.exponent) for each in asked}) > 1:
            raise InvalidInputError(
                "All questions are answered from the same counts: give them the same points and "
                "the same exponent."
            )
        beside = 0.0 if self.columns is None else self.columns.share
        if abs(math.fsum(each.share for each in asked) + beside - 1) > SHARES:
            raise InvalidInputError(
                "The shares of the questions must sum to 1: together they have the whole budget."
            )

    def _check_releases(self) -> None:
        """What leaves the aggregator, given whom the clients trust."""
        ways = {each.release for each in self.questions}
        alone = self.columns is not None and (self.columns.tv > 0 or self.columns.js > 0)
        if self.trust == "none" and (alone or not ways <= {"counts"}):
            raise InvalidInputError(
                "Where nobody is trusted only noisy counts are released: give every question "
                "release='counts', and the columns no share for tv and js."
            )
        for name, share in self._shares():
            if not LEAST_EPSILON <= share * self.epsilon <= LARGEST_EPSILON:
                raise InvalidInputError(
                    f"The epsilon of each question lies between {LEAST_EPSILON:g} and "
                    f"{LARGEST_EPSILON:g}; {name!r} has {share * self.epsilon:g}. Change the "
                    "plan's epsilon, or ask for less."
                )
        if self.trust == "aggregator" and "counts" in ways and self.batches > 1:
            raise InvalidInputError(
                "A trusted aggregator releases noisy counts of one batch only: use batches=1, or "
                "release='value'."
            )

    def _check_series(self) -> None:
        """Of noisy counts alone: what is said of many periods is read off their sums."""
        if self.series is None:
            return
        if not isinstance(self.series, Series):
            raise InvalidInputError("The series of a plan is a `Series`, or None.")
        columns = self.columns
        if (
            any(question.release != "counts" for question in self.questions)
            or self.batches > 1
            or (columns is not None and columns.tv + columns.js > 0)
        ):
            raise InvalidInputError(
                "A series is released as noisy counts of one batch, so that they add up over time: "
                "give every question release='counts', and the columns no share for tv and js."
            )
        if self.releases != self.exposures(self.series):
            raise InvalidInputError(
                f"Each {self.unit} is in {self.exposures(self.series)} releases of the series, so "
                f"the plan needs releases={self.exposures(self.series)}."
            )

    def exposures(self, series: Series) -> int:
        """How many releases of a series count one unit: a client is in all of them."""
        return series.periods if self.unit == "client" else series.window

    def _shares(self) -> list[tuple[str, float]]:
        """The parts of the budget, each with its name."""
        found = [(each.divergence, each.share) for each in self.questions]
        if self.columns is not None:
            asked = self.columns
            parts = (("tv", asked.tv), ("js", asked.js), ("counts", asked.counts))
            found += [(f"{name} of columns", share) for name, share in parts if share > 0]
        return found

    def _check_names(self) -> None:
        if not isinstance(self.population, str) or not self.population.strip():
            raise InvalidInputError("A plan names the population whose budget it charges.")
        if not self.population.isprintable():
            raise InvalidInputError("The name of a population has printable characters only.")
        if not isinstance(self.reference, str) or len(self.reference) != 64:
            raise InvalidInputError("A plan carries the fingerprint of its reference.")

    def _check_choices(self) -> None:
        if self.trust not in get_args(Trust):
            raise InvalidInputError(f"Trust is 'aggregator' or 'none', got {self.trust!r:.40}.")
        if self.noise not in get_args(NoiseKind):
            raise InvalidInputError(f"There is no noise {self.noise!r}.")
        for name in ("dropout", "corruption"):
            if not 0 <= check_finite(getattr(self, name), name) < 0.5:
                raise InvalidInputError(f"{name} is a share from 0 to under one half.")
        if self.cohort < 3:
            raise InvalidInputError("A cohort needs at least 3 clients, or a sum hides nobody.")
        if self.threshold is not None:
            check_finite(self.threshold, "threshold")

    def _check_unit(self) -> None:
        """Whom the budget protects, and how much of a client is counted."""
        if self.unit not in get_args(Unit):
            raise InvalidInputError(f"The unit is 'record' or 'client', got {self.unit!r:.40}.")
        if self.empty not in get_args(Empty):
            raise InvalidInputError(
                "A client without records takes part with draws of the 'reference' or stays "
                f"'away', got {self.empty!r:.40}."
            )
        if self.unit == "record":
            if self.per_client is not None or self.empty != "reference":
                raise InvalidInputError(
                    "`per_client` and `empty` belong to unit='client': a plan that protects single "
                    "records counts all of them."
                )
            return
        if self.per_client is None:
            raise InvalidInputError(
                "A plan that protects clients says how many records each contributes: per_client."
            )
        if check_positive_int(self.per_client, "per_client") > self.most_records:
            raise InvalidInputError("per_client is above most_records, the most of one client.")

    def _check_validity(self) -> None:
        if type(self.serial) is not int or not 0 <= self.serial < 2**53:
            raise InvalidInputError("The serial number of a plan is a whole number from 0.")
        limits = [check_instant(at) for at in (self.valid_from, self.valid_until) if at != ""]
        if len(limits) == 2 and limits[0] >= limits[1]:
            raise InvalidInputError("A plan must end after it begins: check its validity.")

    def is_valid(self, at: str) -> bool:
        """Whether the plan may be used at this time (ISO 8601 with an offset)."""
        now = check_instant(at)
        begun = self.valid_from == "" or check_instant(self.valid_from) <= now
        return begun and (self.valid_until == "" or now <= check_instant(self.valid_until))

    @property
    def validity(self) -> timedelta | None:
        """How long it may be used; None: for ever."""
        if "" in (self.valid_from, self.valid_until):
            return None
        return check_instant(self.valid_until) - check_instant(self.valid_from)

    @property
    def budget(self) -> tuple[float, float]:
        """The (epsilon, delta) that all its releases need together."""
        epsilon = self.epsilon if self.budget_epsilon is None else self.budget_epsilon
        return epsilon, self.delta if self.budget_delta is None else self.budget_delta

    @property
    def moved(self) -> int:
        """How many records one protected unit can move: 1, or all that a client contributes."""
        return 1 if self.per_client is None else self.per_client

    @property
    def question(self) -> Question:
        """The first question: how large the drift is."""
        if not self.questions:
            raise InvalidInputError("The plan asks about columns only, not about the whole.")
        return self.questions[0]

    @property
    def points(self) -> int:
        """Counts each client reports of the joint domain; 0 if only columns are asked."""
        return self.questions[0].points if self.questions else 0

    @property
    def counted(self) -> int:
        """Counts each client reports of columns."""
        return 0 if self.columns is None else self.columns.counted

    @property
    def false_alarm_of_each(self) -> float:
        """Of the verdict on the whole, and of all columns: half of it each where both are asked."""
        both = self.questions and self.columns is not None
        return self.false_alarm / 2 if both else self.false_alarm

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content."""
        return digest(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {field.name: getattr(self, field.name) for field in fields(self)} | {
            "questions": [each.to_dict() for each in self.questions],
            "columns": None if self.columns is None else self.columns.to_dict(),
            "series": None if self.series is None else self.series.to_dict(),
        }
        return {"format": FORMAT, "version": VERSION, **content}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Plan":
        """The plan of a document; unknown or missing fields are refused."""
        content = dict(document)
        check_version(content, FORMAT, VERSION, "Make it again with `fedprikl plan`.")
        del content["format"], content["version"]
        names = {field.name for field in fields(cls)}
        if set(content) != names:
            odd = ", ".join(sorted(set(content) ^ names))
            raise InvalidInputError(f"The plan has missing or unknown fields: {odd}.")
        if not isinstance(content["questions"], list):
            raise InvalidInputError("The questions of a plan are a list.")
        content["questions"] = tuple(Question.from_dict(each) for each in content["questions"])
        if content["columns"] is not None:
            content["columns"] = ColumnQuestions.from_dict(content["columns"])
        if content["series"] is not None:
            content["series"] = Series.from_dict(content["series"])
        try:
            return cls(**content)
        except TypeError:
            raise InvalidInputError("A field of the plan has the wrong type.") from None


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
    def line(self) -> tuple[str, str]:
        """Whose plans for whom: within a line of plans, a higher serial number replaces a lower."""
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
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise InvalidInputError(f"Cannot read the plan {path}: {error.strerror}.") from None
        return cls.from_dict(parse_document(text, "plan"))
