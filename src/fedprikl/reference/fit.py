"""The columns of a table from its rows, read twice: what kind each is, then its levels."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import Bins, Categories, Column, Times, Values, value_list
from fedprikl.reference.domain import Table
from fedprikl.reference.gaps import Gaps
from fedprikl.reference.values import (
    Instant,
    Odd,
    Simple,
    instant,
    number,
    plain_numbers,
    simple,
    text_of,
)

__all__ = ["Chunk", "check_lists", "compared_columns", "fit_table", "present"]

Chunk = Mapping[str, Values]  # some rows, column by column
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")  # 007 is a name that looks like a number
NEARLY, SHOWN = 0.9, 5


def check_lists(**lists: Iterable[str] | None) -> None:
    """Refuses a text where a list of texts is meant: its letters would be taken one by one."""
    for name, given in lists.items():
        if isinstance(given, str):
            raise InvalidInputError(f"Give a list: {name}=[{given!r:.40}].")


def compared_columns(
    available: Sequence[str], columns: Sequence[str] | None, clients: str | None
) -> list[str]:
    """The columns that make up a cell: those named, or all but the clients' ids."""
    if columns is None:
        return [name for name in available if name != clients]
    if clients in columns:
        raise InvalidInputError(
            f"Column {clients!r} holds the clients' ids, so it cannot be compared. Leave it out of "
            "the columns."
        )
    return list(columns)


def fit_table(
    names: Sequence[str],
    passes: Callable[[], Iterable[Chunk]],
    *,
    bins: int,
    categorical: Iterable[str],
    missing: Iterable[str],
    texts: bool = False,
    note: Callable[[str], None] | None = None,
) -> Table:
    """How rows become codes; `passes` reads all of them, and is called twice.

    With `texts`, as in a CSV file, a column whose texts are all numbers (without leading zeros),
    or all dates or times, is one of numbers or times.
    """
    gaps = Gaps.of(missing)
    surveys = {name: _Survey(bins + 1, texts) for name in names}
    for chunk in passes():
        for name, survey in surveys.items():
            if (numbers := _numbers(chunk[name], gaps, texts=texts)) is not None:
                survey.add_numbers(numbers, len(chunk[name]))
            else:
                survey.add(_tally(chunk[name], gaps))
    forced = set(categorical)
    makers = {
        name: _Maker(name, "categories" if name in forced else survey.kind)
        for name, survey in surveys.items()
    }
    for name in [name for name in names if name not in forced] if note else []:
        if note and (remark := surveys[name].remark(name)):
            note(remark)
    for chunk in passes():
        for name, maker in makers.items():
            numbers = _numbers(chunk[name], gaps, texts=texts) if maker.kind == "bins" else None
            if numbers is not None:
                maker.arrays.append(numbers)
            else:
                maker.add(_tally(chunk[name], gaps))
    columns = {name: maker.column(bins) for name, maker in makers.items()}
    return Table(tuple(columns[name] for name in names), tuple(sorted(gaps.texts)))


def present(value: Any, gaps: Gaps) -> Simple:
    """The value as one of the simple kinds; None where it is missing."""
    found = value if isinstance(value, Instant) else simple(value)
    return None if gaps.hold(found) else found


def _numbers(values: Values, gaps: Gaps, *, texts: bool) -> Floats | None:
    """The numbers among the values, if all others are gaps and that is seen at once.

    The same as one by one, for columns of very many distinct numbers.
    """
    found: Floats | None = None
    if isinstance(values, np.ndarray):
        found = values.astype(np.float64) if values.dtype.kind in "iuf" else None
    elif texts:
        found = plain_numbers(values, gaps.texts)
        if found is not None and any(map(LEADING_ZERO.match, values)):
            return None
    if found is None:
        return None
    kept = found[~np.isnan(found)]
    return kept[~np.isin(kept, list(gaps.numbers))] if gaps.numbers else kept


