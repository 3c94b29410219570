"""Which records belong to a period: decided by each record's own time, and by nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from fedprikl.records.csv_files import Chunk
from fedprikl.reference.columns import Values, value_list
from fedprikl.reference.values import has_offset, instant, instants, simple

__all__ = ["TimeSlice"]

EARLIEST, LATEST = -(2**63), 2**63 - 1
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Records whose time lies between `start` and `end`, the latter excluded; None: no limit.

    A time without an offset is the clock of the series' `zone`, and is compared with what that
    clock shows at the limits. So every readable time lies in one of adjoining slices, also where
    clocks change. A record without a readable time lies in none.
    """

    column: str
    start: datetime | None
    end: datetime
    zone: str

    def of(self, chunk: Chunk, columns: Iterable[str], *, aware: bool) -> Chunk:
        """Some columns of the rows that lie inside. `aware`: times of an array are instants.

        A line that cannot be read has the time that stands in it, if one does: whatever else it
        holds, it counts in its period.
        """
        inside = self.inside(chunk.columns[self.column], aware=aware)
        broken = [
            number
            for number, fields in zip(chunk.unreadable, chunk.loose, strict=True)
            if self._holds(_first_time(fields))
        ]
        return Chunk({name: _taken(chunk.columns[name], inside) for name in columns}, broken)

    def inside(self, values: Values, *, aware: bool) -> Mask:
        """For each value, whether it is a time inside."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            start, end = self._limits if aware else self._clocks
            moments = instants(values)
            return np.asarray(~np.isnat(values) & (start <= moments) & (moments < end))
        known: dict[Any, bool] = {}
        found = np.zeros(len(values), dtype=bool)
        for i, value in enumerate(value_list(values)):
            if isinstance(value, str):
                if value not in known:
                    known[value] = self._holds(value)
                found[i] = known[value]
            else:
                found[i] = self._holds(value)
        return found

    def _holds(self, value: Any) -> bool:
        found = simple(value)
        moment = instant(found)
        if moment is None:
            return False
        aware = has_offset(found) if isinstance(found, str) else _is_aware(value)
        start, end = self._limits if aware else self._clocks
        return start <= moment < end

    @property
    def _limits(self) -> tuple[int, int]:
        """In microseconds since 1970."""
        return (EARLIEST if self.start is None else _microseconds(self.start)), _microseconds(
            self.end
        )

    @property
    def _clocks(self) -> tuple[int, int]:
        """What the clocks of the zone show at the limits, written as if it were UTC."""
        zone = ZoneInfo(self.zone)

        def shown(at: datetime) -> int:
            return _microseconds(at.astimezone(zone).replace(tzinfo=UTC))

        return (EARLIEST if self.start is None else shown(self.start)), shown(self.end)


def _first_time(fields: Iterable[str]) -> str | None:
    return next((text for text in fields if instant(text) is not None), None)


def _is_aware(value: Any) -> bool:
    try:
        return isinstance(value, datetime) and value.utcoffset() is not None
    except Exception:  # a time zone of whatever kind
        return False


def _microseconds(at: datetime) -> int:
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds


def _taken(values: Values, inside: Mask) -> Values:
    if isinstance(values, np.ndarray):
        return values[inside]
    return list(compress(value_list(values), inside.tolist()))
