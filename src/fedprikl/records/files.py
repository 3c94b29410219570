"""Files of records: CSV and Parquet. No record can spoil another.

CSV is read line by line, and one line is one record. A line is decided by its own bytes alone.
Whatever cannot be read (an invalid byte, a quote that is not closed, too many or too few fields) is
an unreadable record; the lines around it do not notice. A line break therefore always ends a
record, inside quotes too.

Of Parquet files only the compared columns are read, by pyarrow, some rows at a time, and no
statistics. What a value means is decided where data frames are read.
"""

import codecs
import csv
import gzip
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO, cast

from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.libraries import parquet, pyarrow
from fedprikl.reference.rows import Chunk, FrameSource, Source

BLOCK = 2**20  # bytes that are read at once; what is made of them is some 50 times as large
LONGEST_LINE = 2**20  # bytes; a longer line is unreadable, so that memory stays bounded
ASCII = bytes(range(128))
SHIFTING = ("iso2022", "hz", "utf-7", "idna", "punycode", "unicode", "raw")  # state, or escapes
ROWS, BUFFER = 2**13, 2**20  # of Parquet that are read at once: rows, and bytes of a column
BATCH = 2**25  # bytes of a column that rows read at once have; fewer rows, where values are long
ENDS = b"PAR1"
# Long texts stand in the descriptions of their columns too: no text may be too long for them.
LIMITS = {"thrift_string_size_limit": 2**31 - 1, "thrift_container_size_limit": 2**31 - 1}
SEPARATORS = {";": ";", "\t": "tab", "|": "|", ",": ","}


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How CSV files are written: what separates fields, and the encoding of the text.

    The encoding must contain ASCII as it is, so that lines can be told apart before they are
    decoded: UTF-8, Latin-1, Windows-1252 and most others, but not UTF-16.

    >>> CsvFormat(separator=";", encoding="cp1252")
    CsvFormat(separator=';', encoding='cp1252')
    """

    separator: str = ","
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if len(self.separator) != 1 or self.separator in '"\r\n\0':
            raise InvalidInputError(
                f"The separator must be one character like , or ; or a tab, got "
                f"{self.separator!r:.20}."
            )
        if not _contains_ascii(self.encoding):
            raise InvalidInputError(
                f"Text in the encoding {self.encoding!r:.40} cannot be read line by line. Convert "
                "the files to UTF-8, or name an encoding like utf-8, latin-1 or cp1252."
            )
        if codecs.lookup(self.encoding).name == "utf-8-sig":  # only the header has the mark
            object.__setattr__(self, "encoding", "utf-8")


class CsvFile(Source):
    """One CSV file with the columns' names in its first line; .gz is unpacked on the way."""

    texts = True

    def __init__(self, path: Path, form: CsvFormat) -> None:
        """Reads the header only."""
        self.path, self.where, self.form = path, str(path), form
        with _opened(path) as stream:
            self.names = _header(path, stream.readline(LONGEST_LINE + 1), form)

    def advice(self) -> str:
        """What to do if a column is lacking."""
        if len(self.names) > 1 or not re.search("[;\t|,]", self.names[0]):
            return ""
        return (
            f" Its fields seem not to be separated by {self.form.separator!r}: write them so, or "
            "name the separator: `--separator` of the command."
        )

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:
        """All rows, a block at a time: texts as they stand in the file."""
        places = {name: self.names.index(name) for name in columns}
        end = None if times is None else _finished(self.path)
        with _opened(self.path) as stream:
            stream.readline(LONGEST_LINE + 1)
            number = 2
            for block in _blocks(stream, None if end is None else end - stream.tell()):
                fields, bad = read_block(block, self.form, len(self.names))
                every = block.split(b"\n") if bad else []
                lines = [every[i] for i in bad]
                yield Chunk(
                    {name: fields[at] for name, at in places.items()},
                    [number + i for i in bad],
                    [] if times is None else [self._loose(line, times) for line in lines],
                    lines,
                )
                number += block.count(b"\n") + 1

    def _loose(self, line: bytes, column: str) -> tuple[str, ...]:
        return loose_fields(line, self.form, self.names.index(column), len(self.names))

    def guesses(self, line: bytes, column: str) -> tuple[str, ...]:
        """By its place from both ends of the line, the nearer one first.

        No other value can shift the first column, or, but for its length, the last.
        """
        place, width = self.names.index(column), len(self.names)
        likely, _ = _split_loosely(line, self.form, place, width)
        if place == 0:
            return tuple(likely[:1])
        if place == width - 1:
            return tuple(likely[-1:])
        return tuple(likely if place <= width - 1 - place else reversed(likely))


