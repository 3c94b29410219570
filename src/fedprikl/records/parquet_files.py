"""Parquet files, read by duckdb within 512 MB of memory, some rows at a time.

SQL only fetches values; what a value means is decided where data frames and CSV files are read.
Columns get positional aliases c0, c1, ..., so that no name from a file ever becomes SQL.
"""

import glob
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.errors import RecordsError
from fedprikl.libraries import duckdb
from fedprikl.records.csv_files import Chunk
from fedprikl.reference.columns import Values
from fedprikl.reference.values import Odd

__all__ = ["ParquetFile", "Session", "session"]

MEMORY_LIMIT = "512MB"
CHUNK_BYTES, FEWEST_ROWS, MOST_ROWS = 2**25, 2**11, 2**17
ARRAYS = re.compile(r"U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|BOOLEAN")
TIMESTAMPS = re.compile(r"TIMESTAMP[A-Z_ ]*")
NESTED = re.compile(r".*\]|(STRUCT|MAP|UNION|VARIANT)\b.*", re.DOTALL)
LARGEST = 2**63 - 1  # ticks of a time that duckdb takes as infinite


class Session:
    """A duckdb that is started when it is first needed, and then kept for all files."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._connection: duckdb.DuckDBPyConnection | None = None

    @property
    def connection(self) -> "duckdb.DuckDBPyConnection":
        """Stays within `MEMORY_LIMIT`, spills to a temporary folder, and loads nothing.

        Two threads, as each keeps buffers of its own. What is spilled are records, so the folder is
        for this user only, and is removed at the end.
        """
        if self._connection is None:
            spill = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fedprikl-"))
            config: dict[str, str | bool | int | float | list[str]] = {
                "memory_limit": MEMORY_LIMIT,
                "threads": 2,
                "temp_directory": spill,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
            self._connection = self._stack.enter_context(duckdb.connect(":memory:", config=config))
        return self._connection


@contextmanager
def session() -> Iterator[Session]:
    """One session for all files that are read within."""
    with ExitStack() as stack:
        yield Session(stack)


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One Parquet file: its columns, their types, and how many rows it has."""

    path: Path
    names: tuple[str, ...]
    types: tuple[str, ...] = field(repr=False)  # duckdb's
    rows: int = field(repr=False)
    row_bytes: int = field(repr=False)
    session: Session = field(repr=False)

    @classmethod
    def open(cls, path: Path, session: Session) -> "ParquetFile":
        """The file with its columns; reads its description only.

        Names come from the file's own schema, as duckdb renames an `a` beside an `A`.
        """
        with _reading(path):
            parameters = _parameters(path)
            run = session.connection.execute
            described = run(
                "DESCRIBE SELECT * FROM read_parquet($path, hive_partitioning = false)", parameters
            ).fetchall()
            schema = run(
                "SELECT name, num_children FROM parquet_schema($path)", parameters
            ).fetchall()
            (rows,) = run(
                "SELECT num_rows FROM parquet_file_metadata($path)", parameters
            ).fetchall()[0]
            (size,) = run(
                "SELECT coalesce(sum(total_uncompressed_size), 0) FROM parquet_metadata($path)",
                parameters,
            ).fetchall()[0]
        names, inside = [], 0
        for name, children in schema[1:]:  # depth first, after the root
            if inside == 0:
                names.append(name)
            inside = max(inside - 1, 0) + (children or 0)
        types = tuple(row[1] for row in described)
        return cls(path, tuple(names), types, rows, int(size) // max(rows, 1), session)

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        return self.types[self.names.index(column)].endswith("WITH TIME ZONE")

    def chunks(
        self,
        columns: Sequence[str],
        *,
        start: int = 0,  # noqa: ARG002
        end: int | None = None,  # noqa: ARG002
        loose: str | None = None,  # noqa: ARG002
    ) -> Iterator[Chunk]:
        """All rows, so many at a time that they take some 32 MB; a file has one part only."""
        places = [self.names.index(name) for name in columns]
        fetched = [_fetched(f"c{at}", self.types[at]) for at in places]
        aliases = ", ".join(f"c{i}" for i in range(len(self.names)))
        sql = (
            f"SELECT {', '.join(f'{sql} AS v{i}' for i, (sql, _) in enumerate(fetched))} FROM "  # noqa: S608  aliases only
            "read_parquet($path, hive_partitioning = false, file_row_number = true) "
            f"AS t({aliases}, row_number) WHERE row_number >= $first AND row_number < $last"
        )
        step = min(max(CHUNK_BYTES // max(self.row_bytes, 1), FEWEST_ROWS), MOST_ROWS)
        for first in range(0, self.rows, step):
            with _reading(self.path):
                found = self.session.connection.execute(
                    sql, {**_parameters(self.path), "first": first, "last": first + step}
                ).fetchnumpy()
            yield Chunk(
                {
                    name: read(found[f"v{i}"])
                    for i, (name, (_, read)) in enumerate(zip(columns, fetched, strict=True))
                }
            )


def _parameters(path: Path) -> dict[str, str]:
    # Escaped, as duckdb would take a * or [ in the name for a pattern.
    return {"path": glob.escape(str(path.absolute()))}


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turns what duckdb says about a file into our error; its own message quotes the records."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise RecordsError(
            f"Reading {file} needs more than {MEMORY_LIMIT} of memory, or more temporary disk "
            "than there is. Free some disk, or write the file with smaller row groups."
        ) from None
    except duckdb.Error:
        raise RecordsError(
            f"{file} cannot be read as Parquet. It may be damaged, cut off or of another kind; "
            "write it again."
        ) from None


def _fetched(column: str, kind: str) -> tuple[str, Callable[[Any], Values]]:
    """SQL that fetches a column, and what makes values of the array that comes back.

    Where duckdb would round in its own way, or needs other libraries, values come as texts.
    """
    if ARRAYS.fullmatch(kind):
        return column, _numbers
    if kind.startswith("DECIMAL"):
        return f"CAST({column} AS VARCHAR)", lambda array: _each(array, Decimal)
    if kind in ("HUGEINT", "UHUGEINT"):
        return f"CAST({column} AS VARCHAR)", lambda array: _each(array, int)
    if kind == "DATE":
        return f"({column} - DATE '1970-01-01')", lambda array: _moments(array, "D")
    if TIMESTAMPS.fullmatch(kind):
        unit = "ns" if kind.endswith("_NS") else "us"  # as stored: duckdb would round
        later = f"{column} > CAST('epoch' AS {kind})"
        extreme = f"CASE WHEN {later} THEN {LARGEST} WHEN NOT {later} THEN -{LARGEST} END"
        return (
            f"coalesce(epoch_{unit}({column}), {extreme})",
            lambda array: _moments(array, unit),
        )
    if NESTED.fullmatch(kind):
        return f"({column} IS NOT NULL)", lambda array: _each(array, _nested)
    if kind == "BLOB":
        return column, lambda array: _each(array, bytes)
    return f"CAST({column} AS VARCHAR)", lambda array: _each(array, str)


def _numbers(array: npt.NDArray[Any]) -> Values:
    if array.dtype.kind == "b":
        return _each(array, bool)
    if isinstance(array, np.ma.MaskedArray):
        return np.ma.filled(array.astype(np.float64), np.nan)
    return array


def _moments(array: npt.NDArray[Any], unit: str) -> Values:
    if isinstance(array, np.ma.MaskedArray):
        array = np.ma.filled(array, np.iinfo(np.int64).min)  # the pattern of a missing time
    return array.astype(np.int64).view(f"datetime64[{unit}]")


def _nested(present: bool) -> Odd | None:
    return Odd.VALUE if present else None


def _each(array: npt.NDArray[Any], read: Callable[[Any], Any]) -> list[Any]:
    """The present values one by one, with None for the others."""
    gaps = np.ma.getmaskarray(array).tolist() if np.ma.isMaskedArray(array) else None
    values = np.ma.getdata(array).tolist()
    if gaps is None:
        return [None if value is None else read(value) for value in values]
    return [
        None if gap or value is None else read(value)
        for value, gap in zip(values, gaps, strict=True)
    ]
