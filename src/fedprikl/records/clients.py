"""A client's records, wherever they lie: all of them, or those of a period. They stay with it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.libraries import narwhals as nw
from fedprikl.records.counting import CellReader, Draw, RecordCounts
from fedprikl.records.database import DatabaseTable, Place
from fedprikl.records.files import CsvFormat
from fedprikl.records.sources import Days, check_once, data_files, open_source
from fedprikl.reference import Reference, Table
from fedprikl.reference.columns import Values, is_plain, value_list
from fedprikl.reference.domain import OneField
from fedprikl.reference.rows import Chunk, FrameSource, Mask, Source, quoted_names
from fedprikl.reference.values import has_offset, instant, instants, simple

TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}"
PLAIN_TIMES = re.compile(f"(?:{TIME}\n)*{TIME}")


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Records in files of any kind (`data_files`) or a table: all, or those of some times.

    Read in one streaming pass in bounded memory, however large the files. In a CSV file one line
    is one record. A record that cannot be read is counted as out of the domain.
    """

    files: tuple[Place, ...]
    format: CsvFormat = field(default_factory=CsvFormat)
    times: "TimeSlice | None" = None  # of those that count

    def count(
        self, reference: Reference, draw: Draw | None = None, *, reader: CellReader | None = None
    ) -> RecordCounts:
        """h(x) for every cell x; equal to `reference.count` of the same rows in a data frame.

        With a `draw`, of k records drawn from all files together. A `reader` of the reference may
        be kept for many clients.
        """
        reader = reader or CellReader(reference)
        return reader.count(self._chunks(reader), draw)

    def open(self, reader: CellReader) -> list[tuple[Source, tuple[str, ...]]]:
        """The files, and the columns to read; refuses what cannot be counted. Reads no record."""
        sources, found = [open_source(file, self.format) for file in self.files], []
        time_column = [] if self.times is None else [self.times.column]
        if self.times is None:
            _check_same_columns(sources)
        for source in sources:
            available = [name for name in source.names if name not in time_column]
            columns = reader.columns(available, source.where)
            source.require([*columns, *time_column])
            found.append((source, columns))
        return found

    def _chunks(self, reader: CellReader) -> Iterator[Chunk]:
        times = self.times
        for source, columns in self.open(reader):
            if times is None:
                yield from source.chunks(columns)
                continue
            wanted, aware = dict.fromkeys([*columns, times.column]), source.is_aware(times.column)
            for chunk in source.chunks(list(wanted), times=times.column):
                yield times.of(chunk, columns, aware=aware)


def _check_same_columns(files: Sequence[Source]) -> None:
    """Files of one folder must have the same columns, in any order."""
    for file in files[1:]:
        if set(file.names) != set(files[0].names):
            raise RecordsError(
                f"{files[0].where} and {file.where} disagree in their columns: the first has "
                f"{quoted_names(files[0].names)}, the second {quoted_names(file.names)}. Put only "
                "files of one kind into a folder."
            )


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FrameRecords:
    """Records in memory: a data frame (pandas, polars, pyarrow, ...), or an array.

    An array holds cell numbers or images, as the reference has them.
    """

    records: Any

    def check(self, reader: CellReader, *, drawn: bool = False) -> None:
        """Refuses what cannot be counted, as far as its columns and its type tell.

        Where records are `drawn`, a frame without any columns has no records.
        """
        if isinstance(reader.encoder, OneField) and not self._is_frame:
            reader.encoder.encode(self.records[:0])
        else:
            self._chunks(reader, drawn=drawn)

    def count(
        self, reference: Reference, draw: Draw | None = None, *, reader: CellReader | None = None
    ) -> RecordCounts:
        """h(x) for every cell x; of all records, or of a draw of them."""
        reader = reader or CellReader(reference)
        return reader.count(self._chunks(reader, drawn=draw is not None), draw)

    @property
    def _is_frame(self) -> bool:
        if isinstance(self.records, list | np.ndarray):
            return False  # known without loading narwhals
        return nw.from_native(self.records, pass_through=True) is not self.records

    def _chunks(self, reader: CellReader, *, drawn: bool) -> Iterable[Chunk]:
        """All records, which are not read yet if they are a frame's."""
        encoder = reader.encoder
        if self._is_frame:
            source = FrameSource(self.records)
            if drawn and not source.names:
                return ()
            columns = reader.columns(source.names, "the data frame")
            source.require(columns)
            return source.chunks(columns)
        if isinstance(encoder, OneField):
            return [Chunk({"": encoder.separate(self.records)})]
        names = quoted_names(encoder.names) if isinstance(encoder, Table) else ""
        raise InvalidInputError(
            f"Expected a data frame with the columns {names}, got {type(self.records).__name__}."
        )

    def __repr__(self) -> str:
        return f"FrameRecords({type(self.records).__name__}, records not shown)"


