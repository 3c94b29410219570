"""What a release says: the answer to each question, and about each column."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import Answer, JudgedStatistic, NoisyCounts


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
    >>> column = ColumnAnswer(
    ...     columns=("carrier",),
    ...     statistics=(JudgedStatistic(name="tv", value=0.2, threshold=0.1, unit=""),),
    ...     answers=(),
    ...     cells=(),
    ...     counts=NoisyCounts.of([0.0], [40], [CountNoise(sd=3.0)]),
    ...     design_effect=1.0,
    ... )
    >>> column.name, column.drifted
    ('carrier', True)
    """

    columns: tuple[str, ...]  # one, or a pair
    statistics: tuple[
        JudgedStatistic, ...
    ]  # beside thresholds for all columns together; none: no verdict
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
        return any(statistic.exceeds for statistic in self.statistics) if self.statistics else None

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
