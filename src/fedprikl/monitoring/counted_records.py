"""Which of a client's records a release counts, and whether two releases may share a record."""

from dataclasses import dataclass
from typing import Self

from fedprikl.documents import canonical, digest
from fedprikl.errors import InvalidInputError
from fedprikl.monitoring.period_selection import takes_arrivals
from fedprikl.protocol import Plan

__all__ = ["CountedRecords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRecords:
    """The records of one count: those of some times, those that were first seen then, or all.

    Limits of time are comparable only if they are about the same column, read by the same zone's
    clock. By arrival, the parts of files that were seen before are known, but only to the series of
    one organiser and population (`line`).
    """

    population: str
    organiser: str = ""  # public key of who signed the plan
    series: str = ""  # digest of where its periods begin; empty: the plan has no series
    arrival: bool = False  # whether what is counted depends on when it was first seen
    clock: str = ""  # column and zone of the limits; empty: times are no limit
    first: float = 0.0  # the earliest time that is counted, in seconds; by arrival, of new parts
    start: float = 0.0  # of the period itself: what is counted of parts that were seen before
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
        arrival, own = takes_arrivals(series), series.period(period)
        earliest = series.period(0) if arrival else series.counted_by(period)
        clock = canonical([series.time_column, series.zone]).decode() if series.has_times else ""
        return cls(
            population=plan.population,
            organiser=organiser,
            series=digest(content),
            arrival=arrival,
            clock=clock,
            first=earliest.start.timestamp(),
            start=own.start.timestamp(),
            end=own.end.timestamp(),
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
        if self.arrival and before.arrival and self.line == before.line:
            if self.series == before.series:
                return self.end == before.end
            return self.clock != "" and self._meets(self.start, before)
        return self._meets(self.first, before)

    def _meets(self, start: float, before: Self) -> bool:
        if not self.clock or self.clock != before.clock:
            return True
        return start < before.end and before.first < self.end
