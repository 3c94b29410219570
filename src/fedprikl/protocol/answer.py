"""What a release says: the answer to each question, and about each column."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts, Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of one divergence between the reference Pi and the records P of the clients.

    `value` estimates `target`, as D(Pi || (1 - s) P + s Pi) for a skew of s, and `interval` is
    its 95% interval; `guaranteed` covers for every population, not only for those that were tried.
    All account for the noise that `mechanism` names.  [alg:sys_tagg]
    `no_drift` is what the value would be on average if nothing had drifted: few records differ from
    Pi by chance.

    >>> answer = Answer(
    ...     divergence="kl",
    ...     value=0.5,
    ...     interval=(0.25, 0.75),
    ...     no_drift=0.125,
    ...     target="D(Pi || 0.01 Pi + 0.99 P)",
    ...     unit="nats",
    ...     mechanism="Laplace noise of scale 0.2693",
    ... )
    >>> answer.value, answer.no_drift
    (0.5, 0.125)
    """

    divergence: str  # its name
    value: float
    interval: tuple[float, float] | None  # 95%; None where it is not known
    guaranteed: tuple[float, float] | None = None  # 95% for every population, where it is known
    no_drift: float | None = None  # mean of the value without drift; None where it is not known
    target: str  # the divergence as a formula, smoothing included
    unit: str
    mechanism: str  # the noise, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAnswer:
    """One category or bin of a column: its share in the reference, and among the records."""

    label: str  # what a person calls it
    reference: float  # Pi(x), a share of 1
    share: float  # of the records, from all noisy counts of the column
    interval: tuple[float, float]  # 95%, of that share
    moved: Literal["up", "down", ""] = ""  # "": cannot be told from no change


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAnswer:
    """Whether one column has drifted, by how much, and which of its cells moved. Public.

    >>> from fedprikl.estimation import CountNoise
    >>> column = ColumnAnswer(
    ...     columns=("carrier",),
    ...     witnesses=(Witness(name="tv", statistic=0.2, threshold=0.1, unit=""),),
    ...     answers=(),
    ...     cells=(),
    ...     counts=NoisyCounts.of([0.0], [40], [CountNoise(sd=3.0)]),
    ...     design_effect=1.0,
    ... )
    >>> column.name, column.drifted
    ('carrier', True)
    """

    columns: tuple[str, ...]  # one, or a pair
    witnesses: tuple[Witness, ...]  # beside thresholds for all columns together; none: no verdict
    answers: tuple[Answer, ...]  # how much: tv and kl, read off the noisy counts
    cells: tuple[CellAnswer, ...]  # in the order of the reference
    counts: NoisyCounts  # of the cells, and of records in none of them
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidInputError("An answer about columns names one or more.")

    @property
    def drifted(self) -> bool | None:
        """At the false-alarm rate over all columns; None where it could not be computed."""
        return any(witness.speaks for witness in self.witnesses) if self.witnesses else None

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
