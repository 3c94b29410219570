"""The columns of a table from its rows, read twice: what kind each is, then its levels."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError, RecordsError
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
from fedprikl.reference.domain import (
    MAX_CODES,
    Domain,
    Encoder,
    Levels,
    Table,
    ViewKind,
    check_size,
)
from fedprikl.reference.rows import FrameSource, Source, check_types, quoted_names
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
from fedprikl.reference.views import View

Chunk = Mapping[str, Values]  # some rows, column by column
MakeView = Callable[[Table], ViewKind]
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")  # 007 is a name that looks like a number
NEARLY, SHOWN = 0.9, 5
TRUTHS = ("True", "False", "true", "false", "TRUE", "FALSE")
MANY = 4096  # combinations that are never too many
CROWDED = 0.5  # combinations per record


def fit_views(
    source: Source,
    *,
    columns: Sequence[str] | None,
    bins: int,
    categorical: Iterable[str],
    clients: str | None,
    missing: Iterable[str],
    pairs: Sequence[Sequence[str]],
    views: Sequence[MakeView],
    joint: bool | None,
    note: Callable[[str], None] | None,
) -> tuple[View, tuple[View, ...]]:
    """The whole and the views of public rows: `Reference.fit`."""
    check_positive_int(bins, "bins")
    lists = {"columns": columns, "categorical": categorical, "missing": missing}
    for option, given in lists.items():
        if isinstance(given, str):  # its letters would be taken one by one
            raise InvalidInputError(f"Give a list: {option}=[{given!r:.40}].")
    names = _compared_columns(source.names, columns, clients)
    forced, ids = set(categorical), [] if clients is None else [clients]
    wanted = list(dict.fromkeys([*names, *ids]))
    source.require([*wanted, *sorted(forced)])
    stray = sorted(forced - set(names))
    if stray:
        raise InvalidInputError(
            f"Categorical {quoted_names(stray)} is not among the columns {quoted_names(names)}."
        )
    if isinstance(source, FrameSource):
        check_types(source.frame, wanted)

    def rows() -> Iterator[Chunk]:
        for chunk in source.chunks(wanted):
            if chunk.unreadable:
                raise RecordsError(
                    f"{source.where} is not a well-formed CSV file at line {chunk.unreadable[0]}. "
                    f"Every row needs as many fields as the header ({len(source.names)}), with "
                    "quotes closed on the same line, in the encoding of the file. Correct or "
                    "remove the line."
                )
            yield chunk.columns

    table = fit_table(
        names,
        rows,
        bins=bins,
        categorical=forced,
        missing=missing,
        texts=source.texts,
        note=note,
    )
    return views_of(table, rows(), clients, pairs=pairs, views=views, joint=joint)


def _compared_columns(
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


def views_of(
    table: Table,
    chunks: Iterable[Chunk],
    clients: str | None,
    *,
    pairs: Sequence[Sequence[str]] = (),
    views: Sequence[MakeView] = (),
    joint: bool | None = None,
) -> tuple[View, tuple[View, ...]]:
    """The whole and the views of all rows, in one reading.

    Without `joint` the whole has cells where that makes sense: there are at most 2^62 combinations
    of levels, and at most 4096 occur, or at most half as many as there are records.
    """
    columns = [(name,) for name in table.names] if len(table.names) > 1 else []
    parts = [*columns, *check_pairs(table.names, pairs)]
    fits = [_ViewFit(table.part(names), names) for names in parts]
    fits += [_ViewFit(kind, kind.columns) for kind in (make(table) for make in views)]
    if joint is False and not fits:
        raise InvalidInputError(
            "A table of one column is compared by that column anyway. Leave joint=False out."
        )
    if joint:
        check_size(table.size)
    wholes = [_ViewFit(table)] if table.size <= MAX_CODES and joint is not False else []
    rows = _Rows(table, clients)
    for holders, levels in rows.read(chunks):
        for view in (*wholes, *fits):
            view.add(holders, levels)
    ranks = rows.ranks()
    found = tuple(view.fitted(ranks) for view in fits)
    for whole in wholes:
        if joint or not fits or whole.occurring <= max(MANY, CROWDED * rows.number):
            return whole.fitted(ranks), found
    return View(Domain(table, np.zeros(0, dtype=np.int64)), np.array([float(rows.number)])), found


def check_pairs(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The pairs, if each names two of the compared columns, and none is named twice."""
    found: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2 or pair[0] == pair[1]:
            raise InvalidInputError(
                f"A pair is two different columns, like ('age', 'plan'); got {pair!r:.60}."
            )
        unknown = [name for name in pair if name not in names]
        if unknown:
            raise InvalidInputError(
                f"The pair {pair[0]!r}, {pair[1]!r} is not of compared columns: there is no "
                f"{', '.join(map(repr, unknown))} among {', '.join(map(repr, names))}."
            )
        found.append((pair[0], pair[1]))
    if len(set(map(frozenset, found))) < len(found):
        raise InvalidInputError("A pair of columns is named twice. Name it once.")
    return found


