"""The columns of a table from its rows, read twice: what kind each is, then its levels."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import (
    UNSEEN,
    Bins,
    Categories,
    Column,
    Gaps,
    Times,
    Values,
    value_list,
)
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Table, check_size
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
from fedprikl.reference.views import View, ViewRows, check_pairs, view_of

Chunk = Mapping[str, Values]  # some rows, column by column
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")  # 007 is a name that looks like a number
NEARLY, SHOWN = 0.9, 5
TRUTHS = ("True", "False", "true", "false", "TRUE", "FALSE")
MANY = 4096  # combinations that are never too many
CROWDED = 0.5  # combinations per record


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


class Fitted(NamedTuple):
    """What a reference has beside its table."""

    codes: Ints  # of the joint cells; none if the columns are too many to be taken together
    mass: Floats
    correlation: Correlation | None
    views: tuple[View, ...]


def fit_cells(
    table: Table,
    chunks: Iterable[Chunk],
    clients: str | None,
    *,
    pairs: Sequence[Sequence[str]] = (),
    joint: bool | None = None,
) -> Fitted:
    """Joint cells and views of all rows, in one reading.

    Without `joint` the cells are joint ones where that makes sense: there are at most 2^62
    combinations of levels, and at most 4096 occur, or at most half as many as there are records.
    """
    columns = [(name,) for name in table.names] if len(table.names) > 1 else []
    views = [_ViewFit(table, names) for names in (*columns, *check_pairs(table.names, pairs))]
    if joint is False and not views:
        raise InvalidInputError(
            "A table of one column is compared by that column anyway. Leave joint=False out."
        )
    if joint:
        check_size(table.size)
    whole = _Groups() if table.countable and joint is not False else None
    rows = _Rows(table, clients)
    for holders, levels in rows.read(chunks):
        if whole is not None:
            whole.add(holders, table.combine(levels))
        for view in views:
            view.add(holders, levels)
    ranks = rows.ranks()
    found = tuple(view.fitted(ranks) for view in views)
    if whole is not None:
        holder, code, held = whole.merged()
        seen, place = np.unique(code, return_inverse=True)
        if joint or not views or len(seen) <= max(MANY, CROWDED * rows.number):
            mass = np.append(np.bincount(place, weights=held), 0.0)
            kind = _correlation(ranks, holder, place, held)
            if seen[0] == UNSEEN:  # pragma: no cover  the table was fitted to these very rows
                seen, mass = seen[1:], np.append(mass[1:-1], mass[0])
            return Fitted(seen, mass, kind, found)
    return Fitted(np.zeros(0, dtype=np.int64), np.array([float(rows.number)]), None, found)


class _Rows:
    """Reads rows: the number of the client and the level in each column, of every row."""

    def __init__(self, table: Table, clients: str | None) -> None:
        self._read, self._gaps = table.reader(), Gaps.of(table.missing)
        self._clients = clients
        self._numbers: dict[str, int] = {}  # of the clients, in the order of their first record
        self.number = 0

    def read(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Ints, list[Ints]]]:
        """All rows; those without a client are named in an error at the end."""
        nameless = 0
        for chunk in chunks:
            levels = self._read(chunk)
            holders = np.zeros(len(levels[0]), dtype=np.int64)
            if self._clients is not None:
                ids = _client_texts(chunk[self._clients], self._gaps)
                nameless += ids.count(None)
                numbers = self._numbers
                named = [numbers.setdefault(i, len(numbers)) for i in ids if i is not None]
                holders = np.array(named, dtype=np.int64)
                if None in ids:
                    kept = [i is not None for i in ids]
                    levels = [of_column[kept] for of_column in levels]
            self.number += len(holders)
            yield holders, levels
        if nameless:
            raise InvalidInputError(
                f"{nameless:,} rows of column {self._clients!r} name no client. Fill them, or "
                "remove these rows."
            )
        if not self.number:
            raise InvalidInputError("The reference data has no rows. Give at least one record.")

    def ranks(self) -> Ints | None:
        """The place of each client in the order of their texts; None without clients."""
        if self._clients is None:
            return None
        _, place = np.unique(np.array(list(self._numbers)), return_inverse=True)
        return place.astype(np.int64)


class _ViewFit:
    """How many rows each (client, code) of a view has; what is distinct is kept."""

    AT_ONCE = 2**16

    def __init__(self, table: Table, columns: Sequence[str]) -> None:
        self._table, self._columns = table, columns
        self._rows = ViewRows.of(table, columns)
        self._width = self._rows.part.size + 1  # the last code stands for `UNSEEN`
        self._keys = np.zeros(0, dtype=np.int64)  # client * width + code
        self._held = np.zeros(0, dtype=np.int64)
        self._waiting: list[Ints] = []

    def add(self, holders: Ints, levels: Sequence[Ints]) -> None:
        if holders.size and (int(holders.max()) + 1) * self._width > 2**62:
            raise InvalidInputError(
                f"The columns {', '.join(map(repr, self._columns))} have too many combinations to "
                "be a pair. Leave the pair out, or use fewer bins."
            )
        codes = self._rows.codes(levels)
        keys = holders * self._width + np.where(codes == UNSEEN, self._width - 1, codes)
        self._waiting.append(keys)
        # Merged whenever as much waits as is kept: the cost stays in proportion to the rows.
        if sum(map(len, self._waiting)) > max(self.AT_ONCE, len(self._keys)):
            self._merge()

    def fitted(self, ranks: Ints | None) -> View:
        self._merge()
        holder, code = np.divmod(self._keys, self._width)
        seen, place = _distinct(code)
        mass: Floats = np.bincount(place, weights=self._held).astype(np.float64)
        kind = _correlation(ranks, holder, place, self._held)
        if seen[-1] == self._width - 1:  # pragma: no cover  the table was fitted to these very rows
            return view_of(self._table, self._columns, seen[:-1], mass, kind)
        return view_of(self._table, self._columns, seen, np.append(mass, 0.0), kind)

    def _merge(self) -> None:
        new = np.concatenate([np.zeros(0, dtype=np.int64), *self._waiting])
        held = np.concatenate([self._held, np.ones(len(new), dtype=np.int64)])
        self._waiting.clear()
        self._keys, place = _distinct(np.concatenate([self._keys, new]))
        self._held = np.bincount(place, weights=held).astype(np.int64)


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The distinct keys in increasing order, and the place of each; no sort if they are dense."""
    bound = int(keys.max(initial=-1)) + 1
    if bound > 4 * len(keys) + 2**16:
        found, place = np.unique(keys, return_inverse=True)
        return found, place.astype(np.int64)
    there = np.zeros(bound, dtype=np.bool_)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def _correlation(ranks: Ints | None, holder: Ints, place: Ints, held: Ints) -> Correlation | None:
    if ranks is None:
        return None
    cells = np.arange(int(place.max(initial=-1)) + 1)
    return Correlation.of_pairs(ranks[holder], place, held.astype(np.float64), cells)


class _Groups:
    """How many rows each (client, code) has; merged now and then, to hold what is distinct."""

    AT_MOST = 64

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints]] = []

    def add(self, holders: Ints, codes: Ints) -> None:
        self._parts.append((holders, codes, np.ones(len(codes), dtype=np.int64)))
        if len(self._parts) > self.AT_MOST:
            self._parts = [self.merged()]

    def merged(self) -> tuple[Ints, Ints, Ints]:
        holder, code, rows = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.lexsort((code, holder))
        holder, code, rows = holder[order], code[order], rows[order]
        new = np.ones(len(code), dtype=bool)
        new[1:] = (np.diff(holder) != 0) | (np.diff(code) != 0)
        starts = np.flatnonzero(new)
        return holder[starts], code[starts], np.add.reduceat(rows, starts)


def _client_texts(values: Values, gaps: Gaps) -> list[str | None]:
    """Client ids as texts: 1, 1.0 and "1" are one client; None where there is none."""
    found = (present(value, gaps) for value in value_list(values))
    return [None if value is None else text_of(value) for value in found]
