"""Which of a client's records a release counts, and whether two releases may share a record."""

from dataclasses import dataclass
from typing import Self

from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan

__all__ = ["CountedRecords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRecords:
    """The records of one count: those of some times, or all.

    Limits of time are comparable only if they are about the same column, read by the same zone's
    clock, or both about names of files.
    """

    population: str
    organiser: str = ""  # public key of who signed the plan
    series: str = ""  # digest of where its periods begin; empty: the plan has no series
    clock: str = ""  # what tells the time of a record; empty: times are no limit
    first: float = 0.0  # the earliest time that is counted, in seconds
    end: float = 0.0

    @classmethod
    def of(cls, plan: Plan, period: int | None, *, organiser: str) -> Self:
        """What a round of the plan counts; of a series, in a period."""
        series = plan.series
        if series is None:
            return cls(population=plan.population, organiser=organiser)
        if period is None:
            raise InvalidInputError("A round of a series counts the records of one period.")
        content = series.to_dict()
        for name in ("periods", "window"):  # neither moves a period
            del content[name]
        counted = series.counted_by(period)
        return cls(
            population=plan.population,
            organiser=organiser,
            series=digest(content),
            clock=series.clock,
            first=counted.start.timestamp(),
            end=counted.end.timestamp(),
        )

    @property
    def line(self) -> tuple[str, str]:
        """Whose plans for whom."""
        return self.organiser, self.population

    def is_period_of(self, other: Self) -> bool:
        """Whether both are about the same period of a population."""
        both = self.series != "" != other.series
        return both and (self.population, self.end) == (other.population, other.end)

    def may_share(self, before: Self) -> bool:
        """Whether a record that was counted before may be counted here again."""
        if not self.clock or self.clock != before.clock:
            return True
        return self.first < before.end and before.first < self.end
