"""Columns: how one field of a record becomes a small whole number, its level.

Levels 0 .. size-2 are the values or bins of the reference, level size-1 is "missing", and
`OUT_OF_DOMAIN` marks a value the reference does not know: the whole record then falls into the
domain's "other" cell.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.values import (
    NO_INSTANT,
    Instant,
    Odd,
    Simple,
    instant,
    instants,
    number,
    plain_numbers,
    simple,
    text_of,
    time_text,
)

OUT_OF_DOMAIN = -1
REMEMBERED = 2**16  # values of a column


@dataclass(frozen=True, slots=True)
class Gaps:
    """The texts that stand for a missing value, and the numbers among them.

    Where a text is a number, like -999, that number stands for a gap too, however it is written:
    whether a column holds texts or numbers is not for one record to decide.
    """

    texts: frozenset[str]
    numbers: frozenset[float]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Gaps":
        """From the texts alone."""
        known = frozenset(texts)
        found = (number(text) for text in known)
        return cls(known, frozenset(value for value in found if value is not None))

    def hold(self, value: Simple) -> bool:
        """Whether the value is missing."""
        if value is None or (isinstance(value, str) and value in self.texts):
            return True
        return bool(self.numbers) and number(value) in self.numbers


Values = Sequence[Any] | npt.NDArray[Any]  # of one column: any mixture, or an array of one kind
Rule = Callable[[Simple], int]  # from a value that is not missing to its level


@dataclass(frozen=True, slots=True)
class Categories:
    """A categorical column: one level per text value."""

    kind: ClassVar[str] = "categories"
    name: str
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of levels, the missing level included."""
        return len(self.values) + 1

    def rule(self) -> Rule:
        """From a value to its level."""
        by_text: dict[str | None, int] = {text: level for level, text in enumerate(self.values)}
        return lambda value: by_text.get(text_of(value), OUT_OF_DOMAIN)

    def of_array(self, _values: npt.NDArray[Any]) -> Ints | None:
        """Levels of a whole array at once, where that is possible."""
        return None

    def label(self, level: int) -> str:
        """What a person calls the level."""
        return "missing" if level == self.size - 1 else self.values[level]


@dataclass(frozen=True, slots=True)
class Bins:
    """A numeric column cut at the reference's quantiles into bins (e_i, e_{i+1}].

    The first and last bin are open-ended, so every number has a bin, infinity included; text that
    is no number is out of the domain.
    """

    kind: ClassVar[str] = "bins"
    name: str
    edges: tuple[float, ...]  # inner edges only, strictly increasing

    @property
    def size(self) -> int:
        """Number of levels, the missing level included."""
        return len(self.edges) + 2

    @classmethod
    def from_numbers(cls, name: str, numbers: Floats, bins: int) -> "Bins":
        """Edges at the k/bins quantiles of the finite numbers; equal edges are merged."""
        finite = numbers[np.isfinite(numbers)]
        if finite.size == 0:
            raise InvalidInputError(
                f"Column {name!r} has no finite number in the reference. Leave it out, "
                "or list it in `categorical`."
            )
        return cls(name, tuple(edge + 0.0 for edge in _inner_edges(finite, bins)))  # -0.0 is 0.0

    def read(self, value: Simple) -> float | None:
        """The value as the edges are; None if it is none."""
        return number(value)

    def show(self, edge: float | None) -> str:
        """An edge for people; None: there is no edge."""
        return "any number" if edge is None else f"{edge:g}"

    def rule(self) -> Rule:
        """From a value to its level."""

        def level(value: Simple) -> int:
            found = self.read(value)
            return OUT_OF_DOMAIN if found is None else bisect_left(self.edges, found)

        return level

    def of_array(self, values: npt.NDArray[Any]) -> Ints | None:
        """Levels of a whole array at once, where that is possible."""
        if values.dtype.kind not in "iuf":
            return None
        numbers = values.astype(np.float64)
        levels = np.searchsorted(np.asarray(self.edges), numbers, side="left").astype(np.int64)
        levels[np.isnan(numbers)] = self.size - 1
        return levels

    def label(self, level: int) -> str:
        """What a person calls the level."""
        if level == self.size - 1:
            return "missing"
        below, above = ([None, *self.edges, None][at] for at in (level, level + 1))
        if below is None:
            return self.show(None) if above is None else f"up to {self.show(above)}"
        if above is None:
            return f"over {self.show(below)}"
        return f"{self.show(below)} to {self.show(above)}"


