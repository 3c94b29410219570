"""A client's records of one period, told by their times or by the names of files; counted."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedprikl.errors import RecordsError
from fedprikl.records.counting import CellReader, RecordCounts
from fedprikl.records.data_files import Chunk, CsvFormat, data_files, open_file, require_columns
from fedprikl.records.drawing import Draw
from fedprikl.records.time_slices import TimeSlice
from fedprikl.reference import Reference

__all__ = ["PeriodRecords", "check_times", "count_parts"]

BLOCK = 2**20


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