Records = FileRecords | FrameRecords


def open_records(
    source: Any,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    drawn: bool = False,
) -> Records:
    """Records of a file, folder, database, data frame or array; a bad path is refused here.

    `format` says how CSV files are written. `drawn`: records will be drawn of it, so that there may
    be none at all.

    >>> open_records([0, 1, 1]).count(Reference.from_counts([5, 5])).counts.tolist()
    [1, 2, 0]
    """
    if isinstance(source, str | Path | DatabaseTable):
        place = Path(source) if isinstance(source, str) else source
        return FileRecords(data_files(place, blank=drawn), format or CsvFormat())
    return source if isinstance(source, Records) else FrameRecords(source)


def open_table(
    table: Any,
    *,
    format: CsvFormat | None = None,  # noqa: A002
) -> list[Source]:
    """The records of all clients together: a file, a folder, a data frame, or of a database.

    A file that stands in the folder twice, by a link of any kind, is refused: it counts once.
    """
    if not isinstance(table, str | Path | DatabaseTable):
        return [FrameSource(table)]
    place = Path(table) if isinstance(table, str) else table
    check_once([place], by_name=False)
    sources = [open_source(file, format or CsvFormat()) for file in data_files(place)]
    _check_same_columns(sources)
    return sources


def count_all(
    sources: Mapping[str, Any],
    reference: Reference,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    draw: Draw | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, RecordCounts]:
    """Counts the records of each client, {name: what `open_records` takes}, with one reader.

    With a `draw`, of each client k records. If files cannot be counted, one error names all their
    clients; no single record can cause that. `report` is called with each name when it is done.
    """
    counted, refused, reader = {}, {}, CellReader(reference)
    for name, source in sources.items():
        try:
            records = open_records(source, format=format, drawn=draw is not None)
            counted[name] = records.count(reference, draw, reader=reader).small()
        except RecordsError as error:
            refused[name] = str(error)
        report(name)
    if refused:
        reasons = "\n".join(f"- {name}: {reason}" for name, reason in refused.items())
        raise RecordsError(
            f"{len(refused)} of {len(sources)} clients cannot be counted:\n{reasons}"
        )
    return counted


def check_all(
    sources: Mapping[str, Place | FrameRecords],
    reference: Reference,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    drawn: bool = False,
    days: Days | None = None,
) -> dict[str, str]:
    """Which clients cannot be counted, and why, as far as headers tell.

    It reads no record, so that whom it names cannot depend on one. Where records are `drawn`, a
    client may have no files, or files with nothing in them. With `days`, only files of them.
    """
    refused, reader = {}, CellReader(reference)
    for name, source in sources.items():
        try:
            if isinstance(source, FrameRecords):
                source.check(reader, drawn=drawn)
            else:
                files = data_files(source, blank=drawn, days=days)
                FileRecords(files, format or CsvFormat()).open(reader)
        except RecordsError as error:
            refused[name] = str(error)
        except InvalidInputError as error:  # of a frame
            refused[name] = f"{name}: {error}"
    return refused