@dataclass(frozen=True, slots=True)
class Times(Bins):
    """A column of dates or times cut at the reference's quantiles, like `Bins`.

    A time without a zone is UTC, a date its first moment; what is no time is out of the domain.
    """

    kind: ClassVar[str] = "times"
    edges: tuple[int, ...]  # microseconds since 1970 in UTC; inner edges, strictly increasing

    @classmethod
    def from_instants(cls, name: str, moments: Ints, bins: int) -> "Times":
        """Edges at the k/bins quantiles; equal edges are merged."""
        return cls(name, tuple(_inner_edges(moments, bins)))

    def read(self, value: Simple) -> float | None:
        """The value as the edges are; None if it is none."""
        return instant(value)

    def show(self, edge: float | None) -> str:
        """An edge for people; None: there is no edge."""
        return "any time" if edge is None else time_text(int(edge))

    def of_array(self, values: npt.NDArray[Any]) -> Ints | None:
        """Levels of a whole array at once, where that is possible."""
        if values.dtype.kind != "M":
            return None
        moments = instants(values)
        edges = np.asarray(self.edges, dtype=np.int64)
        levels = np.searchsorted(edges, moments, side="left").astype(np.int64)
        levels[moments == NO_INSTANT] = OUT_OF_DOMAIN
        levels[np.isnat(values)] = self.size - 1
        return levels


Column = Categories | Bins


class Reader:
    """Levels of one column, value by value: no value sees the others, or their common type.

    `missing` are the texts that stand for a gap (`Gaps`). The latest distinct values are
    remembered, so a reader is best kept for all chunks of a file, and for all files of a round.
    """

    def __init__(self, column: Column, missing: Collection[str]) -> None:
        self._column = column
        self._gaps, self._gap = Gaps.of(missing), column.size - 1
        self._rule = column.rule()
        self._remembered = lru_cache(REMEMBERED)(self._level)

    def __call__(self, values: Values) -> Ints:
        """One level per value."""
        if self._column.kind == "bins" and not isinstance(values, np.ndarray):
            numbers = plain_numbers(values, self._gaps.texts)
            values = values if numbers is None else numbers
        if isinstance(values, np.ndarray):
            at_once = self._column.of_array(values)
            if at_once is not None:
                if self._gaps.numbers and values.dtype.kind in "iuf":
                    gaps = np.isin(values.astype(np.float64), list(self._gaps.numbers))
                    at_once[gaps] = self._gap
                return at_once
        listed = value_list(values)
        level = self._remembered if is_plain(listed) else self._level
        return np.fromiter(map(level, listed), np.int64, len(listed))

    def _level(self, value: Any) -> int:
        try:
            found = simple(value)
            return self._gap if self._gaps.hold(found) else self._rule(found)
        except Exception:  # an object of whatever kind must not stop the other records
            return OUT_OF_DOMAIN


def is_plain(values: Sequence[Any]) -> bool:
    """Whether equal values mean the same: True == 1 as a key, and odd objects may not hash."""
    return set(map(type, values)) <= {str, int, float, Instant, type(None)}


def value_list(values: Values) -> Sequence[Any]:
    """The values one by one; moments of an array as `Instant`."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind != "M":
        plain: list[Any] = values.tolist()
        return plain
    return [
        None if gap else Odd.VALUE if moment == NO_INSTANT else Instant(moment)
        for moment, gap in zip(instants(values).tolist(), np.isnat(values).tolist(), strict=True)
    ]


def _inner_edges(values: npt.NDArray[Any], bins: int) -> list[Any]:
    edges = np.unique(np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf"))
    # An edge at the maximum would leave the last bin empty in the reference.
    inner: list[Any] = edges[edges < values.max()].tolist()
    return inner
