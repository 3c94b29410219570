"""Made-up series behind a dashboard."""

from dataclasses import dataclass, replace

from fedprikl.errors import LedgerDamagedError
from fedprikl.monitoring.status import SeriesStatus
from fedprikl.protocol import Plan
from tests.reporting.releases import PLAN, release, two_of_six

# Of a series: without a verdict of its own, columns without statistics.
RELEASE = release(
    tuple(replace(column, verdict=None) for column in two_of_six()), verdict=None
).to_bytes()


@dataclass
class Source:
    """A series in memory; `asked` counts how often its status was read."""

    shown: SeriesStatus
    asked: int = 0
    unreadable: bool = False
    lacking: frozenset[int] = frozenset()

    @property
    def plan(self) -> Plan:
        return PLAN

    def status(self) -> SeriesStatus:
        self.asked += 1
        if self.unreadable:
            raise LedgerDamagedError("The history at /srv/secret/history.db was edited.")
        return self.shown

    def release(self, number: int) -> bytes | None:
        known = {point.number for point in self.shown.released} - self.lacking
        return RELEASE if number in known else None