def read_block(
    block: bytes, form: CsvFormat, width: int
) -> tuple[list[Sequence[str]], Sequence[int]]:
    """The columns of some lines, and which lines (from 0) cannot be read.

    All lines at once where none of them is unusual, with the same result as one by one.
    """
    lines = _plain_lines(block, form)
    columns = None if lines is None else _read_at_once(lines, form.separator, width)
    if columns is not None:
        return columns, ()
    rows = [read_line(line, form, width) for line in block.split(b"\n")]
    bad = [i for i, row in enumerate(rows) if row is None]
    return list(zip(*filter(None, rows), strict=True)) or [()] * width, bad


def read_line(line: bytes, form: CsvFormat, width: int) -> list[str] | None:
    """The fields of one line; None if it cannot be read, and no fields if it is no record.

    A blank line is no record, unless there is only one column: then its value is missing.
    """
    line = line.removesuffix(b"\r")
    if not line:
        return [""] if width == 1 else []
    if len(line) > LONGEST_LINE:
        return None
    try:
        text = line.decode(form.encoding)
        if "\0" in text or "\r" in text or "\n" in text:
            return None
        fields = text.split(form.separator)
        if '"' in text:
            (fields,) = csv.reader([text], delimiter=form.separator, strict=True)
    except (UnicodeError, csv.Error, ValueError):
        return None
    return fields if len(fields) == width else None


def loose_fields(line: bytes, form: CsvFormat, place: int, width: int) -> tuple[str, ...]:
    """What one field of a line that cannot be read may be, the likeliest first.

    The field at its place from the left, from the right, and then any.

    >>> loose_fields(b'Monday,12,"half a quote', CsvFormat(), 2, 3)[0]
    'half a quote'
    """
    likely, fields = _split_loosely(line, form, place, width)
    return (*likely, *fields)


def _split_loosely(
    line: bytes, form: CsvFormat, place: int, width: int
) -> tuple[list[str], list[str]]:
    """A field by its place from the left and from the right, as far as there is one; and all."""
    text = line[: LONGEST_LINE + 1].decode(form.encoding, errors="replace")
    fields = [each.strip('"') for each in text.rstrip("\r\n").split(form.separator)]
    places = (place, place - width + len(fields))
    return [fields[at] for at in places if 0 <= at < len(fields)], fields


def _plain_lines(block: bytes, form: CsvFormat) -> list[str] | None:
    """The lines as text, if nothing in any of them makes it unreadable before it is split."""
    try:
        text = block.removesuffix(b"\r").decode(form.encoding)
    except UnicodeError:
        return None
    text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    unusual = "\r" in text or "\0" in text or len(lines) != block.count(b"\n") + 1
    return None if unusual or 4 * max(map(len, lines)) > LONGEST_LINE else lines


def _read_at_once(lines: list[str], separator: str, width: int) -> list[Sequence[str]] | None:
    """The columns, if every line has as many fields as there are."""
    if width > 1:
        lines = list(filter(None, lines))
    joined = separator.join(lines)
    if '"' not in joined:
        if set(map(str.count, lines, repeat(separator))) != {width - 1}:
            return None
        fields = joined.split(separator)
        return [fields[i::width] for i in range(width)]
    try:
        rows = list(csv.reader(lines, delimiter=separator, strict=True))
    except csv.Error:
        return None
    # As many records as lines: no quoted field went on into the next line.
    if len(rows) != len(lines) or set(map(len, rows)) != {width}:
        return None
    return list(zip(*rows, strict=True))


def _finished(file: Path) -> int | None:
    """Where the last line of a plain CSV file ends; None: all of a file that is not one.

    A line that is still being written may get another time.
    """
    if file.suffix.lower() != ".csv":
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


