"""A client's records of one period: selected by when they happened, or first arrived; counted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedprikl.records.arrivals import Part, Seen, arrivals, can_grow, finished
from fedprikl.records.counting import CellReader, RecordCounts
from fedprikl.records.data_files import (
    Chunk,
    CsvFormat,
    DataFile,
    data_files,
    open_file,
    require_columns,
)
from fedprikl.records.drawing import Draw
from fedprikl.records.time_slices import TimeSlice
from fedprikl.reference import Reference

__all__ = ["PeriodRecords", "check_times", "count_parts", "select_period"]


@dataclass(frozen=True, slots=True)
class PeriodRecords:
    """The parts of a client's files that belong to a period, each with the times it may have."""

    parts: tuple[tuple[Part, TimeSlice | None], ...]
    new: tuple[Seen, ...] = ()  # to be kept before anything is counted


def select_period(
    path: Path,
    *,
    period: int,
    own: TimeSlice | None,
    new: TimeSlice | None,
    by_arrival: bool,
    known: Sequence[Seen] = (),
    drawn: bool = False,
) -> PeriodRecords:
    """What of a client's file or folder belongs to a period.

    `own`: the times of the period itself; None: records have no times. Without `by_arrival` that
    is all, up to the last line break of a file that can grow. With it, parts that are first seen
    now count by `new` (None: all of their records), and parts that were seen before by `own`, if
    records have times, else not at all. Parts that were first seen in a later period count for none
    before: their late records are in that one. Where records are `drawn`, there may be no file.
    """
    if not by_arrival:
        files = [Part(file, 0, _end(file), period) for file in data_files(path, blank=drawn)]
        return PeriodRecords(tuple((part, own) for part in files))
    parts, arrived = arrivals(path, known, period, drawn=drawn)
    chosen = [
        (part, new if part.period == period else own)
        for part in parts
        if part.period == period or (part.period < period and own is not None)
    ]
    return PeriodRecords(tuple(chosen), tuple(arrived))


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
    opened: dict[Path, DataFile] = {}
    for part, times in records.parts:
        if part.path not in opened:
            opened[part.path] = open_file(part.path, form)
        file = opened[part.path]
        columns = reader.columns([n for n in file.names if not _is(n, times)], file.path)
        wanted = list(dict.fromkeys([*columns, *([] if times is None else [times.column])]))
        require_columns(file, wanted)
        loose = None if times is None else times.column
        for chunk in file.chunks(wanted, start=part.start, end=part.end, loose=loose):
            if times is None:
                yield chunk
            else:
                yield times.of(chunk, columns, aware=file.is_aware(times.column))


def _end(file: Path) -> int | None:
    """Of what may be counted: a line that is still being written may get another time."""
    return finished(file) if can_grow(file) else None


def _is(name: str, times: TimeSlice | None) -> bool:
    return times is not None and name == times.column