def _tally(values: Values, gaps: Gaps) -> Iterator[tuple[Simple, int]]:
    """The distinct values with their rows; a value may come more than once."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        kept = values.astype(np.float64)
        distinct, rows = np.unique(kept, return_counts=True)
        yield from zip(
            (None if value != value or gaps.hold(value) else value for value in distinct.tolist()),
            rows.tolist(),
            strict=True,
        )  # fmt: skip
        return
    plain = value_list(values)
    if set(map(type, plain)) <= {str, int, float, Instant, type(None)}:
        yield from ((present(value, gaps), rows) for value, rows in Counter(plain).items())
    else:
        yield from ((present(value, gaps), 1) for value in plain)


@dataclass(slots=True)
class _Survey:
    """What a column holds, from a first reading in bounded memory."""

    enough: int  # distinct values, to be cut into bins
    texts: bool  # whether texts may be numbers or times
    gaps: int = 0
    numbers: int = 0
    times: int = 0
    others: int = 0
    distinct: set[float] = field(default_factory=set)
    odd: Counter[str] = field(default_factory=Counter)

    def add(self, tally: Iterable[tuple[Simple, int]]) -> None:
        for value, rows in tally:
            if value is None:
                self.gaps += rows
            elif (found := self._number(value)) is not None:
                self.numbers += rows
                self._remember(found)
            elif (moment := self._instant(value)) is not None:
                self.times += rows
                self._remember(moment)
            else:
                self.others += rows
                text = text_of(value)
                if len(self.odd) < 1000 and text is not None:
                    self.odd[text] += rows

    def add_numbers(self, numbers: Floats, rows: int) -> None:
        """Like `add`, of values that are numbers or gaps."""
        self.numbers += len(numbers)
        self.gaps += rows - len(numbers)
        if len(self.distinct) < self.enough:
            for value in np.unique(numbers)[: self.enough].tolist():
                self._remember(value)

    @property
    def kind(self) -> str:
        if len(self.distinct) + (self.gaps > 0) >= self.enough and not self.others:
            if self.numbers and not self.times:
                return "bins"
            if self.times and not self.numbers:
                return "times"
        return "categories"

    def remark(self, name: str) -> str | None:
        """If the column nearly is one of numbers or times, but a few texts prevent it."""
        present = self.numbers + self.times + self.others
        most, what = max((self.numbers, "numbers"), (self.times, "dates or times"))
        if not self.odd or len(self.distinct) < self.enough or not NEARLY * present <= most:
            return None
        shown = ", ".join(repr(text)[:40] for text, _ in self.odd.most_common(SHOWN))
        more = ", ..." if len(self.odd) > SHOWN else ""
        return (
            f"Column {name!r} is taken as categories, although {most:,} of its {present:,} values "
            f"are {what}: {shown}{more} are not. If they stand for gaps, name them as missing "
            "texts; otherwise clean the column."
        )

    def _number(self, value: Simple) -> float | None:
        if isinstance(value, bool) or (isinstance(value, str) and not self.texts):
            return None
        if isinstance(value, str) and (LEADING_ZERO.match(value) or value in TRUTHS):
            return None
        return number(value)

    def _instant(self, value: Simple) -> int | None:
        return None if isinstance(value, str) and not self.texts else instant(value)

    def _remember(self, value: float) -> None:
        if len(self.distinct) < self.enough:
            self.distinct.add(value)


TRUTHS = ("True", "False", "true", "false", "TRUE", "FALSE")


@dataclass(slots=True)
class _Maker:
    """Gathers what a column of a known kind is made from."""

    name: str
    kind: str
    found: Counter[Any] = field(default_factory=Counter)
    arrays: list[Any] = field(default_factory=list)

    def add(self, tally: Iterable[tuple[Simple, int]]) -> None:
        present = [(value, rows) for value, rows in tally if value is not None]
        if self.kind == "categories":
            for value, rows in present:
                text = text_of(value)
                if text is None or value is Odd.VALUE:
                    raise InvalidInputError(
                        f"Column {self.name!r} holds lists or other values which have no natural "
                        "cells. Turn them into numbers or texts first, or leave the column out "
                        "with `columns`."
                    )
                self.found[text] += rows
            return
        read: Callable[[Simple], float | int | None] = number if self.kind == "bins" else instant
        kind = np.float64 if self.kind == "bins" else np.int64
        values = np.array([read(value) for value, _ in present], dtype=kind)
        self.arrays.append(np.repeat(values, [rows for _, rows in present]))

    def column(self, bins: int) -> Column:
        if self.kind == "categories":
            return Categories.from_tally(self.name, dict(self.found))
        values = np.concatenate(self.arrays)
        if self.kind == "bins":
            return Bins.from_numbers(self.name, values, bins)
        return Times.from_instants(self.name, values, bins)
