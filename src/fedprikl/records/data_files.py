"""Files of records: CSV, packed or not, and Parquet."""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Protocol

from fedprikl.errors import RecordsError
from fedprikl.records.csv_files import Chunk, CsvFile, CsvFormat, quoted_names
from fedprikl.records.parquet_files import ParquetFile

__all__ = [
    "Chunk",
    "CsvFormat",
    "DataFile",
    "Days",
    "check_once",
    "data_files",
    "is_csv",
    "named_days",
    "open_file",
    "quoted_names",
    "require_columns",
]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
KINDS = ".csv, .csv.gz or .parquet"
Days = tuple[date, date]  # from the first up to, and without, the last
EVER = (date.min, date.max)
ANY = "*"  # in a path: the folder of any period
NAMED = re.compile(
    r"(?:.*=)?([0-9]{4})-(?:W([0-9]{2})|Q([1-4])|([0-9]{2})(?:-([0-9]{2}))?)"
    r"(?:\.csv|\.csv\.gz|\.parquet)?",
    re.IGNORECASE,
)


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
        end: int | None = None,
        loose: str | None = None,
    ) -> Iterator[Chunk]:
        """The values of some columns, for all rows, a bounded number of rows at a time.

        `end` is a byte: only the lines before it, of a file that can grow. `loose` is a column to
        be read as far as it can be told, of lines that cannot be read.
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


def data_files(path: Path, *, blank: bool = False, days: Days | None = None) -> tuple[Path, ...]:
    """The file itself, or the CSV and Parquet files of a folder in the order of their names.

    Hidden files, files that start with an underscore, other kinds and subfolders are passed over.
    With `blank`, files with nothing in them, not even names of columns, are passed over too, and
    there may be none: where whole clients are protected, nobody may see that one has nothing.
    With `days`, only files and folders of a folder whose names lie in them, and there may be none.
    A path like `clients/*/a.csv` has a folder for each period, with files of the client inside.
    """
    found = _found(path, may_be_none=blank) if days is None else _found_by_name(path, days)
    return tuple(file for file in found if not _is_blank(file)) if blank else found


def check_once(clients: Iterable[Path], *, by_name: bool) -> None:
    """Refuses a file that clients, or periods of one, share by whatever link. Reads no record.

    `by_name`: names of files tell the period; then it looks at the files of all periods.
    """
    seen: dict[tuple[int, int], Path] = {}
    for client in clients:
        found = _found_by_name(client, EVER) if by_name else _found(client, may_be_none=True)
        for file in found:
            try:
                status = file.stat()  # of the file that a link leads to
            except OSError as error:
                raise RecordsError(f"Cannot read {file}: {error.strerror}.") from None
            other = seen.setdefault((status.st_dev, status.st_ino), file)
            if other is not file:
                raise RecordsError(
                    f"{other} and {file} are the same records: one file, named or linked twice. "
                    "Each record would count twice, but it is protected as one. Name every file "
                    "once, and remove the link. Nothing was counted."
                )


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


def named_days(entry: Path) -> Days | None:
    """The days that the name of a file or folder stands for; None if it names none.

    >>> [day.isoformat() for day in named_days(Path("week=2027-W01")) or ()]
    ['2027-01-04', '2027-01-11']
    """
    if not (found := NAMED.fullmatch(entry.name)):
        return None
    year, week, quarter, month, day = (int(each or 0) for each in found.groups())
    try:
        if week:
            start = date.fromisocalendar(year, week, 1)
            return start, start + timedelta(days=7)
        start = date(year, 3 * quarter - 2 if quarter else month, day or 1)
        if day:
            return start, start + timedelta(days=1)
        months = start.month + (3 if quarter else 1) - 1
        return start, date(start.year + months // 12, months % 12 + 1, 1)
    except (ValueError, OverflowError):  # a thirteenth month
        return None


def _found_by_name(path: Path, days: Days) -> tuple[Path, ...]:
    """The files whose own name, or that of their folder, lies in some days."""
    inside = path.parent.name != ANY
    found: list[Path] = []
    try:
        for entry in sorted((path if inside else path.parent.parent).iterdir()):
            if entry.name[0] in "._" or not (entry.is_dir() or _is_data(entry)):
                continue
            named = named_days(entry)
            if named is None:
                raise RecordsError(
                    f"The name of {entry} says no period. The plan tells periods by names, like "
                    "2027-W01, week=2027-W01, 2027-01, 2027-Q1 or 2027-01-04."
                )
            if named[1] <= days[0] or days[1] <= named[0]:
                continue
            if named[0] < days[0] or days[1] < named[1]:
                raise RecordsError(
                    f"{entry} has records of more days than the period from {days[0]} up to "
                    f"{days[1]}. Divide it by the periods of the plan."
                )
            place = entry if inside else entry / path.name
            found += _found(place, may_be_none=True) if place.exists() else ()
    except NotADirectoryError:
        raise RecordsError(
            f"{path} is one file. The plan tells periods by names: give a folder with one file or "
            "folder for each period."
        ) from None
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None
    return tuple(found)


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
    except (OSError, EOFError, zlib.error):
        return False


def _is_data(entry: Path) -> bool:
    hidden = entry.name.startswith((".", "_"))
    return not hidden and entry.name.lower().endswith(SUFFIXES) and entry.is_file()