def _blocks(stream: BinaryIO, length: int | None = None) -> Iterator[bytes]:
    """Whole lines, some at a time; of a line that is too long, only its beginning."""
    rest, left = b"", math.inf if length is None else max(length, 0)
    while block := stream.read(int(min(BLOCK, left))):
        left -= len(block)
        block = rest + block
        end = block.rfind(b"\n")
        rest = block[end + 1 :][: LONGEST_LINE + 2]
        if end >= 0:
            yield block[:end]
    if rest:
        yield rest


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked if need be; what goes wrong becomes our error."""
    try:
        with path.open("rb") as raw:
            if path.suffix.lower() == ".gz":
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordsError(
            f"{path} cannot be unpacked. It may be damaged or cut off; write it again."
        ) from None
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}. Check the path.") from None


def _header(path: Path, line: bytes, form: CsvFormat) -> tuple[str, ...]:
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if codecs.lookup(form.encoding).name == "utf-8":
        line = line.removeprefix(codecs.BOM_UTF8)
    if not line:
        raise RecordsError(
            f"{path} has no first line with the columns' names. Write them, separated by "
            f"{SEPARATORS.get(form.separator, form.separator)!r}."
        )
    try:
        text = line.decode(form.encoding)
        if len(line) > LONGEST_LINE or "\0" in text or "\r" in text:
            raise ValueError
        (names,) = csv.reader([text], delimiter=form.separator, strict=True)
    except (UnicodeError, csv.Error, ValueError):
        raise RecordsError(
            f"The first line of {path} cannot be read. Write the file as {form.encoding.upper()} "
            "text with \\n or \\r\\n as line ends, and the columns' names in the first line; or "
            "name its encoding, like --encoding cp1252 (in Python: CsvFormat)."
        ) from None
    return tuple(names)


def _contains_ascii(encoding: str) -> bool:
    """Whether bytes below 128 always are ASCII, so that a line break is one wherever it stands."""
    try:
        name = codecs.lookup(encoding).name
        if name.startswith(SHIFTING) or ASCII.decode(name) != "".join(map(chr, ASCII)):
            return False
    except (LookupError, UnicodeError, TypeError, ValueError):
        return False
    for lead in range(128, 256):
        try:
            if not bytes([lead, 10]).decode(name).endswith("\n"):
                return False
        except UnicodeError:
            continue
    return True


class ParquetFile(Source):
    """One Parquet file: its columns, and those of them whose times are instants."""

    def __init__(self, path: Path, _: CsvFormat) -> None:
        """Reads its description only."""
        self.path, self.where = path, str(path)
        with _opened_parquet(path) as file:
            columns = list(file.schema_arrow)
        self.names = tuple(each.name for each in columns)
        self._aware = {each.name for each in columns if getattr(each.type, "tz", None) is not None}

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        return column in self._aware

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        """All rows, some at a time."""
        with _opened_parquet(self.path) as file:
            rows = _rows_at_once(file.metadata, columns)
            for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
                yield from FrameSource(pyarrow.Table.from_batches([batch])).chunks(columns)


def _rows_at_once(described: Any, columns: Sequence[str]) -> int:
    """Of a file with long values, fewer: a few bytes, unpacked, may be many.

    Values that a dictionary repeats are longer than they look: these are not bounded.
    """
    groups = [described.row_group(number) for number in range(described.num_row_groups)]
    largest = max(
        (
            column.total_uncompressed_size / group.num_rows
            for group in groups
            if group.num_rows > 0
            for column in map(group.column, range(group.num_columns))
            if column.path_in_schema in columns
        ),
        default=0.0,
    )
    return max(1, min(ROWS, int(BATCH / max(largest, 1.0))))


@contextmanager
def _opened_parquet(path: Path) -> Iterator[Any]:
    """The file; what goes wrong becomes our error, as that of pyarrow may quote records."""
    try:
        with pyarrow.OSFile(str(path)) as raw:
            described = parquet.ParquetFile(pyarrow.BufferReader(_description(raw)), **LIMITS)
            yield parquet.ParquetFile(
                raw,
                metadata=described.metadata,
                buffer_size=BUFFER,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                **LIMITS,
            )
    except (pyarrow.ArrowException, OSError):
        raise RecordsError(
            f"{path} cannot be read as Parquet. It may be damaged, cut off or of another kind; "
            "write it again."
        ) from None


def _description(file: Any) -> bytes:
    """The end of the file, by which its columns have the types of Parquet.

    pyarrow would restore those it once wrote, and check all texts of categories on the way.
    """
    tail = file.read_at(8, max(file.size() - 8, 0))
    length = int.from_bytes(tail[:4], "little")
    footer = file.read_at(length, max(file.size() - 8 - length, 0))
    return bytes(ENDS + footer.replace(b"ARROW:schema", b"arrow_schema") + tail)