def fit_reference(
    path: str | Place,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    **options: Any,
) -> Reference:
    r"""Pi of a public file or table; the same as `Reference.fit` of its rows, with its `options`.

    A CSV has no types: a column is one of numbers if every present value is a number and none has
    a leading zero, and one of times if every present value is a date or time. The texts that stand
    for a gap become part of the reference, so that clients read their files by the same rule.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "public.csv")
    ...     _ = path.write_text("plan\nbasic\nbasic\nplus\nNA\n")
    ...     reference = fit_reference(path, bins=5)
    >>> [reference.domain.label(cell) for cell in range(reference.domain.size)]
    ['plan=basic', 'plan=plus', 'plan=missing', 'other']
    >>> reference.probabilities.tolist()
    [0.5, 0.25, 0.25, 0.0]
    """
    place = Path(path) if isinstance(path, str) else path
    file, *_ = data_files(place)
    if isinstance(place, Path) and place.is_dir():
        raise InvalidInputError(f"{path} is a folder. Give one public file.")
    return Reference.fit(open_source(file, format or CsvFormat()), **options)


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Records whose time lies between `start` and `end`, the latter excluded.

    A time without an offset is the clock of the series' `zone`, and is compared with what that
    clock shows at the limits. So every readable time lies in one of adjoining slices, also where
    clocks change. A record without a readable time lies in none.
    """

    column: str
    start: datetime
    end: datetime
    zone: str

    def of(self, chunk: Chunk, columns: Iterable[str], *, aware: bool) -> Chunk:
        """Some columns of the rows that lie inside. `aware`: times of an array are instants.

        A line that cannot be read has the time that stands in it, if one does: whatever else it
        holds, it counts in its period.
        """
        inside = self.inside(chunk.columns[self.column], aware=aware)
        broken = [
            place
            for place, (_, fields) in enumerate(zip(chunk.unreadable, chunk.loose, strict=True))
            if self.inside([_first_time(fields)], aware=False)[0]
        ]
        numbers = [chunk.unreadable[place] for place in broken]
        lines = [chunk.lines[place] for place in broken] if chunk.lines else ()
        return Chunk(chunk.taken(inside, columns), numbers, lines=lines)

    def inside(self, values: Values, *, aware: bool) -> Mask:
        """For each value, whether it is a time inside."""
        limits, clocks = self._limits(), self._limits(ZoneInfo(self.zone))
        if isinstance(values, np.ndarray) and values.dtype.kind == "M":
            start, end = limits if aware else clocks
            moments = instants(values)
            return np.asarray(~np.isnat(values) & (start <= moments) & (moments < end))
        listed = value_list(values)
        plain = _plain_times(listed)
        if plain is not None:
            return np.asarray((clocks[0] <= plain) & (plain < clocks[1]))

        def is_inside(value: Any) -> bool:
            moment, aware_one = _moment(value)
            start, end = limits if aware_one else clocks
            return moment is not None and start <= moment < end

        decide = cache(is_inside) if is_plain(listed) else is_inside
        return np.fromiter(map(decide, listed), np.bool_, len(listed))

    def _limits(self, zone: ZoneInfo | None = None) -> tuple[int, int]:
        """In microseconds since 1970; or what clocks of a zone show then, as if it were UTC."""
        start, end = (
            at if zone is None else at.astimezone(zone).replace(tzinfo=UTC)
            for at in (self.start, self.end)
        )
        return _microseconds(start), _microseconds(end)


def _plain_times(values: Sequence[Any]) -> Ints | None:
    """Microseconds of texts that all look like 2027-01-04T12:30:00; None if any does not.

    Many times as fast as one by one, with the same result.
    """
    if set(map(type, values)) != {str} or not PLAIN_TIMES.fullmatch("\n".join(values)):
        return None
    try:
        return instants(np.array(values, dtype="datetime64[s]"))
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
