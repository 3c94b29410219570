"""The release: a signed document that says what was found, about what, and what it cost."""

from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from fedprikl.documents import (
    Format,
    canonical,
    check_written,
    digest,
    named,
    parse_document,
    read_fields,
    read_file,
    to_plain,
)
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import Answer, JudgedStatistic, NoisyCounts, Verdict, VerdictOutcome
from fedprikl.estimation.outcome import joint_outcome
from fedprikl.estimation.statistic import COUNTS, LARGEST_CELL, OUT_OF_DOMAIN
from fedprikl.privacy import Head, PrivacyStatement
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.protocol.plan import Plan, Trust
from fedprikl.protocol.round import Outcome

# The version rises with the fields, and with the words of a verdict or a privacy statement: a
# release whose words are not those of its numbers is refused.
FORMAT = Format(
    "release", advice="Have it released again, or read it with the software that made it."
)
SIGNED_BY = ("signer", "signature")
LOST = "One server was lost."  # ends what a privacy statement says about trust
DRIFTED: dict[VerdictOutcome | None, bool] = {"drift": True, "none found": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAnswer:
    """One category or bin of a column: its share in the reference, and among the records."""

    label: str  # what a person calls it
    reference: float  # Pi(x), a share of 1
    share: float  # of the records, from all noisy counts of the column
    interval: tuple[float, float]  # 95%, of that share
    shifted: Literal["up", "down", ""] = ""  # "": cannot be told from no change


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAnswer:
    """Whether one column has drifted, by how much, and which of its cells shifted. Public.

    >>> from fedprikl.estimation import CountNoise
    >>> tv = JudgedStatistic(name="tv", value=0.2, threshold=0.1, unit="")
    >>> column = ColumnAnswer(
    ...     columns=("carrier",),
    ...     verdict=Verdict(statistics=(tv,), false_alarm=0.01, design_effect=1.0),
    ...     answers=(),
    ...     cells=(),
    ...     counts=NoisyCounts.of([0.0], [40], [CountNoise(sd=3.0)]),
    ... )
    >>> column.name, column.outcome
    ('carrier', 'drift')
    """

    columns: tuple[str, ...]  # one, or a pair
    verdict: Verdict | None  # with thresholds for all columns; None where it was not computed
    answers: tuple[Answer, ...]  # how much: tv and kl, from all that was released about it
    cells: tuple[CellAnswer, ...]  # in the order of the reference
    counts: NoisyCounts  # of the cells, and of records in none of them

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidInputError("An answer about columns names one or more.")

    @property
    def outcome(self) -> VerdictOutcome | None:
        """What the verdict says; None where it could not be computed."""
        return None if self.verdict is None else self.verdict.outcome

    @property
    def drifted(self) -> bool | None:
        """At the false-alarm rate over all columns; None where that cannot be told."""
        return DRIFTED.get(self.outcome)

    @property
    def statistics(self) -> tuple[JudgedStatistic, ...]:
        """Those of the verdict."""
        return () if self.verdict is None else self.verdict.statistics

    @property
    def findable(self) -> float | None:
        """The least total variation of a drift that half of the time is found, if known."""
        return None if self.verdict is None else self.verdict.findable

    @property
    def design_effect(self) -> float | None:
        """None: not known, records of one client are taken as unrelated."""
        return None if self.verdict is None else self.verdict.design_effect

    @property
    def name(self) -> str:
        """The column's name; of a pair, both."""
        return " and ".join(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        content = {field.name: to_plain(getattr(self, field.name)) for field in fields(self)}
        return content | {"drifted": self.drifted}

    def answer(self, divergence: str) -> Answer | None:
        """How much, in this divergence."""
        return next((each for each in self.answers if each.divergence == divergence), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPeriod:
    """The place of a release in its series. The releases of a series are a chain."""

    number: int  # from 0
    start: str  # of the records that are counted; ISO 8601 with an offset
    end: str
    previous: str  # fingerprint of the release before; empty: it is the first

    @classmethod
    def of(cls, plan: Plan, number: int | None, previous: str) -> "ReleasedPeriod | None":
        """Of a round of the plan; None if the plan has no series, or no such period."""
        if plan.when.kind == "once" or number is None or number >= plan.when.periods:
            return None
        times = plan.when.counted_by(number).times
        return cls(number=number, start=times.start, end=times.end, previous=previous)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The answers of one round under one verdict, one privacy statement and one signature. Public.

    The aggregator makes and signs it. Whoever knows the aggregator's key can check that nobody
    changed it: `is_signed_by`. The signature covers everything else, as canonical JSON.

    >>> from fedprikl.estimation import Verdict, JudgedStatistic
    >>> from fedprikl.privacy import PrivacyStatement
    >>> from fedprikl.protocol import Answer, Outcome, SigningKey
    >>> noise = "Laplace noise of scale 0.2693"
    >>> release = Release(
    ...     round_id="7aa28379b0451df65889870b737c57e8",
    ...     population="phones",
    ...     trust="aggregator",
    ...     plan="d5a5...",
    ...     reference="3961...",
    ...     answers=(
    ...         Answer(
    ...             divergence="kl",
    ...             value=0.5,
    ...             interval=(0.25, 0.75),
    ...             no_drift=0.125,
    ...             target="D(Pi || 0.01 Pi + 0.99 P)",
    ...             unit="nats",
    ...             mechanism=noise,
    ...         ),
    ...     ),
    ...     verdict=Verdict(
    ...         statistics=(JudgedStatistic(name="kl", value=0.5, threshold=0.2, unit="nats"),),
    ...         false_alarm=0.01,
    ...         design_effect=1.0,
    ...     ),
    ...     privacy=PrivacyStatement(
    ...         epsilon=1.0,
    ...         delta=0.0,
    ...         claimed_epsilon=1.0,
    ...         mechanism=noise,
    ...         released="one number",
    ...         trust="the aggregator.",
    ...     ),
    ...     cohorts=(Outcome(batch=0, clients=9, included=8),),
    ...     payload=6,
    ...     records=480,
    ...     software="fedprikl",
    ...     released_at="2030-01-31T12:00:00+00:00",
    ... )
    >>> key = SigningKey.generate()
    >>> signed = release.sign(key)
    >>> Release.from_bytes(signed.to_bytes()) == signed
    True
    >>> signed.is_signed_by(key.public), signed.drifted, signed.value
    (True, True, 0.5)
    """

    round_id: str
    request: str = ""  # the organiser's nonce: an old release cannot pass for this one
    population: str  # whose budget was charged
    trust: Trust  # who saw exact sums
    plan: str  # fingerprint
    reference: str  # fingerprint
    answers: tuple[Answer, ...]  # one for each question of the plan
    columns: tuple[ColumnAnswer, ...] = ()  # one for each view of the plan
    verdict: Verdict | None  # on the whole; None where it was not asked or could not be computed
    period: ReleasedPeriod | None = None  # of a series; its verdict looks at all its releases
    privacy: PrivacyStatement
    cohorts: tuple[Outcome, ...]
    payload: int  # counts each client reported
    records: int  # of all clients that are counted
    noisy_counts: NoisyCounts | None = None  # where answers are read off them
    ledger: Head | None = None  # of the ledger that was charged
    software: str
    released_at: str  # ISO 8601 with an offset
    signer: str = ""  # public key, hexadecimal; of servers, theirs with a space between
    signature: str = ""  # as many
    as_read: bytes = field(default=b"", init=False, repr=False)  # the signed text, if it is older

    def __post_init__(self) -> None:
        if not self.answers and not self.columns:
            raise InvalidInputError("A release answers at least one question.")
        if self.trust == "none" and self.answers and self.noisy_counts is None:
            raise InvalidInputError("A release carries noisy counts if no party is trusted.")
        if self.noisy_counts is not None and sum(self.noisy_counts.records) != self.records:
            raise InvalidInputError("The noisy counts of a release are of other records.")
        asked = {answer.divergence for answer in self.answers}
        views = {column.columns for column in self.columns}
        if len(asked) < len(self.answers) or len(views) < len(self.columns):
            raise InvalidInputError("A release answers every question once.")
        for answer in (*self.answers, *(each for view in self.columns for each in view.answers)):
            limits = (answer.interval, answer.guaranteed)
            if any(limit is not None and limit[0] > limit[1] for limit in limits):
                raise InvalidInputError("An interval of the release ends before it begins.")
        if any(cohort.included > cohort.clients for cohort in self.cohorts):
            raise InvalidInputError("A cohort of the release includes more clients than it has.")
        if not f"{self.population}{self.software}{self.released_at}".isprintable():
            raise InvalidInputError("A name in the release has characters that are not printable.")
        privacy = self.privacy
        if privacy.epsilon < 0 or not 0 <= privacy.delta < 1 or (privacy.claimed_epsilon or 0) < 0:
            raise InvalidInputError("The privacy statement of the release is impossible.")

    def is_about(self, plan: Plan) -> bool:
        """Whether it says what a release of this plan says: every answer, in the same order."""
        privacy = self.privacy
        counts = any(question.release == "counts" for question in plan.about_whole)
        return (
            self.plan == plan.fingerprint
            and (self.population, self.reference) == (plan.population, plan.reference)
            and self.trust == plan.trust
            and [(each.divergence, each.target) for each in self.answers]
            == [(each.divergence, each.target) for each in plan.about_whole]
            and [each.columns for each in self.columns] == [each.columns for each in plan.columns]
            and (self.noisy_counts is not None) is counts
            and self._has_statistics_of(plan)
            and self._has_records_of(plan)
            and self._has_counts_of(plan)
            and self._has_period_of(plan)
            and privacy.claimed_epsilon == plan.budget.epsilon
            and (privacy.unit, privacy.per_client, privacy.away) == plan.stated_unit
        )

    def _has_period_of(self, plan: Plan) -> bool:
        """Whether it stands where the plan's series has a period; without a series, nowhere."""
        place = self.period
        if place is None:
            return not plan.is_series
        return place == ReleasedPeriod.of(plan, place.number, place.previous)

    def _has_records_of(self, plan: Plan) -> bool:
        """Whether the signed number of records is what the signed cohorts contribute."""
        clients = sum(cohort.included for cohort in self.cohorts)
        return plan.unit.kind == "record" or self.records == plan.unit.records * clients

    def _has_counts_of(self, plan: Plan) -> bool:
        """Whether each column has as many counts as the plan asks for; and as many cells, if any.

        Whoever shows them relies on it.
        """
        return all(
            len(column.counts.counts) == view.points and len(column.cells) in (0, view.points)
            for column, view in zip(self.columns, plan.columns, strict=False)
        )

    def _has_statistics_of(self, plan: Plan) -> bool:
        """Whether the verdicts rest on answers of the plan, or on noisy counts it asks for."""
        whole = None if self.verdict is None else self.verdict.statistics
        asked = (
            (plan.about_whole, whole),
            *((plan.about_columns, c.statistics) for c in self.columns),
        )
        for questions, statistics in asked:
            known = {each.divergence for each in questions if each.release != "counts"}
            if len(known) < len(questions):
                known |= {COUNTS, LARGEST_CELL, OUT_OF_DOMAIN}
            if not {each.name for each in statistics or ()} <= known:
                return False
        return True

    def sign(self, key: SigningKey) -> "Release":
        """The release with the aggregator's signature; refuses what nobody could read."""
        content = replace(self)._content()  # of today's version
        _read(content, key.public, "")
        return replace(self, signer=key.public, signature=key.sign(canonical(content)))

    def countersign(self, key: SigningKey) -> "Release":
        """The release with one more signature: three servers sign what they made together."""
        signature = key.sign(canonical(self._content()))
        return replace(
            self,
            signer=f"{self.signer} {key.public}".strip(),
            signature=f"{self.signature} {signature}".strip(),
        )

    def is_signed_by(self, public: str) -> bool:
        """Whether the holder of this key made the release, and nobody changed it since."""
        signers, signatures = self.signers, self.signature.split(" ")
        if len(signers) != len(signatures) or len(set(signers)) < len(signers):
            return False
        found = dict(zip(signers, signatures, strict=True))
        return verify_signature(public, found.get(public, ""), canonical(self._content()))

    @property
    def signers(self) -> tuple[str, ...]:
        """The public keys that signed: the aggregator's, or those of the servers."""
        return tuple(self.signer.split(" "))

    @property
    def is_intact(self) -> bool:
        """Whether the signatures fit the signers that the document itself names."""
        return all(map(self.is_signed_by, self.signers))

    def has_signers_of(self, plan: Plan) -> bool:
        """Whether all servers of the plan signed; or two, if one may be lost and it says so.

        Plans without servers, or with servers that are all in one process, name no signer.
        """
        if plan.servers is None or not plan.servers.signing:
            return True
        wanted = [key for key in plan.servers.signing if self.is_signed_by(key)]
        said = plan.servers.lost != "nothing" and self.privacy.trust.endswith(LOST)
        return len(wanted) == 3 or (len(wanted) == 2 and said)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """On the whole and on columns, as far as they could be computed."""
        found = (self.verdict, *(column.verdict for column in self.columns))
        return tuple(verdict for verdict in found if verdict is not None)

    @property
    def outcome(self) -> VerdictOutcome | None:
        """Drift, if any verdict found it; none found, if any could tell; None without verdicts."""
        return joint_outcome(verdict.outcome for verdict in self.verdicts)

    @property
    def findable(self) -> float | None:
        """The least total variation of a drift, in any view, that half of the time is found."""
        known = (verdict.findable for verdict in self.verdicts)
        return min((least for least in known if least is not None), default=None)

    @property
    def drifted(self) -> bool | None:
        """Whether drift was found, in the whole or in any column; None where nothing can tell."""
        return DRIFTED.get(self.outcome)

    @property
    def drifted_columns(self) -> tuple[str, ...]:
        """The names of the columns, and pairs of columns, that have drifted."""
        return tuple(column.name for column in self.columns if column.drifted)

    @property
    def value(self) -> float:
        """The estimate of the first answer; refused if only columns were asked."""
        if not self.answers:
            raise InvalidInputError("Only columns were asked, so the whole has no value.")
        return self.answers[0].value

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the first answer, where there is one."""
        return self.answers[0].interval if self.answers else None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the content."""
        return digest(self._content())

    def __repr__(self) -> str:
        return (
            f"<Release about {self.population!r} of {self.released_at[:10]}: "
            f"{self.outcome or 'no verdict'}, epsilon {self.privacy.claimed_epsilon or 0:.3g}>"
        )

    def to_bytes(self) -> bytes:
        """As it travels."""
        return canonical(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"release": self._content(), "signer": self.signer, "signature": self.signature}

    def _content(self) -> dict[str, Any]:
        """What the signature is about."""
        if self.as_read:
            return parse_document(self.as_read, "release")
        names = (each.name for each in fields(self) if each.init and each.name not in SIGNED_BY)
        return FORMAT.head | {name: to_plain(getattr(self, name)) for name in names}

    @classmethod
    def from_bytes(cls, data: str | bytes) -> "Release":
        """The release in a message or a file; `is_signed_by` says whether it is genuine."""
        match parse_document(data, "release"):
            case {"release": content, "signer": str(signer), "signature": str(signature), **rest}:
                if not rest:
                    return _read(content, signer, signature)
        raise InvalidInputError(
            "This is not a fedprikl release: release, signer and signature are needed, and "
            "nothing else."
        )

    @classmethod
    def load(cls, path: str | Path) -> "Release":
        """The release of a file."""
        content = read_file(path, "release")
        with named(path):
            return cls.from_bytes(content)


def _read(content: Any, signer: str, signature: str) -> Release:
    """The release that writes exactly this content: it has no other fields and no other words."""
    if not isinstance(content, dict):
        raise InvalidInputError("This is not a fedprikl release.")
    current = FORMAT.current(content)
    found = read_fields(Release, current | {"signer": signer, "signature": signature})
    check_written(current, found._content(), "release")
    if current is not content:
        object.__setattr__(found, "as_read", canonical(content))
    return found


def own_releases(folder: Path, public: str) -> list[Release]:
    """The releases of a folder that this key signed.

    Whatever else lies there is passed over: a damaged file stops no round.
    """
    found: list[Release] = []
    for path in sorted(folder.glob("*.json")):
        with suppress(Exception):  # anybody may have put anything there
            release = Release.load(path)
            if release.is_signed_by(public):
                found.append(release)
    return found


def newest_head(folder: Path, public: str) -> Head | None:
    """The newest head of a ledger in the releases of a folder; None if there is none."""
    heads = (release.ledger for release in own_releases(folder, public))
    return max(filter(None, heads), key=lambda head: head.count, default=None)
