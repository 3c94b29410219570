"""Columns: how one field of a record becomes a small whole number, its level.

Levels 0 .. size-2 are the values or bins of the reference, level size-1 is "missing", and
`UNSEEN` marks a value the reference does not know: the whole record then falls into the
domain's "other" cell.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError

__all__ = ["UNSEEN", "Bins", "Categories", "Column", "as_numbers", "level_text", "plain_values"]

UNSEEN = -1
_TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
Mask = npt.NDArray[np.bool_]


def level_text(value: Any) -> str:
    """The text by which a category is known: 1, 1.0, Decimal("1.00"), "1" and "1.0" are the same.

    So are True, "true" and "TRUE". Clients store one field as a number or a truth value here and
    as text there; a reference that told them apart would report a drift of formats, not of people.
    Texts like "007" are left alone.
    """
    if isinstance(value, Decimal):
        value = value.normalize()
        return f"{value:f}"
    text = str(value)
    if text in _TRUTH:
        return _TRUTH[text]
    whole, point, rest = text.partition(".")
    if not (point and not rest.strip("0") and whole.lstrip("-").isdigit()):
        return text
    return "0" if whole == "-0" else whole  # -0.0 equals 0.0, so it cannot be another level


class _LevelLookup(dict[Any, int]):
    """Raw value -> level; each distinct raw value is turned into text once."""

    def __init__(self, column: "Categories") -> None:
        super().__init__()
        self._by_text = {text: level for level, text in enumerate(column.values)}
        self._missing = column.size - 1

    def find(self, value: Any) -> int:
        if value is None:
            return self._missing
        return self._by_text.get(level_text(value), UNSEEN)

    def __missing__(self, value: Any) -> int:
        level = self[value] = self.find(value)
        return level


@dataclass(frozen=True, slots=True)
class Categories:
    """A categorical column: one level per text value, most frequent in the reference first."""

    kind: ClassVar[str] = "categories"
    name: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of levels, the missing level included."""
        return len(self.values) + 1

    @classmethod
    def fit(cls, series: "nw.Series[Any]") -> "Categories":
        """The column's distinct texts, most frequent first, ties in text order."""
        tally: dict[Any, int] = {}
        for value in plain_values(series):
            tally[value] = tally.get(value, 0) + 1
        return cls.from_tally(series.name, tally.items())

    @classmethod
    def from_tally(cls, name: str, tally: Iterable[tuple[Any, int]]) -> "Categories":
        """The same from pairs (value, how often); None stands for a missing value."""
        merged: dict[str, int] = {}
        for value, count in tally:
            if value is not None:
                text = level_text(value)
                merged[text] = merged.get(text, 0) + count
        return cls(name, tuple(sorted(merged, key=lambda text: (-merged[text], text))))

    def encode(self, series: "nw.Series[Any]") -> Ints:
        """Levels of a series. Cost: one dictionary look-up per row."""
        lookup = _LevelLookup(self)
        return np.fromiter(map(lookup.__getitem__, plain_values(series)), np.int64, len(series))

    def level_of(self) -> Callable[[Any], int]:
        """A function from one value (None: missing) to its level, for values that come one by one.

        Unlike `encode`, it remembers only the latest values, so its memory is bounded.
        """
        return lru_cache(maxsize=2**14)(_LevelLookup(self).find)

    def label(self, level: int) -> str:
        """What a person calls the level."""
        return "missing" if level == self.size - 1 else self.values[level]


@dataclass(frozen=True, slots=True)
class Bins:
    """A numeric column cut at the reference's quantiles into bins (e_i, e_{i+1}].

    The first and last bin are open-ended, so every number has a bin; nan counts as missing, and
    text that is no number is unseen.
    """

    kind: ClassVar[str] = "bins"
    name: str
    edges: tuple[float, ...]  # inner edges only, strictly increasing

    @property
    def size(self) -> int:
        """Number of levels, the missing level included."""
        return len(self.edges) + 2

    @classmethod
    def fit(cls, series: "nw.Series[Any]", bins: int) -> "Bins":
        """Edges at the k/bins quantiles of the finite values; equal edges are merged."""
        numbers, _ = as_numbers(series)
        return cls.from_numbers(series.name, numbers, bins)

    @classmethod
    def from_numbers(cls, name: str, numbers: Floats, bins: int) -> "Bins":
        """The same from an array of numbers; those that are not finite are passed over."""
        finite = numbers[np.isfinite(numbers)]
        if finite.size == 0:
            raise InvalidInputError(
                f"Column {name!r} has no finite number in the reference. Leave it out, "
                "or list it in `categorical`."
            )
        edges = np.unique(np.quantile(finite, np.arange(1, bins) / bins, method="inverted_cdf"))
        # An edge at the maximum would leave the last bin empty in the reference.
        return cls(name, tuple(float(e) for e in edges if e < finite.max()))

    def encode(self, series: "nw.Series[Any]") -> Ints:
        """Levels of a series. Cost: one binary search per row, vectorised."""
        numbers, unseen = as_numbers(series)
        levels = np.searchsorted(np.asarray(self.edges), numbers, side="left").astype(np.int64)
        levels[np.isnan(numbers)] = self.size - 1
        levels[unseen] = UNSEEN
        return levels

    def label(self, level: int) -> str:
        """What a person calls the level."""
        if level == self.size - 1:
            return "missing"
        if not self.edges:
            return "any number"
        if level == 0:
            return f"<= {self.edges[0]:g}"
        if level == len(self.edges):
            return f"> {self.edges[-1]:g}"
        return f"({self.edges[level - 1]:g}, {self.edges[level]:g}]"


Column = Categories | Bins


def _missing(series: "nw.Series[Any]") -> Mask:
    """Where a value is missing: null, or nan in a column of floats."""
    missing = series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan()
    return missing.fill_null(True).to_numpy().astype(bool)


def plain_values(series: "nw.Series[Any]") -> list[Any]:
    """The series as Python values with None for every kind of missing value."""
    values = series.to_list()
    if series.dtype == nw.Float32:
        values = list(series.to_numpy())  # 0.1 as text, not the 0.10000000149 of its double
    if series.dtype in (nw.Boolean, nw.Object) or series.dtype.is_nested():
        # True == 1 as a dictionary key, and odd objects may not hash: go through the text.
        values = [level_text(value) for value in values]
    for row in np.flatnonzero(_missing(series)).tolist():
        values[row] = None
    return values


def as_numbers(series: "nw.Series[Any]") -> tuple[Floats, Mask]:
    """The series as floats with nan where missing, and where a value is present but no number."""
    missing, odd = _missing(series), np.zeros(len(series), dtype=bool)
    if series.dtype.is_integer():  # numpy rounds beyond 2^53, where pyarrow's cast would refuse
        whole = series.fill_null(0).to_numpy().astype(np.float64)
        return np.where(missing, np.nan, whole), odd
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        numbers = series.cast(nw.Float64()).to_numpy().astype(np.float64)
        return np.where(missing, np.nan, numbers), odd
    numbers = np.full(len(series), np.nan)
    for row, value in enumerate(series.to_list()):
        if not missing[row]:
            numbers[row], odd[row] = _parse_number(value)
    return numbers, odd


def _parse_number(value: Any) -> tuple[float, bool]:
    """A value of a text column as a number, and whether it is none.

    Numbers are written in ASCII, as everywhere a file is read: other digits are no number.
    """
    if isinstance(value, str) and not value.isascii():
        return np.nan, True
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan, True
    return number, math.isnan(number)
