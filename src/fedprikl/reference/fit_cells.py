"""Pi from the rows of a table whose columns are known: the joint cells, and every view."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import UNSEEN, Values, value_list
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Table, check_size
from fedprikl.reference.fit import Chunk, present
from fedprikl.reference.gaps import Gaps
from fedprikl.reference.values import text_of
from fedprikl.reference.view_cells import ViewRows, check_pairs, view_of
from fedprikl.reference.views import View

__all__ = ["Fitted", "fit_cells"]

MANY = 4096  # combinations that are never too many
CROWDED = 0.5  # combinations per record


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
