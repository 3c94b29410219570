"""A client's records: a source that can be counted, wherever it lies. Stays with the client."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import narwhals.stable.v2 as nw

from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records.counting import CellReader, Draw, RecordCounts
from fedprikl.records.data_files import (
    Chunk,
    CsvFormat,
    DataFile,
    Days,
    data_files,
    open_file,
    quoted_names,
    require_columns,
)
from fedprikl.reference import Reference, Table
from fedprikl.reference.frames import column_values, eager_frame

__all__ = [
    "CountedClients",
    "FileRecords",
    "FrameRecords",
    "RecordCounts",
    "Records",
    "check_all",
    "count_all",
    "open_records",
]


class Records(Protocol):
    """Anything that can count its records into a reference's cells."""

    def count(self, reference: Reference, draw: Draw | None = None) -> RecordCounts:
        """h(x) for every cell x; of all records, or of a draw of them. Runs at the client."""
        ...


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Records in a CSV or Parquet file, or in all such files of a folder.

    Read in one streaming pass in bounded memory, however large the files. In a CSV file one line
    is one record. A record that cannot be read is counted as "other".
    """

    path: Path
    format: CsvFormat = field(default_factory=CsvFormat)

    def count(self, reference: Reference, draw: Draw | None = None) -> RecordCounts:
        """h(x) for every cell x; equal to `reference.count` of the same rows in a data frame.

        With a `draw`, of k records drawn from all files together.
        """
        return _count_files(self.path, CellReader(reference), self.format, draw)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FrameRecords:
    """Records in memory: a data frame (pandas, polars, pyarrow, ...), or an array.

    An array holds cell numbers or images, as the reference has them.
    """

    records: Any

    def check(self, reference: Reference, *, drawn: bool = False) -> None:
        """Refuses what cannot be counted, as far as its columns and its type tell.

        Where records are `drawn`, a frame without any columns has no records.
        """
        if self._is_array(reference):
            reference.domain.encoder.read(self.records[:0])
            return
        frame = eager_frame(self.records)
        if not (drawn and _is_bare(frame)):
            self._columns(frame, CellReader(reference))

    def count(self, reference: Reference, draw: Draw | None = None) -> RecordCounts:
        """h(x) for every cell x; of all records, or of a draw of them."""
        reader = CellReader(reference)
        if self._is_array(reference):
            return reader.count_array(self.records, draw)
        frame = eager_frame(self.records)
        if draw is not None and _is_bare(frame):
            return reader.count([], draw)
        names = self._columns(frame, reader)
        return reader.count([Chunk({name: column_values(frame[name]) for name in names})], draw)

    def _is_array(self, reference: Reference) -> bool:
        is_frame = nw.from_native(self.records, pass_through=True) is not self.records
        encoder = reference.domain.encoder
        if not is_frame and isinstance(encoder, Table):
            raise InvalidInputError(
                f"Expected a data frame with the columns {quoted_names(encoder.names)}, got "
                f"{type(self.records).__name__}."
            )
        return not is_frame

    def _columns(self, frame: "nw.DataFrame[Any]", reader: CellReader) -> tuple[str, ...]:
        names = reader.columns(frame.columns, "the data frame")
        lacking = [name for name in names if name not in frame.columns]
        if lacking:
            raise RecordsError(
                f"The data frame has no column {quoted_names(lacking)}, which the reference uses; "
                f"it has {quoted_names(frame.columns)}."
            )
        return names

    def __repr__(self) -> str:
        return f"FrameRecords({type(self.records).__name__}, records not shown)"


def _is_bare(frame: "nw.DataFrame[Any]") -> bool:
    """Whether it has neither columns nor rows."""
    return not frame.columns


@dataclass(frozen=True, slots=True, repr=False)
class CountedClients:
    """What became of many clients' files: counted, or refused with a reason. Stays here."""

    counted: Mapping[str, RecordCounts]
    refused: Mapping[str, str]  # only for what no single record can cause

    def require_all(self) -> Mapping[str, RecordCounts]:
        """The counts of every client; if any was refused, one error that names them all."""
        if self.refused:
            reasons = "\n".join(f"- {name}: {reason}" for name, reason in self.refused.items())
            total = len(self.counted) + len(self.refused)
            raise RecordsError(
                f"{len(self.refused)} of {total} clients cannot be counted:\n{reasons}"
            )
        return self.counted

    def __repr__(self) -> str:
        return f"CountedClients({len(self.counted)} counted, {len(self.refused)} refused)"


def open_records(
    source: Any,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    drawn: bool = False,
) -> Records:
    """Records from a path (file or folder), a data frame or an array; a bad path is refused here.

    `format` says how CSV files are written. `drawn`: records will be drawn of it, so that there may
    be none at all.

    >>> open_records([0, 1, 1]).count(Reference.from_counts([5, 5])).counts.tolist()
    [1, 2, 0]
    """
    if isinstance(source, str | Path):
        data_files(Path(source), blank=drawn)
        return FileRecords(Path(source), format or CsvFormat())
    return FrameRecords(source)


def count_all(
    sources: Mapping[str, str | Path],
    reference: Reference,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    draw: Draw | None = None,
    report: Callable[[str], None] | None = None,
) -> CountedClients:
    """Counts the file or folder of each client, {name: path}, with one reader for all of them.

    With a `draw`, of each client k records. A client that cannot be counted does not stop the
    others. `report` is called with each name when its file is done.
    """
    counted, refused = {}, {}
    reader, form = CellReader(reference), format or CsvFormat()
    for name, path in sources.items():
        try:
            counted[name] = _count_files(Path(path), reader, form, draw)
        except RecordsError as error:
            refused[name] = str(error)
        if report is not None:
            report(name)
    return CountedClients(counted, refused)


def check_all(
    sources: Mapping[str, str | Path],
    reference: Reference,
    *,
    format: CsvFormat | None = None,  # noqa: A002
    drawn: bool = False,
    days: Days | None = None,
) -> dict[str, str]:
    """Which clients' files cannot be counted, and why, as far as their headers tell.

    It reads no record, so that whom it names cannot depend on one. Where records are `drawn`, a
    client may have no files, or files with nothing in them. With `days`, only files of them.
    """
    refused = {}
    reader = CellReader(reference)
    for name, path in sources.items():
        try:
            _open_files(Path(path), reader, format or CsvFormat(), drawn=drawn, days=days)
        except RecordsError as error:
            refused[name] = str(error)
    return refused


def _count_files(
    path: Path, reader: CellReader, form: CsvFormat, draw: Draw | None
) -> RecordCounts:
    files, columns = _open_files(path, reader, form, drawn=draw is not None)
    return reader.count(chain.from_iterable(file.chunks(columns) for file in files), draw)


def _open_files(
    path: Path, reader: CellReader, form: CsvFormat, *, drawn: bool, days: Days | None = None
) -> tuple[list[DataFile], tuple[str, ...]]:
    """The files of one client, and the columns to read."""
    files = [open_file(file, form) for file in data_files(path, blank=drawn, days=days)]
    if not files:
        return [], ()
    _check_same_columns(files)
    columns = reader.columns(files[0].names, files[0].path)
    for file in files:
        require_columns(file, columns)
    return files, columns


def _check_same_columns(files: Sequence[DataFile]) -> None:
    """Files of one folder must have the same columns, in any order."""
    first = files[0]
    for file in files[1:]:
        if set(file.names) != set(first.names):
            raise RecordsError(
                f"{first.path} and {file.path} disagree in their columns: the first has "
                f"{quoted_names(first.names)}, the second {quoted_names(file.names)}. Put only "
                "files of one kind into a folder."
            )
