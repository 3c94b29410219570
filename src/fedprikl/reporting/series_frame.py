"""Where things stand in the charts of a series: periods across, values up."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedprikl.monitoring.status import PeriodPoint, SeriesStatus
from fedprikl.monitoring.words import day, period_name, short_day

__all__ = ["Frame", "Scale", "file_of"]

TICKS = 3  # dates below a chart: as many as a phone has room for
BENT = 6.0  # thresholds: beyond, a linear scale would press the threshold to the ground


def file_of(number: int) -> str:
    """The name of a period's report, beside the page of its series.

    >>> file_of(23)
    'periods/0023.html'
    """
    return f"periods/{number:04d}.html"


@dataclass(frozen=True, slots=True)
class Frame:
    """The periods of a chart, from the first to the last that is over."""

    points: tuple[PeriodPoint, ...]
    every: str

    @classmethod
    def of(cls, status: SeriesStatus) -> "Frame":
        """All periods that are over; what is due stands at the end, without a value."""
        return cls(tuple(p for p in status.points if p.state != "ahead"), status.every)

    def __len__(self) -> int:
        return len(self.points)

    def place(self, number: int) -> float:
        """The left side of a period, in periods from the left side of the chart."""
        return min(max(number - self.points[0].number, 0), len(self.points) - 1)

    def middle(self, place: float) -> float:
        """The middle of the period at this place, in percent of the width."""
        return 100 * (place + 0.5) / len(self.points)

    def name(self, point: PeriodPoint) -> str:
        """The period and its first day, for people."""
        return f"{period_name(point.number, self.every)}, {day(point.start)}"

    def ticks(self) -> Iterator[tuple[float, str, str]]:
        """Dates below a chart: place in percent, anchor, words."""
        many = min(TICKS, len(self.points))
        if many == 1:
            yield 50.0, "middle", short_day(self.points[0].start)
            return
        for n in range(many):
            place = round(n * (len(self.points) - 1) / (many - 1))
            anchor = "start" if n == 0 else "end" if n == many - 1 else "middle"
            at = 0.0 if n == 0 else 100.0 if n == many - 1 else self.middle(place)
            yield at, anchor, short_day(self.points[place].start)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values up a chart: linear, or by square roots where a threshold would lie on the ground."""

    low: float
    high: float
    bent: bool = False

    @classmethod
    def of(cls, values: Sequence[float], threshold: float | None = None) -> "Scale":
        """The scale that shows all values, zero and the threshold."""
        known = [*values, *([] if threshold is None else [threshold])]
        finite = [value for value in known if math.isfinite(value)]
        high, low = max([*finite, 0.0]), min([*finite, 0.0])
        high = high * 1.08 if high > 0 else 1.0
        bent = threshold is not None and 0 < BENT * threshold < high
        return cls(max(low, -high), high, bent)

    def height(self, value: float) -> float:
        """From 0 at the bottom to 1 at the top."""
        inside = min(max(value, self.low), self.high)
        bottom, top = self._bend(self.low), self._bend(self.high)
        return (self._bend(inside) - bottom) / (top - bottom)

    def _bend(self, value: float) -> float:
        return math.copysign(math.sqrt(abs(value)), value) if self.bent else value

    def ticks(self) -> list[float]:
        """Round values, far enough from each other to be read."""
        if self.bent:
            return [0.0, _round(self.high / 20), _round(self.high / 5), _round(self.high / 1.1)]
        step = _round((self.high - self.low) / 3)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, first + 8) if self.low <= n * step <= self.high]


def _round(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is no larger."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in (5, 2, 1) if n * power <= value * (1 + 1e-9))
