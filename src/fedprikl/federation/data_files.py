"""CSV and Parquet files as tables for duckdb: opened by their literal name, read within 512 MB.

Columns get positional aliases c0, c1, ..., so that no name from a file ever becomes SQL.
"""

import csv
import glob
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from fedprikl.errors import RecordsError

__all__ = ["DataFile", "data_files", "quoted_names", "reading", "session"]

SUFFIXES = (".csv", ".parquet")
MEMORY_LIMIT = "512MB"
# An empty field is missing, quoted or not, and so is the nan that some writers put for a gap.
MISSING_TEXTS = ("", "NaN", "nan")


@contextmanager
def session() -> Iterator[duckdb.DuckDBPyConnection]:
    """A duckdb that stays within `MEMORY_LIMIT`, spills to a temporary folder, and loads nothing.

    Two threads, as each keeps buffers of its own. What is spilled are records, so the folder is
    for this user only, and is removed at the end.
    """
    with tempfile.TemporaryDirectory(prefix="fedprikl-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY_LIMIT,
            "threads": 2,
            "temp_directory": spill,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(":memory:", config=config) as connection:
            yield connection


@dataclass(frozen=True, slots=True)
class DataFile:
    """One CSV or Parquet file: its columns, and how SQL reads it."""

    path: Path
    names: tuple[str, ...]
    types: tuple[str, ...] = field(repr=False)  # duckdb's; every column of a CSV is VARCHAR

    @classmethod
    def open(cls, path: Path, connection: duckdb.DuckDBPyConnection) -> "DataFile":
        """The file with its columns; reads the header only."""
        if re.search("[\\ud800-\\udfff]", str(path)):  # undecodable bytes; duckdb takes text
            raise RecordsError(f"The file name {str(path)!a} is not plain text. Rename the file.")
        if is_csv(path):
            names = _csv_header(path)
            types: tuple[str, ...] = ("VARCHAR",) * len(names)
        else:
            names, types = _parquet_columns(path, connection)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise RecordsError(
                f"{path} has more than one column {quoted_names(twice)}. Rename or remove one."
            )
        return cls(path, names, types)

    @property
    def parameters(self) -> dict[str, str]:
        """What the placeholders of `table` stand for."""
        # Escaped, as duckdb would take a * or [ in the name for a pattern.
        return {"path": glob.escape(str(self.path.absolute()))}

    @property
    def table(self) -> str:
        """SQL for FROM: the file's rows with columns c0, c1, ..."""
        aliases = [f"c{i}" for i in range(len(self.names))]
        if not is_csv(self.path):
            return (
                f"read_parquet($path, hive_partitioning = false) AS records({', '.join(aliases)})"
            )
        columns = ", ".join(f"'{alias}': 'VARCHAR'" for alias in aliases)
        missing = ", ".join(f"'{text}'" for text in MISSING_TEXTS)
        return (
            "read_csv($path, auto_detect = false, header = true, delim = ',', quote = '\"', "
            f"escape = '\"', nullstr = [{missing}], strict_mode = true, "
            f"hive_partitioning = false, columns = {{{columns}}}) AS records"
        )

    def index(self, name: str) -> int:
        """The position of a column; an error that lists what is there if it is missing."""
        try:
            return self.names.index(name)
        except ValueError:
            raise RecordsError(
                f"{self.path} has no column {name!r}; it has {quoted_names(self.names)}. Rename "
                "the column, and separate the columns of a CSV file by commas."
            ) from None


def data_files(path: Path) -> tuple[Path, ...]:
    """The file itself, or the CSV and Parquet files of a folder in the order of their names.

    Hidden files, files that start with an underscore, other kinds and subfolders are passed over.
    """
    try:
        if path.is_dir():
            found = sorted(entry for entry in path.iterdir() if _is_data(entry))
            if not found:
                raise RecordsError(f"The folder {path} holds no .csv or .parquet file.")
            return tuple(found)
        if not path.exists():
            raise RecordsError(f"There is no file or folder {path}. Check the path.")
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        raise RecordsError(
            f"{path} is neither a .csv nor a .parquet file. Convert it, or rename it if it is one."
        )
    return (path,)


@contextmanager
def reading(file: Path, fields: int | None = None) -> Iterator[None]:
    """Turns what duckdb says about a file into our error; its own message quotes the records."""
    try:
        yield
    except duckdb.OutOfMemoryException:
        raise RecordsError(
            f"Counting {file} needs more than {MEMORY_LIMIT} of memory, or more temporary disk "
            "than there is. Free some disk, or use a reference with fewer columns."
        ) from None
    except duckdb.Error as error:
        if not is_csv(file):
            raise RecordsError(
                f"{file} cannot be read as Parquet. It may be damaged, cut off or of another kind; "
                "write it again."
            ) from None
        line = re.match(r"Invalid Input Error: CSV Error on Line: (\d+)\n", str(error))
        where = f" at line {line[1]}" if line else ""
        raise RecordsError(
            f"{file} is not a well-formed CSV file{where}. Every row needs as many fields as the "
            f"header ({fields}), separated by commas, with quotes closed, as UTF-8 text with one "
            "kind of line end. Nothing was counted."
        ) from None


def is_csv(path: Path) -> bool:
    """Whether the file is read as CSV, by its ending."""
    return path.suffix.lower() == ".csv"


def quoted_names(names: tuple[str, ...] | list[str]) -> str:
    """Column names for people."""
    return ", ".join(map(repr, names))


def _is_data(entry: Path) -> bool:
    hidden = entry.name.startswith((".", "_"))
    return not hidden and entry.suffix.lower() in SUFFIXES and entry.is_file()


def _csv_header(path: Path) -> tuple[str, ...]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            names = next(csv.reader(lines, strict=True), [])
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None
    except (UnicodeDecodeError, csv.Error):
        raise RecordsError(
            f"The first line of {path} cannot be read. Write the file as UTF-8 text, with the "
            "columns' names in the first line, separated by commas."
        ) from None
    if not names:
        raise RecordsError(
            f"{path} has no first line with the columns' names. Write them, separated by commas."
        )
    return tuple(names)


def _parquet_columns(
    path: Path, connection: duckdb.DuckDBPyConnection
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and types; names from the file's own schema, as duckdb renames an `a` beside an `A`."""
    parameters = {"path": glob.escape(str(path.absolute()))}
    with reading(path):
        described = connection.execute(
            "DESCRIBE SELECT * FROM read_parquet($path, hive_partitioning = false)", parameters
        ).fetchall()
        schema = connection.execute(
            "SELECT name, num_children FROM parquet_schema($path)", parameters
        ).fetchall()
    names, inside = [], 0
    for name, children in schema[1:]:  # depth first, after the root
        if inside == 0:
            names.append(name)
        inside = max(inside - 1, 0) + (children or 0)
    return tuple(names), tuple(row[1] for row in described)
