"""Sources of records: which files a client has, and what opens them.

To add a source (another format of files, a table of a database behind a file that names it), write
a `Source` (`fedprikl/reference/rows.py`) in one file, and either call `register_source(".ending",
YourSource)`, or install it beside fedprikl with an entry point, which sites and the command line
find by themselves:

    [project.entry-points."fedprikl.sources"]
    ".ending" = "your_package:YourSource"

It is called with the path of a file and with the format of CSV files (`CsvFormat`).
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedprikl.errors import RecordsError
from fedprikl.records.database import DatabaseTable, Place
from fedprikl.records.files import CsvFile, CsvFormat, ParquetFile
from fedprikl.reference.rows import Source, quoted_names

Opener = Callable[[Path, CsvFormat], Source]
GROUP = "fedprikl.sources"
Days = tuple[date, date]  # from the first up to, and without, the last
EVER = (date.min, date.max)
ANY = "*"  # in a path: the folder of any period
NAMED = re.compile(
    r"(?:.*=)?([0-9]{4})-(?:W([0-9]{2})|Q([1-4])|([0-9]{2})(?:-([0-9]{2}))?)", re.IGNORECASE
)
DATABASES = frozenset({".db", ".duckdb", ".sqlite", ".sqlite3"})  # endings of their files
_OPENERS: dict[str, Opener] = {".csv": CsvFile, ".csv.gz": CsvFile, ".parquet": ParquetFile}


def register_source(ending: str, opener: Opener) -> None:
    """Files whose names have this ending, such as `.jsonl`, are opened by `opener`."""
    _OPENERS[ending.lower()] = opener


def _openers() -> Mapping[str, Opener]:
    """By the ending of a file's name: what is registered, and what is installed."""
    return _installed() | _OPENERS


@cache
def _installed() -> dict[str, Opener]:
    def later(found: EntryPoint) -> Opener:
        return lambda path, form: found.load()(path, form)

    return {found.name.lower(): later(found) for found in entry_points(group=GROUP)}


def _ending(path: Path) -> str:
    """By which the file is known; empty if it is of no known kind."""
    known = [ending for ending in _openers() if path.name.lower().endswith(ending)]
    return max(known, key=len, default="")


def open_source(path: Place, form: CsvFormat) -> Source:
    """The file or table with its columns; reads no rows."""
    if isinstance(path, DatabaseTable):
        return path.open()
    if re.search("[\\ud800-\\udfff]", str(path)):  # undecodable bytes; pyarrow takes text
        raise RecordsError(f"The file name {str(path)!a} is not plain text. Rename the file.")
    source = _openers()[_ending(path)](path, form)
    twice = sorted({name for name in source.names if source.names.count(name) > 1})
    if twice:
        raise RecordsError(
            f"{path} has more than one column {quoted_names(twice)}. Rename or remove one."
        )
    return source


def data_files(path: Place, *, blank: bool = False, days: Days | None = None) -> tuple[Place, ...]:
    """The file itself, or the files of a known kind of a folder in the order of their names.

    Hidden files, files that start with an underscore, other kinds and subfolders are passed over.
    With `blank`, files with nothing in them, not even names of columns, are passed over too, and
    there may be none: where whole clients are protected, nobody may see that one has nothing.
    With `days`, only files and folders of a folder whose names lie in them, and there may be none.
    A path like `clients/*/a.csv` has a folder for each period, with files of the client inside.
    A table of a database stands for itself.
    """
    if isinstance(path, DatabaseTable):
        if days is not None:
            raise RecordsError(
                "The plan tells periods by names of files, and a table of a database has none. "
                "Plan with --time-column."
            )
        return (path,)
    found = _found(path, may_be_none=blank) if days is None else _found_by_name(path, days)
    return tuple(file for file in found if not _is_blank(file)) if blank else found


def check_once(clients: Iterable[Place], *, by_name: bool) -> None:
    """Refuses a file that clients, or periods of one, share by whatever link. Reads no record.

    `by_name`: names of files tell the period; then it looks at the files of all periods.
    """
    seen: dict[tuple[int, int], Path] = {}
    for client in clients:
        if isinstance(client, DatabaseTable):
            continue
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
                raise RecordsError(f"The folder {path} holds no {_kinds()} file.")
            return tuple(found)
        if not path.exists():
            raise RecordsError(f"There is no file or folder {path}. Check the path.")
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None
    if not _ending(path) or not path.is_file():
        raise RecordsError(
            f"{path} is no {_kinds()} file. Convert it, or rename it if it is one.{_hint(path)}"
        )
    return (path,)


def _hint(path: Path) -> str:
    """How a database is given, if this is perhaps one."""
    if path.suffix.lower() not in DATABASES:
        return ""
    return (
        f" A database is given by its kind: --data sqlite:{path} or --data duckdb:{path}, with "
        "--table."
    )


def named_days(entry: Path) -> Days | None:
    """The days that the name of a file or folder stands for; None if it names none.

    >>> [day.isoformat() for day in named_days(Path("week=2027-W01")) or ()]
    ['2027-01-04', '2027-01-11']
    """
    name = entry.name[: len(entry.name) - len(_ending(entry))]
    if not (found := NAMED.fullmatch(name)):
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


def _is_blank(file: Path) -> bool:
    """Whether there is nothing in it; one that cannot be read is not blank, and refused later."""
    try:
        if file.name.lower().endswith(".gz"):
            with gzip.open(file) as stream:
                return not stream.read(1)
        return file.stat().st_size == 0
    except (OSError, EOFError, zlib.error):
        return False


def _kinds() -> str:
    *most, last = sorted(_openers())
    return f"{', '.join(most)} or {last}"


def _is_data(entry: Path) -> bool:
    hidden = entry.name.startswith((".", "_"))
    return not hidden and bool(_ending(entry)) and entry.is_file()
