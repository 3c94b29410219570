"""Where a dashboard finds its series, and how it keeps the answer for a moment."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from fedprikl.monitoring.metrics_text import metrics_text
from fedprikl.monitoring.status import PeriodPoint, SeriesStatus
from fedprikl.protocol import Plan, Release
from fedprikl.reporting.series_page import series_page
from fedprikl.reporting.series_period_page import period_page

__all__ = ["Kept", "SeriesSource", "Shown", "report"]


class SeriesSource(Protocol):
    """What a dashboard shows. All of it is public."""

    @property
    def plan(self) -> Plan:
        """The plan of the series."""
        ...

    def status(self) -> SeriesStatus:
        """The series as it stands now."""
        ...

    def release(self, number: int) -> bytes | None:
        """The release of a period, as it was signed; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """A status and what is made of it, each made once and only when asked for."""

    status: SeriesStatus
    _made: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """`page`, `json` or `metrics`."""
        if name not in self._made:
            self._made[name] = TEXTS[name](self.status)
        return self._made[name]

    def point(self, number: int) -> PeriodPoint | None:
        """The period, if it has a release."""
        return next((p for p in self.status.released if p.number == number), None)


TEXTS: dict[str, Callable[[SeriesStatus], str]] = {
    "page": series_page,
    "json": lambda status: json.dumps(status.to_dict(), allow_nan=False) + "\n",
    "metrics": lambda status: metrics_text([status]),
}


def report(shown: Shown, source: SeriesSource, number: int) -> str | None:
    """The report of a period; None if it has no release."""
    point = shown.point(number)
    data = None if point is None else source.release(number)
    if point is None or data is None:
        return None
    return period_page(shown.status, point, Release.from_bytes(data), source.plan)


class Kept:
    """The status of a source, read anew after some seconds. Who comes meanwhile waits for it."""

    def __init__(
        self,
        source: SeriesSource,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._seconds, self._clock = source, seconds, clock
        self._lock = Lock()
        self._shown: Shown | None = None
        self._until = 0.0

    def __call__(self) -> Shown:
        """What was read last, or what is read now. An error is not kept."""
        with self._lock:
            if self._shown is None or self._clock() >= self._until:
                self._shown = None
                self._shown = Shown(self._source.status())
                self._until = self._clock() + self._seconds
            return self._shown
