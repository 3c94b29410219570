"""A client's records of one period, told by their times or by the names of files; counted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import RecordsError
from fedprikl.records.counting import CellReader, Draw, RecordCounts
from fedprikl.records.csv_files import Chunk, Mask
from fedprikl.records.data_files import CsvFormat, data_files, open_file, require_columns
from fedprikl.reference import Reference
from fedprikl.reference.columns import Values, value_list
from fedprikl.reference.values import has_offset, instant, instants, simple

EARLIEST, LATEST = -(2**63), 2**63 - 1
PLAIN = "0000-00-00T00:00:00"
BLOCK = 2**20


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
            if self.inside([_first_time(fields)], aware=False)[0]
        ]
        return Chunk(chunk.taken(inside, columns), broken)

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
            moment, aware_one = _moment(value)
            start, end = limits if aware_one else clocks
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


def _moment(value: Any) -> tuple[int | None, bool]:
    """Microseconds since 1970, if it is a time, and whether it has an offset of its own."""
    found = simple(value)
    return instant(found), has_offset(found) if isinstance(found, str) else _is_aware(value)


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


@dataclass(frozen=True, slots=True)
class PeriodRecords:
    """The files with a client's records of a period, and the times of those that count.

    Without `times`, all of them count: the names of the files say their period.
    """

    files: tuple[Path, ...]
    times: TimeSlice | None


def count_parts(
    clients: Mapping[str, PeriodRecords],
    reference: Reference,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    draw: Draw | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, RecordCounts]:
    """The counts of each client's records of a period. Cost: the files are read once.

    With a `draw`, of k records of the period, drawn anew for every period.
    """
    reader, counted = CellReader(reference), {}
    for name, records in clients.items():
        counted[name] = reader.count(_chunks(records, reader, format or CsvFormat()), draw)
        report(name)
    return counted


def check_times(
    path: Path,
    column: str,
    format: CsvFormat | None = None,  # noqa: A002
    *,
    drawn: bool = False,
) -> None:
    """Refuses files without the column of times, as far as their headers tell."""
    for file in data_files(path, blank=drawn):
        require_columns(open_file(file, format or CsvFormat()), [column])


def _chunks(records: PeriodRecords, reader: CellReader, form: CsvFormat) -> Iterator[Chunk]:
    times = records.times
    for path in records.files:
        file = open_file(path, form)
        time_column = [] if times is None else [times.column]
        columns = reader.columns([n for n in file.names if n not in time_column], path)
        wanted = list(dict.fromkeys([*columns, *time_column]))
        require_columns(file, wanted)
        if times is None:
            yield from file.chunks(wanted)
            continue
        for chunk in file.chunks(wanted, end=_finished(path), loose=times.column):
            yield times.of(chunk, columns, aware=file.is_aware(times.column))


def _finished(file: Path) -> int | None:
    """Where the last line of a plain CSV file ends; None: all of a file that is not one.

    A line that is still being written may get another time.
    """
    if not file.name.lower().endswith(".csv"):
        return None
    try:
        with file.open("rb") as stream:
            end = file.stat().st_size
            while end > 0:
                start = max(end - BLOCK, 0)
                stream.seek(start)
                place = stream.read(end - start).rfind(b"\n")
                if place >= 0:
                    return start + place + 1
                end = start
            return 0
    except OSError as error:
        raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None
