"""Files of records: CSV, packed or not, and Parquet."""

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fedprikl.errors import RecordsError
from fedprikl.records.csv_files import Chunk, CsvFile, CsvFormat, quoted_names
from fedprikl.records.parquet_files import ParquetFile

__all__ = [
    "Chunk",
    "CsvFormat",
    "DataFile",
    "data_files",
    "is_csv",
    "open_file",
    "quoted_names",
    "require_columns",
]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
KINDS = ".csv, .csv.gz or .parquet"


class DataFile(Protocol):
    """One file with named columns, whose rows can be read again and again."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        ...

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        ...

    def chunks(
        self,
        columns: Sequence[str],
        *,
        start: int = 0,
        end: int | None = None,
        loose: str | None = None,
    ) -> Iterator[Chunk]:
        """The values of some columns, for all rows, a bounded number of rows at a time.

        `start` and `end` are bytes: the lines between them only, of a file that can grow. `loose`
        is a column to be read as far as it can be told, of lines that cannot be read.
        """
        ...


def open_file(path: Path, form: CsvFormat) -> DataFile:
    """The file with its columns; reads no rows."""
    if re.search("[\\ud800-\\udfff]", str(path)):  # undecodable bytes; pyarrow takes text
        raise RecordsError(f"The file name {str(path)!a} is not plain text. Rename the file.")
    file = CsvFile.open(path, form) if is_csv(path) else ParquetFile.open(path)
    twice = sorted({name for name in file.names if file.names.count(name) > 1})
    if twice:
        raise RecordsError(
            f"{path} has more than one column {quoted_names(twice)}. Rename or remove one."
        )
    return file


def require_columns(file: DataFile, wanted: Iterable[str]) -> None:
    """Refuses a file without these columns, naming those that it lacks."""
    lacking = [name for name in dict.fromkeys(wanted) if name not in file.names]
    if not lacking:
        return
    advice = ""
    if isinstance(file, CsvFile) and len(file.names) == 1 and re.search("[;\t|,]", file.names[0]):
        advice = (
            f" Its fields seem not to be separated by {file.form.separator!r}: write them so, or "
            "name the separator (`--separator` on the command line)."
        )
    raise RecordsError(
        f"{file.path} has no column {quoted_names(lacking)}; it has {quoted_names(file.names)}."
        f"{advice}"
    )


def data_files(path: Path, *, blank: bool = False) -> tuple[Path, ...]:
    """The file itself, or the CSV and Parquet files of a folder in the order of their names.

    Hidden files, files that start with an underscore, other kinds and subfolders are passed over.
    With `blank`, files with nothing in them, not even names of columns, are passed over too, and
    there may be none: where whole clients are protected, nobody may see that one has nothing.
    """
    found = _found(path, may_be_none=blank)
    return tuple(file for file in found if not _is_blank(file)) if blank else found


def _found(path: Path, *, may_be_none: bool) -> tuple[Path, ...]:
    try:
        if path.is_dir():
            found = sorted(entry for entry in path.iterdir() if _is_data(entry))
            if not found and not may_be_none:
                raise RecordsError(f"The folder {path} holds no {KINDS} file.")
            return tuple(found)
        if not path.exists():
            raise RecordsError(f"There is no file or folder {path}. Check the path.")
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None
    if not path.name.lower().endswith(SUFFIXES) or not path.is_file():
        raise RecordsError(f"{path} is no {KINDS} file. Convert it, or rename it if it is one.")
    return (path,)


def is_csv(path: Path) -> bool:
    """Whether the file is read as CSV, by its ending."""
    return path.name.lower().endswith((".csv", ".csv.gz"))


def _is_blank(file: Path) -> bool:
    """Whether there is nothing in it; one that cannot be read is not blank, and refused later."""
    try:
        if file.name.lower().endswith(".gz"):
            with gzip.open(file) as stream:
                return not stream.read(1)
        return file.stat().st_size == 0
    except (OSError, EOFError):
        return False


def _is_data(entry: Path) -> bool:
    hidden = entry.name.startswith((".", "_"))
    return not hidden and entry.name.lower().endswith(SUFFIXES) and entry.is_file()
