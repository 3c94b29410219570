"""Columns: how one field of a record becomes a small whole number, its level.

Levels 0 .. size-2 are the values or bins of the reference, level size-1 is "missing", and
`UNSEEN` marks a value the reference does not know: the whole record then falls into the
domain's "other" cell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError

__all__ = ["UNSEEN", "Bins", "Categories", "Column", "level_text"]

UNSEEN = -1
Mask = npt.NDArray[np.bool_]


def level_text(value: Any) -> str:
    """The text by which a category is known: 1, 1.0, Decimal("1.00"), "1" and "1.0" are the same.

    Clients store one field as a number here and as text there; a reference that told them apart
    would report a drift of formats, not of people. Texts like "007" are left alone.
    """
    if isinstance(value, Decimal):
        value = value.normalize()
        return f"{value:f}"
    text = str(value)
    whole, point, rest = text.partition(".")
    return whole if point and not rest.strip("0") and whole.lstrip("-").isdigit() else text


class _LevelLookup(dict[Any, int]):
    """Raw value -> level; each distinct raw value is turned into text once."""

    def __init__(self, values: Sequence[str]) -> None:
        super().__init__()
        self._by_text = {text: level for level, text in enumerate(values)}

    def __missing__(self, value: Any) -> int:
        level = self._by_text.get(level_text(value), UNSEEN)
        self[value] = level
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
        values, counts = _distinct_texts(series)
        order = np.lexsort((values, -counts))
        return cls(series.name, tuple(str(values[i]) for i in order))

    def encode(self, series: "nw.Series[Any]") -> Ints:
        """Levels of a series. Cost: one dictionary look-up per row."""
        lookup = _LevelLookup(self.values)
        lookup[None] = self.size - 1
        return np.fromiter(map(lookup.__getitem__, _plain_values(series)), np.int64, len(series))

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
        numbers, _ = _as_numbers(series)
        finite = numbers[np.isfinite(numbers)]
        if finite.size == 0:
            raise InvalidInputError(
                f"Column {series.name!r} has no finite number in the reference. Leave it out, "
                "or list it in `categorical`."
            )
        edges = np.unique(np.quantile(finite, np.arange(1, bins) / bins, method="inverted_cdf"))
        # An edge at the maximum would leave the last bin empty in the reference.
        return cls(series.name, tuple(float(e) for e in edges if e < finite.max()))

    def encode(self, series: "nw.Series[Any]") -> Ints:
        """Levels of a series. Cost: one binary search per row, vectorised."""
        numbers, unseen = _as_numbers(series)
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


def _plain_values(series: "nw.Series[Any]") -> list[Any]:
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


def _distinct_texts(series: "nw.Series[Any]") -> tuple[np.ndarray[Any, Any], Ints]:
    tally: dict[Any, int] = {}
    for value in _plain_values(series):
        tally[value] = tally.get(value, 0) + 1
    tally.pop(None, None)
    merged: dict[str, int] = {}
    for value, count in tally.items():
        text = level_text(value)
        merged[text] = merged.get(text, 0) + count
    return np.array(list(merged), dtype=object), np.array(list(merged.values()), dtype=np.int64)


def _as_numbers(series: "nw.Series[Any]") -> tuple[Floats, Mask]:
    """The series as floats with nan where missing, and where a value is present but no number."""
    missing, odd = _missing(series), np.zeros(len(series), dtype=bool)
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        numbers = series.cast(nw.Float64()).to_numpy().astype(np.float64)
        return np.where(missing, np.nan, numbers), odd
    numbers = np.full(len(series), np.nan)
    for row, value in enumerate(series.to_list()):
        if not missing[row]:
            numbers[row], odd[row] = _parse_number(value)
    return numbers, odd


def _parse_number(value: Any) -> tuple[float, bool]:
    """A value of a text column as a number, and whether it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan, True
    return number, math.isnan(number)
