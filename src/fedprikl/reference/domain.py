"""The finite domain: every record belongs to exactly one cell, or is out of the domain."""

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import OUT_OF_DOMAIN, Column, Reader, Values
from fedprikl.reference.rows import FrameSource
from fedprikl.reference.values import MISSING_TEXTS, number, simple

MAX_CODES = 2**62
VIEWS = "fedprikl.views"  # the group of entry points
FEW = 2**16  # codes that are counted without a search
Levels = Mapping[str, Ints]  # of some rows: one level per row, for each column that is read
LevelReader = Callable[[Mapping[str, Values]], Levels]  # kept for many chunks of rows


class OneField(ABC):
    """An encoder of records that have one field, whose level is the code."""

    __slots__ = ()
    what: ClassVar[str]  # records are, for people

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of possible codes."""

    @abstractmethod
    def label(self, code: int) -> str:
        """What a person calls the code."""

    @abstractmethod
    def encode(self, records: Any) -> Ints:
        """One code per record."""

    def separate(self, records: Any) -> npt.NDArray[Any] | list[Any]:
        """The records one by one; an array of numbers as it is.

        A list never becomes an array as a whole: numpy would look for a type that fits all of
        them, and one record could change what the others are.
        """
        if isinstance(records, np.ndarray) and records.ndim:
            return records if records.dtype.kind in "iufb" else list(records)
        if isinstance(records, str | bytes | np.ndarray) or not isinstance(records, Iterable):
            raise InvalidInputError(f"Records of this reference are {self.what}.")
        return list(records)

    def reader(self) -> LevelReader:
        """From the values of the only column to their codes."""
        return lambda chunk: {name: self.encode(values) for name, values in chunk.items()}

    def codes(self, levels: Levels) -> Ints:
        """The only column."""
        (codes,) = levels.values()
        return codes


@dataclass(frozen=True, slots=True)
class Indices(OneField):
    """Records that are cell numbers already: 0 .. size-1, anything else is out of the domain."""

    what: ClassVar[str] = "cell numbers: a list or an array of whole numbers"
    number: int

    @property
    def size(self) -> int:
        """Number of possible codes."""
        return self.number

    def encode(self, records: Any) -> Ints:
        """The numbers themselves, if they are whole and within the range."""
        values = _numbers(self.separate(records))
        known = (values >= 0) & (values < self.size) & (values == np.floor(values))
        return np.where(known, values, OUT_OF_DOMAIN).astype(np.int64)

    def label(self, code: int) -> str:
        """The number as text."""
        return str(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCode(OneField):
    """Cuts a square image into blocks x blocks parts; a part's bit is 1 if it holds ink.

    "Holds ink" means: mean of (white - pixel) over the part > threshold. The paper does not print
    its threshold; 0 (the part is not pure white) is the one that reproduces its closest and
    furthest pairs of digits. Bits run row by row, the first part most significant.

    >>> page = np.full((1, 28, 28), 255)
    >>> page[0, 0, 0] = 0
    >>> BlockCode().encode(page)
    array([32768])
    """

    what: ClassVar[str] = "images: an array of numbers, or a list of them"
    side: int = 28
    blocks: int = 4
    white: float = 255.0
    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_positive_int(self.side, "side")
        check_positive_int(self.blocks, "blocks")
        check_finite(self.white, "white")
        check_finite(self.threshold, "threshold")
        if self.side % self.blocks:
            raise InvalidInputError(
                f"An image of side {self.side} cannot be cut into {self.blocks} equal blocks. "
                "Choose a number of blocks that divides the side."
            )
        if self.blocks**2 > 20:
            raise InvalidInputError(
                f"{self.blocks} x {self.blocks} blocks give 2^{self.blocks**2} cells; use at most "
                "4 x 4."
            )

    @property
    def size(self) -> int:
        """Number of possible codes."""
        return 1 << self.blocks**2

    def encode(self, images: Any) -> Ints:
        """Codes of images given as an array (n, side, side). Cost: one pass over the pixels.

        An image that cannot be read is `OUT_OF_DOMAIN`, and no other image notices: one with a nan,
        an infinity or a text among its pixels, or one of another shape in a list of images.
        """
        pixels = self._pixels(self.separate(images))
        width = self.side // self.blocks
        parts = pixels.reshape(-1, self.blocks, width, self.blocks, width)
        with np.errstate(over="ignore", invalid="ignore"):
            means = parts.mean(axis=(2, 4), dtype=np.float64).reshape(-1, self.blocks**2)
        ink = self.white - means
        bits = (ink > self.threshold).astype(np.int64)
        place: Ints = np.left_shift(1, np.arange(self.blocks**2 - 1, -1, -1, dtype=np.int64))
        return np.where(np.isfinite(ink).all(axis=1), bits @ place, OUT_OF_DOMAIN).astype(np.int64)

    def _pixels(self, images: npt.NDArray[Any] | list[Any]) -> npt.NDArray[Any]:
        shape = (self.side, self.side)
        if isinstance(images, np.ndarray):
            if images.ndim != 3 or images.shape[1:] != shape:
                raise InvalidInputError(
                    f"Images must have shape (n, {self.side}, {self.side}), got {images.shape}."
                )
            return images
        pixels = np.full((len(images), *shape), np.nan)
        for image, into in zip(images, pixels, strict=True):
            into[:] = self._image(image)
        return pixels

    def _image(self, image: Any) -> npt.NDArray[Any] | float:
        """The pixels of one image; nan if it is none of this shape."""
        if isinstance(image, np.ndarray) and image.dtype.kind in "iufb":
            return image if image.shape == (self.side, self.side) else np.nan
        try:
            rows = [[number(simple(pixel)) for pixel in row] for row in image]
        except Exception:  # whatever it is, the other images do not notice
            return np.nan
        fits = len(rows) == self.side and all(len(row) == self.side for row in rows)
        return np.array(rows, dtype=np.float64) if fits else np.nan  # None becomes nan

    def label(self, code: int) -> str:
        """The bits, row by row, like 0110/1001/1001/0110."""
        bits = f"{code:0{self.blocks**2}b}"
        return "/".join(bits[i : i + self.blocks] for i in range(0, len(bits), self.blocks))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a data frame; the code numbers the combination of the columns' levels.

    `missing` are the texts that stand for a gap, in files and in frames. Combinations of very many
    columns (more than 2^62) have no code; only levels are asked of such a table.
    """

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = MISSING_TEXTS

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidInputError("A reference needs at least one column. Name one in `columns`.")
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise InvalidInputError(f"A column is named twice: {', '.join(names)}.")

    @property
    def size(self) -> int:
        """Number of combinations of levels."""
        return math.prod(column.size for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def reader(self) -> LevelReader:
        """From the values of each column to their levels; to be kept for many chunks of rows."""
        readers = {column.name: Reader(column, self.missing) for column in self.columns}
        return lambda chunk: {name: reader(chunk[name]) for name, reader in readers.items()}

    def part(self, names: Sequence[str]) -> "Table":
        """The table of some of its columns alone."""
        by_name = dict(zip(self.names, self.columns, strict=True))
        return Table(tuple(by_name[name] for name in names), self.missing)

    def codes(self, levels: Levels) -> Ints:
        """The levels of a row in mixed radix, the first column most significant.

        `OUT_OF_DOMAIN` where any level is.
        """
        check_size(self.size)
        first, *more = self.columns
        codes = levels[first.name]
        outside = codes == OUT_OF_DOMAIN
        for column in more:
            codes = codes * column.size + levels[column.name]
            outside = outside | (levels[column.name] == OUT_OF_DOMAIN)
        return np.where(outside, OUT_OF_DOMAIN, codes) if more else codes

    def levels(self, codes: Ints) -> dict[str, Ints]:
        """The inverse of `codes`."""
        found = {}
        for column in reversed(self.columns):
            codes, found[column.name] = np.divmod(codes, column.size)
        return found

    def label(self, code: int) -> str:
        """Like `city=Basel, age=30 to 40`."""
        levels = self.levels(np.array([code]))
        of_columns = ((column, int(levels[column.name][0])) for column in self.columns)
        return ", ".join(f"{column.name}={column.label(level)}" for column, level in of_columns)


class ViewKind(ABC):
    """The encoder of a view that is neither a column nor a pair, such as groups of cells.

    A new kind is a subclass in one file: how the levels of a row become one of its codes, and how
    it is written into a reference's file. It is known by its `kind` once it is imported; where it
    is only installed, an entry point of the group `fedprikl.views` leads to it. The command line
    and sites then read references that have such views. `Reference.fit(..., views=[...])` makes
    them; plans, releases and reports name them by `columns`.
    """

    known: ClassVar[dict[str, type["ViewKind"]]] = {}
    kind: ClassVar[str]
    columns: tuple[str, ...]  # its name; one word for all of it is enough
    table: Table  # the columns that it needs

    def __init_subclass__(cls) -> None:
        ViewKind.known[cls.kind] = cls

    @classmethod
    def named(cls, kind: str) -> type["ViewKind"]:
        """The kind of this name, imported or installed."""
        for found in () if kind in cls.known else entry_points(group=VIEWS, name=kind):
            found.load()
        if kind not in cls.known:
            raise InvalidInputError(
                f"views of the kind {kind!r:.40} are not known here: install what has them."
            )
        return cls.known[kind]

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of possible codes."""

    @abstractmethod
    def codes(self, levels: Levels) -> Ints:
        """One code per row; `OUT_OF_DOMAIN` where there is none."""

    @abstractmethod
    def label(self, code: int) -> str:
        """What a person calls the code."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` needs beside the table, as JSON."""

    @classmethod
    @abstractmethod
    def from_dict(cls, table: Table, fields: dict[str, Any]) -> "ViewKind":
        """The inverse, for the table of a reference."""

    def reader(self) -> LevelReader:
        """From the values of each column to their levels."""
        return self.table.reader()


def _numbers(values: npt.NDArray[Any] | list[Any]) -> npt.NDArray[Any]:
    """Numbers, nan for whatever is none."""
    if isinstance(values, np.ndarray):
        return values.ravel()
    if set(map(type, values)) <= {int, float}:
        with contextlib.suppress(OverflowError):
            return np.array(values, dtype=np.float64)
    return np.array(list(map(_number, values)), dtype=np.float64)  # None becomes nan


def _number(value: Any) -> float | None:
    try:
        return number(simple(value))
    except Exception:  # an object of whatever kind must not stop the other records
        return None


# Turns records into codes (whole numbers of at least 0, or `OUT_OF_DOMAIN`) in two steps, so that
# all views of a table read it once: records become levels of columns, and these become codes.
Encoder = Table | OneField | ViewKind


def read_levels(encoder: Encoder, records: Any) -> Levels:
    """The levels of records in memory: rows of a frame, or what the encoder takes."""
    if isinstance(encoder, OneField):
        return {"": encoder.encode(records)}
    source = FrameSource(records)
    names = encoder.names if isinstance(encoder, Table) else source.names
    source.require(names)
    read = encoder.reader()
    parts = [read(chunk.columns) for chunk in source.chunks(names)] or [
        read({n: [] for n in names})
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True, slots=True, eq=False)
class Domain:
    """Cells 0 .. size-2 stand for the codes the reference knows; the last one is "other".

    It takes every record out of the domain: one with an unseen value or an unseen combination.
    Nothing is dropped, so the cells of a data set always sum to its number of records.
    """

    encoder: Encoder
    codes: Ints  # strictly increasing; cell i stands for codes[i]

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 1 or codes.dtype != np.int64 or codes.min(initial=0) < 0:
            raise InvalidInputError("The codes of a domain must be whole numbers of at least 0.")
        if codes.size:
            check_size(self.encoder.size)
        if np.any(np.diff(codes) <= 0) or (codes.size and codes[-1] >= self.encoder.size):
            raise InvalidInputError("The codes of a domain must be distinct, sorted and in range.")
        object.__setattr__(self, "codes", codes)

    @property
    def size(self) -> int:
        """Number of cells, "other" included."""
        return len(self.codes) + 1

    @property
    def other(self) -> int:
        """The cell of everything the reference does not know."""
        return len(self.codes)

    def cells(self, levels: Levels) -> Ints:
        """One cell per row. Cost: a binary search per row."""
        if not self.codes.size:  # of a table of too many combinations, rows have no codes
            return np.full(_rows(levels), self.other, dtype=np.int64)
        codes = self.encoder.codes(levels)
        cells = np.searchsorted(self.codes, codes)
        known = self.codes[np.minimum(cells, self.other - 1)] == codes
        return np.where(known, cells, self.other).astype(np.int64)

    def count(self, levels: Levels) -> Ints:
        """h(x): how many rows fall into each cell, "other" last."""
        if not self.codes.size or self.encoder.size > FEW:
            return np.bincount(self.cells(levels), minlength=self.size).astype(np.int64)
        codes = self.encoder.codes(levels)
        tally = np.bincount(codes + 1, minlength=self.encoder.size + 1)  # `OUT_OF_DOMAIN` is -1
        found = tally[self.codes + 1]
        return np.append(found, len(codes) - found.sum()).astype(np.int64)

    def label(self, cell: int) -> str:
        """What a person calls the cell."""
        if not 0 <= cell < self.size:
            raise InvalidInputError(f"Cell {cell} is outside the domain 0 .. {self.size - 1}.")
        return "other" if cell == self.other else self.encoder.label(int(self.codes[cell]))


def _rows(levels: Levels) -> int:
    return len(next(iter(levels.values())))


def all_codes(size: int) -> Ints:
    """Every code 0 .. size-1, for a domain in which each has its cell."""
    return np.arange(check_positive_int(size, "size"), dtype=np.int64)


def check_size(size: int) -> None:
    """Refuses more combinations than can be numbered."""
    if size > MAX_CODES:
        raise InvalidInputError(
            f"The columns have about 10^{math.log10(size):.0f} combinations, more than 2^62. Use "
            "fewer columns or fewer bins, or compare each column by itself (joint=False)."
        )
