"""CSV files, read line by line: one line is one record, and no line can spoil another.

A line is decided by its own bytes alone. Whatever cannot be read (an invalid byte, a quote that is
not closed, too many or too few fields) is an unreadable record; the lines around it do not notice.
A line break therefore always ends a record, inside quotes too.
"""

import codecs
import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import compress, repeat
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.reference.columns import Values

Mask = npt.NDArray[np.bool_]

BLOCK = 2**20  # bytes that are read at once; what is made of them is some 50 times as large
LONGEST_LINE = 2**20  # bytes; a longer line is unreadable, so that memory stays bounded
ASCII = bytes(range(128))
SHIFTING = ("iso2022", "hz", "utf-7", "idna", "punycode", "unicode", "raw")  # state, or escapes
SEPARATORS = {";": ";", "\t": "tab", "|": "|", ",": ","}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, column by column, and the numbers of the lines that cannot be read.

    If one column is asked for loosely, also what it may be in each of these lines.
    """

    columns: dict[str, Values] = field(repr=False)
    unreadable: Sequence[int] = ()
    loose: Sequence[tuple[str, ...]] = field(default=(), repr=False)  # of each of these lines

    @property
    def rows(self) -> int:
        """How many rows can be read."""
        return len(next(iter(self.columns.values()), ()))

    def taken(self, inside: Mask, columns: Iterable[str] | None = None) -> dict[str, Values]:
        """The values of some rows, in some columns or in all."""
        names = self.columns if columns is None else columns
        return {name: _taken(self.columns[name], inside) for name in names}


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


@dataclass(frozen=True, slots=True)
class CsvFile:
    """One CSV file with the columns' names in its first line; .gz is unpacked on the way."""

    path: Path
    names: tuple[str, ...]
    form: CsvFormat

    @classmethod
    def open(cls, path: Path, form: CsvFormat) -> "CsvFile":
        """The file with its columns; reads the header only."""
        with _opened(path) as stream:
            return cls(path, _header(path, stream.readline(LONGEST_LINE + 1), form), form)

    def is_aware(self, column: str) -> bool:  # noqa: ARG002
        """Whether times of the column are instants: here texts say so themselves."""
        return False

    def chunks(
        self,
        columns: Sequence[str],
        *,
        end: int | None = None,
        loose: str | None = None,
    ) -> Iterator[Chunk]:
        """All rows, a block at a time: texts as they stand in the file.

        With an `end`, the lines before that byte of a file that is not packed. `loose` is a column
        to be read of lines that cannot be read too, as far as it can be told.
        """
        places = {name: self.names.index(name) for name in columns}
        with _opened(self.path) as stream:
            stream.readline(LONGEST_LINE + 1)
            number = 2
            for block in _blocks(stream, None if end is None else end - stream.tell()):
                fields, bad = read_block(block, self.form, len(self.names))
                yield Chunk(
                    {name: fields[at] for name, at in places.items()},
                    [number + i for i in bad],
                    self._loose(block, bad, loose) if bad and loose is not None else (),
                )
                number += block.count(b"\n") + 1

    def _loose(self, block: bytes, bad: Sequence[int], column: str) -> list[tuple[str, ...]]:
        lines, place = block.split(b"\n"), self.names.index(column)
        return [loose_fields(lines[i], self.form, place, len(self.names)) for i in bad]


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
    text = line[: LONGEST_LINE + 1].decode(form.encoding, errors="replace")
    fields = text.rstrip("\r\n").split(form.separator)
    places = (place, place - width + len(fields))
    likely = [fields[at] for at in places if 0 <= at < len(fields)]
    return tuple(text.strip('"') for text in [*likely, *fields])


def quoted_names(names: Sequence[str]) -> str:
    """Column names for people."""
    return ", ".join(map(repr, names))


def _taken(values: Values, inside: Mask) -> Values:
    if isinstance(values, np.ndarray):
        return values[inside]
    return list(compress(values, inside.tolist()))


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
            "name its encoding."
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
