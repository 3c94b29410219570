"""A client's records: a source that can be counted, wherever it lies. Stays with the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import narwhals.stable.v2 as nw
import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import RecordsError
from fedprikl.federation.counting import count_file
from fedprikl.federation.data_files import DataFile, data_files, quoted_names, session
from fedprikl.reference import BlockCode, Indices, Reference, Table
from fedprikl.reference.columns import UNSEEN, as_numbers
from fedprikl.reference.domain import eager_frame

__all__ = ["FileRecords", "FrameRecords", "RecordCounts", "Records", "open_records"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordCounts:
    """How a client's records fall into the cells. Secret: it never leaves the client unmasked."""

    counts: Ints  # h(x) per cell, "other" last
    unknown: Mapping[str, int] = field(default_factory=dict)  # per column; for the owner only

    @property
    def total(self) -> int:
        """Number of records; none is ever lost."""
        return int(self.counts.sum())

    @property
    def other(self) -> int:
        """Records the reference has no cell for.

        `unknown` says for how many of them a column holds a value the reference does not know (a
        record may be unknown by several columns); the rest are combinations it never saw.
        """
        return int(self.counts[-1])

    def __repr__(self) -> str:
        return f"RecordCounts({len(self.counts)} cells, counts not shown)"


class Records(Protocol):
    """Anything that can count its records into a reference's cells."""

    def count(self, reference: Reference) -> RecordCounts:
        """h(x) for every cell x. Runs at the client."""
        ...


@dataclass(frozen=True, slots=True)
class FileRecords:
    """Records in a CSV or Parquet file, or in all such files of a folder.

    Read in one streaming pass by duckdb within 512 MB of memory, however large the files. A CSV
    file is UTF-8 text with commas and a first line of names; its empty fields, and NaN and nan,
    are missing values; everything else is compared as in a data frame.
    """

    path: Path

    def count(self, reference: Reference) -> RecordCounts:
        """h(x) for every cell x; equal to `reference.count` of the same rows in a data frame."""
        counts = np.zeros(reference.domain.size, dtype=np.int64)
        unknown: dict[str, int] = {}
        with session() as connection:
            files = [DataFile.open(path, connection) for path in data_files(self.path)]
            _check_same_columns(files)
            for file in files:
                of_file, unknown_of_file = count_file(file, reference.domain, connection)
                counts += of_file
                for name, rows in unknown_of_file.items():
                    unknown[name] = unknown.get(name, 0) + rows
        return RecordCounts(counts, unknown)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FrameRecords:
    """Records in memory: a data frame (pandas, polars, pyarrow, ...), or an array.

    An array holds cell numbers or images, as the reference has them.
    """

    records: Any

    def count(self, reference: Reference) -> RecordCounts:
        """h(x) for every cell x."""
        domain = reference.domain
        is_frame = nw.from_native(self.records, pass_through=True) is not self.records
        match domain.encoder:
            case Table() as table:
                levels = table.encode_columns(self.records)
                cells = domain.cells_of(table.combine(levels))
                unknown = {
                    column.name: int(np.count_nonzero(of_column == UNSEEN))
                    for column, of_column in zip(table.columns, levels, strict=True)
                }
            case Indices() as indices if is_frame:
                codes, name = _cell_numbers(self.records, indices)
                cells = domain.cells_of(codes)
                unknown = {name: int(np.count_nonzero(codes == UNSEEN))}
            case BlockCode() if is_frame:
                raise RecordsError(
                    "The reference is of images, and these records are a data frame. Pass the "
                    "images as an array, or use a reference built from a table."
                )
            case _:
                cells, unknown = domain.encode(self.records), {}
        return RecordCounts(np.bincount(cells, minlength=domain.size).astype(np.int64), unknown)

    def __repr__(self) -> str:
        return f"FrameRecords({type(self.records).__name__}, records not shown)"


def open_records(source: Any) -> Records:
    """Records from a path (file or folder), a data frame or an array; a bad path is refused here.

    >>> open_records([0, 1, 1]).count(Reference.from_counts([5, 5])).counts.tolist()
    [1, 2, 0]
    """
    if isinstance(source, str | Path):
        data_files(Path(source))
        return FileRecords(Path(source))
    return FrameRecords(source)


def _check_same_columns(files: list[DataFile]) -> None:
    """Files of one folder must have the same columns, in any order."""
    first = files[0]
    for file in files[1:]:
        if set(file.names) != set(first.names):
            raise RecordsError(
                f"{first.path} and {file.path} disagree in their columns: the first has "
                f"{quoted_names(first.names)}, the second {quoted_names(file.names)}. Put only "
                "files of one kind into a folder."
            )


def _cell_numbers(records: Any, indices: Indices) -> tuple[Ints, str]:
    frame = eager_frame(records)
    if "cell" not in frame.columns and len(frame.columns) != 1:
        raise RecordsError(
            "Records of this reference are cell numbers, but the data frame has no column 'cell' "
            f"among {quoted_names(frame.columns)}. Name the column with the numbers 'cell'."
        )
    name = "cell" if "cell" in frame.columns else frame.columns[0]
    numbers, _ = as_numbers(frame[name])
    known = (numbers >= 0) & (numbers < indices.size) & (numbers == np.floor(numbers))
    return np.where(known, numbers, UNSEEN).astype(np.int64), name