class _Rows:
    """Reads rows: the number of the client and the level in each column, of every row."""

    def __init__(self, table: Table, clients: str | None) -> None:
        self._read, self._gaps = table.reader(), Gaps.of(table.missing)
        self._clients = clients
        self._numbers: dict[str, int] = {}  # of the clients, in the order of their first record
        self.number = 0

    def read(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Ints, Levels]]:
        """All rows; those without a client are named in an error at the end."""
        nameless = 0
        for chunk in chunks:
            levels = self._read(chunk)
            if any(np.any(of_column == UNSEEN) for of_column in levels.values()):
                raise InvalidInputError("The public data changed while it was read. Try again.")
            holders = np.zeros(len(next(iter(levels.values()))), dtype=np.int64)
            if self._clients is not None:
                ids = _client_texts(chunk[self._clients], self._gaps)
                nameless += ids.count(None)
                numbers = self._numbers
                named = [numbers.setdefault(i, len(numbers)) for i in ids if i is not None]
                holders = np.array(named, dtype=np.int64)
                if None in ids:
                    kept = [i is not None for i in ids]
                    levels = {name: level[kept] for name, level in levels.items()}
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

    def __init__(self, encoder: Encoder, columns: tuple[str, ...] = ()) -> None:
        self._encoder, self._columns = encoder, columns
        none = np.zeros(0, dtype=np.int64)
        self._kept = none, none, none  # clients, codes, and the rows of each
        self._waiting: list[tuple[Ints, Ints]] = []

    def add(self, holders: Ints, levels: Levels) -> None:
        self._waiting.append((holders, self._encoder.codes(levels)))
        # Merged whenever as much waits as is kept: the cost stays in proportion to the rows.
        if sum(len(codes) for _, codes in self._waiting) > max(self.AT_ONCE, len(self._kept[0])):
            self._merge()

    @property
    def occurring(self) -> int:
        """How many codes occur."""
        self._merge()
        return len(_distinct(self._kept[1])[0])

    def fitted(self, ranks: Ints | None) -> View:
        """The view; `ranks` are the places of the clients."""
        self._merge()
        holder, code, held = self._kept
        seen, place = _distinct(code)
        mass: Floats = np.bincount(place, weights=held).astype(np.float64)
        kind = None
        if ranks is not None:
            cells = np.arange(len(seen))
            kind = Correlation.of_pairs(ranks[holder], place, held.astype(np.float64), cells)
        return View(Domain(self._encoder, seen), np.append(mass, 0.0), kind, self._columns)

    def _merge(self) -> None:
        holders, codes = zip(*self._waiting, strict=True) if self._waiting else ((), ())
        self._waiting = []
        new = np.ones(sum(map(len, codes)), dtype=np.int64)
        seen, place = _distinct(np.concatenate([self._kept[1], *codes]))
        keys = np.concatenate([self._kept[0], *holders]) * len(seen) + place
        pairs, place = _distinct(keys)
        held = np.bincount(place, weights=np.concatenate([self._kept[2], new])).astype(np.int64)
        holder, place = np.divmod(pairs, max(len(seen), 1))
        self._kept = holder, seen[place], held


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The distinct keys in increasing order, and the place of each; no sort if they are dense."""
    bound = int(keys.max(initial=-1)) + 1
    if bound > 4 * len(keys) + 2**16:
        found, place = np.unique(keys, return_inverse=True)
        return found, place.astype(np.int64)
    there = np.zeros(bound, dtype=np.bool_)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def _client_texts(values: Values, gaps: Gaps) -> list[str | None]:
    """Client ids as texts: 1, 1.0 and "1" are one client; None where there is none."""
    found = (present(value, gaps) for value in value_list(values))
    return [None if value is None else text_of(value) for value in found]
