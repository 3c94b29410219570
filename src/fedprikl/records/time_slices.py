"""Which records belong to a period: decided by each record's own time, and by nothing else."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints
from fedprikl.records.csv_files import Chunk
from fedprikl.reference.columns import Values, value_list
from fedprikl.reference.values import instant, instants, simple

__all__ = ["TimeSlice"]

OFFSET = re.compile(r"\d(Z|[+-]\d\d(:?\d\d){0,2})\s*$", re.IGNORECASE)  # of a time, not of a day
DAY = re.compile(r"\s*\d{4}-?\d\d-?\d\d\s*$")
EARLIEST, LATEST = -(2**63), 2**63 - 1
PLAIN = "0000-00-00T00:00:00"
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

        A line that cannot be read has no time.
        """
        inside = self.inside(chunk.columns[self.column], aware=aware)
        return Chunk({name: _taken(chunk.columns[name], inside) for name in columns})

    def inside(self, values: Values, *, aware: bool) -> Mask:
        """For each value, whether it is a time inside."""
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            start, end = self._limits if aware else self._clocks
            moments = instants(values)
            return np.asarray(~np.isnat(values) & (start <= moments) & (moments < end))
        listed, clocks = value_list(values), self._clocks
        plain = _plain_times(listed)
        if plain is not None:
            return np.asarray((clocks[0] <= plain) & (plain < clocks[1]))
        limits, known = self._limits, dict[str, bool]()
        found = np.zeros(len(listed), dtype=bool)
        for i, value in enumerate(listed):
            if isinstance(value, str) and value in known:
                found[i] = known[value]
                continue
            start, end = limits if _has_offset(value) else clocks
            moment = instant(simple(value))
            found[i] = moment is not None and start <= moment < end
            if isinstance(value, str):
                known[value] = bool(found[i])
        return found

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


def _plain_times(values: Sequence[Any]) -> Ints | None:
    """Microseconds of texts that all look like 2027-01-04T12:30:00; None if any does not.

    Many times as fast as one by one, with the same result.
    """
    if not values or not all(type(v) is str and len(v) == len(PLAIN) for v in values):
        return None
    texts = np.array(values, dtype=f"<U{len(PLAIN)}")
    signs = texts.view(np.uint32).reshape(len(texts), -1)
    for place, sign in enumerate(PLAIN):
        if sign == "0":
            right = (signs[:, place] >= ord("0")) & (signs[:, place] <= ord("9"))
        elif sign == "T":
            right = (signs[:, place] == ord("T")) | (signs[:, place] == ord(" "))
        else:
            right = signs[:, place] == ord(sign)
        if not right.all():
            return None
    try:
        return instants(texts.astype("datetime64[s]"))
    except ValueError:  # a thirteenth month
        return None


def _has_offset(value: Any) -> bool:
    if isinstance(value, str):
        return DAY.match(value) is None and OFFSET.search(value) is not None
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
