"""A table and its views from public rows, read three times: kinds of columns, levels, cells."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.reference.client_counts import ClientCounts
from fedprikl.reference.columns import (
    OUT_OF_DOMAIN,
    Bins,
    Categories,
    Column,
    Gaps,
    Times,
    Values,
    is_plain,
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

Rows = Mapping[str, Values]  # some of them, column by column
MakeView = Callable[[Table], ViewKind]
Every = Literal["day", "week", "month", "quarter"]  # period of a reference
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")  # 007 is a name that looks like a number
NEARLY, SHOWN, REMEMBERED = 0.9, 5, 1000
TRUTHS = ("True", "False", "true", "false", "TRUE", "FALSE")
MANY = 4096  # combinations that are never too many
CROWDED = 0.5  # combinations per record
DAY = 86_400_000_000  # microseconds
CODES = 2  # times the bins: of fewer texts that are numbers, codes are meant, like those of months
ROWS = 1000  # of fewer, whole numbers without a gap between them may be chance
NO_TIME = -1


def compared_columns(
    source: Source,
    columns: Sequence[str] | None,
    forced: set[str],
    clients: str | None,
    times: str | None = None,
) -> list[str]:
    """The columns that make up a cell: those named, or all but the clients' ids and the times."""
    if columns is not None and clients in columns:
        raise InvalidInputError(
            f"Column {clients!r} holds the clients' ids, so it cannot be compared. Leave it out of "
            "the columns."
        )
    others = [name for name in source.names if name not in (clients, times)]
    names = others if columns is None else [*columns]
    wanted = [*names, *(name for name in (clients, times) if name is not None)]
    source.require([*wanted, *sorted(forced)])
    stray = sorted(forced - set(names))
    if stray:
        raise InvalidInputError(
            f"Categorical {quoted_names(stray)} is not among the columns {quoted_names(names)}."
        )
    if isinstance(source, FrameSource):
        check_types(source.frame, wanted)
    return names


def public_rows(source: Source, columns: Iterable[str]) -> Iterator[Rows]:
    """All rows of public data, in which a line that cannot be read is worth a word."""
    for chunk in source.chunks(list(dict.fromkeys(columns))):
        if chunk.unreadable:
            raise RecordsError(
                f"{source.where} is not a well-formed CSV file at line {chunk.unreadable[0]}. "
                f"Every row needs as many fields as the header ({len(source.names)}), with quotes "
                "closed on the same line. If letters like ü stand in it, the file may not be "
                "UTF-8: name its encoding, like --encoding cp1252. Else correct or remove the line."
            )
        yield chunk.columns


def fit_table(
    names: Sequence[str],
    passes: Callable[[], Iterable[Rows]],
    *,
    bins: int,
    categorical: Iterable[str],
    missing: Iterable[str],
    texts: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Table:
    """How rows become codes; `passes` reads all of them, and is called twice.

    With `texts`, as in a CSV file, a column whose texts are all numbers (without leading zeros),
    or all dates or times, is one of numbers or times.
    """
    gaps, forced = Gaps.of(missing), set(categorical)
    fits = {name: _ColumnFit(name, bins, gaps, texts=texts) for name in names}
    for rows in passes():
        for name, fit in fits.items():
            fit.survey(rows[name])
    for name, fit in fits.items():
        if name in forced:
            fit.kind = "categories"
        elif remark := fit.settle():
            note(remark)
    for rows in passes():
        for name, fit in fits.items():
            fit.gather(rows[name])
    for fit in fits.values():
        if remark := fit.numbered():
            note(remark)
    return Table(tuple(fits[name].column() for name in names), tuple(sorted(gaps.texts)))


class _ColumnFit:
    """One column: what kind it is, from a first reading in bounded memory, and then its levels."""

    def __init__(self, name: str, bins: int, gaps: Gaps, *, texts: bool) -> None:
        self._name, self._bins, self._gaps = name, bins, gaps
        self._texts = texts  # whether texts may be numbers or times
        self.kind = ""
        self._rows = Counter[str]()  # with gaps, numbers, times and others
        self._distinct = set[float]()  # numbers and times: enough of them are cut into bins
        self._odd = Counter[str]()  # texts that are neither
        self._levels = Counter[str]()
        self._arrays: list[Any] = []

    def survey(self, values: Values) -> None:
        """What the values are."""
        numbers = self._numbers(values)
        if numbers is not None:
            self._rows["numbers"] += len(numbers)
            self._rows["gaps"] += len(values) - len(numbers)
            if len(self._distinct) <= self._bins:
                self._distinct.update(np.unique(numbers)[: self._bins + 1].tolist())
            return
        for value, rows in self._tally(values):
            what, found = self._read(value)
            self._rows[what] += rows
            if found is not None and len(self._distinct) <= self._bins:
                self._distinct.add(found)
            if what == "others" and len(self._odd) < REMEMBERED:
                self._odd[text_of(value) or ""] += rows

    def _read(self, value: Simple) -> tuple[str, float | None]:
        """What one value is, and which number or moment."""
        if value is None:
            return "gaps", None
        if not isinstance(value, str | bool) or (isinstance(value, str) and self._texts):
            named = isinstance(value, str) and (LEADING_ZERO.match(value) or value in TRUTHS)
            if not named and (found := number(value)) is not None:
                return "numbers", found
            if (moment := instant(value)) is not None:
                return "times", moment
        return "others", None

    def settle(self) -> str | None:
        """Decides on the kind; a remark if only a few texts prevent one of numbers or times."""
        numbers, times, others = (self._rows[name] for name in ("numbers", "times", "others"))
        self.kind = "categories"
        if len(self._distinct) + (self._rows["gaps"] > 0) > self._bins and not others:
            if numbers and not times:
                self.kind = "bins"
            elif times and not numbers:
                self.kind = "times"
        if not self._texts and not numbers + times and len(self._odd) >= CODES * self._bins:
            return self._as_texts()
        present = numbers + times + others
        most, what = max((numbers, "numbers"), (times, "dates or times"))
        if not self._odd or len(self._distinct) <= self._bins or most < NEARLY * present:
            return None
        shown = ", ".join(repr(text)[:40] for text, _ in self._odd.most_common(SHOWN))
        more = ", ..." if len(self._odd) > SHOWN else ""
        return (
            f"Column {self._name!r} is taken as categories, although {most:,} of its {present:,} "
            f"values are {what}: {shown}{more} are not. If they stand for gaps, name them as "
            "missing texts; otherwise clean the column."
        )

    def _as_texts(self) -> str | None:
        """A remark on a column of a data frame whose texts are all dates, times or numbers."""
        kinds = {_kind_of_text(text) for text in self._odd}
        if len(kinds) > 1 or "" in kinds:
            return None
        (what,) = kinds
        return (
            f"Column {self._name!r} is taken as categories, although its texts are {what}. Turn it "
            f"into {what} first, to have it cut into bins; clients may keep texts. If they are "
            "categories, name the column in `categorical`."
        )

    def gather(self, values: Values) -> None:
        """What the levels of a column of this kind are made from."""
        numbers = self._numbers(values) if self.kind == "bins" else None
        if numbers is not None:
            self._arrays.append(numbers)
            return
        present = [(value, rows) for value, rows in self._tally(values) if value is not None]
        if self.kind == "categories":
            for value, rows in present:
                text = text_of(value)
                if text is None or value is Odd.VALUE:
                    raise InvalidInputError(
                        f"Column {self._name!r} holds lists or other values which have no natural "
                        "cells. Turn them into numbers or texts first, or leave the column out "
                        "with `columns`."
                    )
                self._levels[text] += rows
            return
        read: Callable[[Simple], float | None] = number if self.kind == "bins" else instant
        kind = np.float64 if self.kind == "bins" else np.int64
        found = np.array([read(value) for value, _ in present], dtype=kind)
        self._arrays.append(np.repeat(found, [rows for _, rows in present]))

    def numbered(self) -> str | None:
        """A remark if the values only number the rows, like an index that was saved with them."""
        if self.kind != "bins":
            return None
        values = np.sort(np.concatenate(self._arrays))
        if len(values) < ROWS or not float(values[0]).is_integer() or (np.diff(values) != 1).any():
            return None
        return (
            f"Column {self._name!r} numbers the rows, from {values[0]:.0f} to {values[-1]:.0f}. "
            "Other rows have other numbers, so it will seem to drift: leave it out with --columns "
            "(in Python: columns)."
        )

    def column(self) -> Column:
        """The column; categories in the order of numbers, then of texts.

        Not in the order of their frequency: that depends on which records were seen, and
        neighbouring cells are tested together.
        """
        if self.kind == "categories":
            return Categories(self._name, tuple(sorted(self._levels, key=_order)))
        values = np.concatenate(self._arrays)
        if self.kind == "bins":
            return Bins.from_numbers(self._name, values, self._bins)
        return Times.from_instants(self._name, values, self._bins)

    def _numbers(self, values: Values) -> Floats | None:
        """The numbers among the values, if all others are gaps and that is seen at once.

        The same as one by one, for columns of very many distinct numbers.
        """
        found: Floats | None = None
        if isinstance(values, np.ndarray):
            found = values.astype(np.float64) if values.dtype.kind in "iuf" else None
        elif self._texts:
            found = plain_numbers(values, self._gaps.texts)
            if found is not None and any(map(LEADING_ZERO.match, values)):
                return None
        if found is None:
            return None
        kept = found[~np.isnan(found)]
        return kept[~np.isin(kept, list(self._gaps.numbers))] if self._gaps.numbers else kept

    def _tally(self, values: Values) -> Iterator[tuple[Simple, int]]:
        """The distinct values with their rows, None where missing; one may come more than once."""
        listed = value_list(values)
        counted = Counter(listed).items() if is_plain(listed) else ((value, 1) for value in listed)
        return ((_present(value, self._gaps), rows) for value, rows in counted)


def _kind_of_text(text: str) -> str:
    """What a text says, as in a CSV file: a number, a date or a time; empty if neither.

    >>> _kind_of_text("2026-03-01"), _kind_of_text("12.5"), _kind_of_text("007")
    ('dates or times', 'numbers', '')
    """
    if LEADING_ZERO.match(text) or text in TRUTHS:
        return ""
    if number(text) is not None:
        return "numbers"
    return "" if instant(text) is None else "dates or times"


def _order(text: str) -> tuple[bool, float, str]:
    """Numbers come first, as numbers.

    >>> sorted(["10", "b", "9", "a"], key=_order)
    ['9', '10', 'a', 'b']
    """
    value = number(text)
    return value is None, value or 0.0, text


def _present(value: Any, gaps: Gaps) -> Simple:
    """The value as one of the simple kinds; None where it is missing."""
    found = value if isinstance(value, Instant) else simple(value)
    return None if gaps.hold(found) else found


@dataclass(frozen=True, slots=True)
class ReferenceTimes:
    """Which period of the reference each of its rows belongs to, by a column of times (UTC).

    >>> weeks = ReferenceTimes("when", "week")
    >>> weeks.periods(["2027-01-03", "2027-01-04", "2027-01-10T23:59:59", None]).tolist()
    [2974, 2975, 2975, -1]
    """

    column: str
    every: Every = "week"

    def __post_init__(self) -> None:
        if self.every not in get_args(Every):
            raise InvalidInputError(
                f"Periods of a reference are a day, week, month or quarter, got {self.every!r:.40}."
            )

    def periods(self, values: Values) -> Ints:
        """The number of each row's period, from one in 1970; -1 without a time."""
        moments = [instant(simple(value)) for value in value_list(values)]
        known = np.array([moment is not None for moment in moments])
        days = np.array([(moment or 0) // DAY for moment in moments], dtype=np.int64)
        if self.every in ("month", "quarter"):
            months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            found = months // (3 if self.every == "quarter" else 1)
        else:
            found = days if self.every == "day" else (days + 3) // 7  # 1970 began on a Thursday
        return np.where(known & (found >= 0), found, NO_TIME)


def fit_views(
    table: Table,
    chunks: Iterable[Rows],
    clients: str | None,
    *,
    pairs: Sequence[Sequence[str]] = (),
    views: Sequence[MakeView] = (),
    joint: bool | None = None,
    times: ReferenceTimes | None = None,
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
    rows = _Rows(table, clients, times)
    for holders, periods, levels in rows.read(chunks):
        for view in (*wholes, *fits):
            view.add(holders, periods, levels)
    ranks = rows.ranks()
    found = tuple(view.fitted(ranks, timed=times is not None) for view in fits)
    for whole in wholes:
        if joint or not fits or whole.occurring <= max(MANY, CROWDED * rows.number):
            return whole.fitted(ranks, timed=times is not None), found
    return View(Domain(table, np.zeros(0, dtype=np.int64)), np.array([float(rows.number)])), found


def check_pairs(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The pairs, if each names two of the compared columns, and none is named twice."""
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2 or len({*pair} & {*names}) != 2:
            raise InvalidInputError(
                f"A pair is two different columns among {quoted_names(names)}, like ('age', "
                f"'plan'); got {pair!r:.60}."
            )
    if len(set(map(frozenset, pairs))) < len(pairs):
        raise InvalidInputError("A pair of columns is named twice. Name it once.")
    return [(one, other) for one, other in pairs]


class _Rows:
    """Reads rows: the number of the client, the period and the level in each column, of each."""

    def __init__(self, table: Table, clients: str | None, times: ReferenceTimes | None) -> None:
        self._read, self._gaps = table.reader(), Gaps.of(table.missing)
        self._clients, self._times = clients, times
        self._numbers: dict[str, int] = {}  # of the clients, in the order of their first record
        self.number = 0

    def read(self, chunks: Iterable[Rows]) -> Iterator[tuple[Ints, Ints, Levels]]:
        """All rows; those without a client or a time are named in an error at the end."""
        nameless, timeless, numbers = 0, 0, self._numbers
        for chunk in chunks:
            levels = self._read(chunk)
            if any(np.any(of_column == OUT_OF_DOMAIN) for of_column in levels.values()):
                raise InvalidInputError("The public data changed while it was read. Try again.")
            holders = np.zeros(len(next(iter(levels.values()))), dtype=np.int64)
            if self._clients is not None:
                values = (_present(v, self._gaps) for v in value_list(chunk[self._clients]))
                ids = [text_of(value) for value in values]  # 1, 1.0 and "1" are one client
                nameless += ids.count(None)
                holders[:] = [0 if i is None else numbers.setdefault(i, len(numbers)) for i in ids]
            periods = np.zeros_like(holders)
            if self._times is not None:
                periods = self._times.periods(chunk[self._times.column])
                timeless += int(np.count_nonzero(periods == NO_TIME))
                periods = np.maximum(periods, 0)  # refused once all are known
            self.number += len(holders)
            yield holders, periods, levels
        if timeless and self._times is not None:
            raise InvalidInputError(
                f"{timeless:,} rows of column {self._times.column!r} have no time from 1970 on. "
                "Fill them with times like 2027-01-04 or 2027-01-04T09:30:00, or remove these rows."
            )
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
    """A view: how many rows each code has, by client and by period."""

    def __init__(self, encoder: Encoder, columns: tuple[str, ...] = ()) -> None:
        self._encoder, self._columns = encoder, columns
        self._by_client, self._by_period = _Pairs(), _Pairs()

    def add(self, holders: Ints, periods: Ints, levels: Levels) -> None:
        codes = self._encoder.codes(levels)
        self._by_client.add(holders, codes)
        self._by_period.add(periods, codes)

    @property
    def occurring(self) -> int:
        """How many codes occur."""
        return len(_distinct(self._by_client.found()[1])[0])

    def fitted(self, ranks: Ints | None, *, timed: bool) -> View:
        """The view; `ranks` are the places of the clients, `timed` says that rows have times."""
        holder, code, held = self._by_client.found()
        seen, place = _distinct(code)
        mass: Floats = np.bincount(place, weights=held).astype(np.float64)
        kind, periods = None, ""
        if ranks is not None:
            cells = np.arange(len(seen))
            kind = Correlation.of_pairs(ranks[holder], place, held.astype(np.float64), cells)
        if timed:
            when, code, held = self._by_period.found()
            _, number = np.unique(when, return_inverse=True)
            periods = ClientCounts(number, _distinct(code)[1], held).write()
        domain = Domain(self._encoder, seen)
        return View(domain, np.append(mass, 0.0), kind, self._columns, periods)


class _Pairs:
    """How many rows each pair of a holder (client, period) and a code has; what is distinct."""

    AT_ONCE = 2**16

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int64)
        self._kept = none, none, none  # holders, codes, and the rows of each
        self._waiting: list[tuple[Ints, Ints]] = []

    def add(self, holders: Ints, codes: Ints) -> None:
        self._waiting.append((holders, codes))
        # Merged whenever as much waits as is kept: the cost stays in proportion to the rows.
        if sum(len(codes) for _, codes in self._waiting) > max(self.AT_ONCE, len(self._kept[0])):
            self._merge()

    def found(self) -> tuple[Ints, Ints, Ints]:
        """Holders, codes in increasing order for each, and the rows of each pair."""
        self._merge()
        return self._kept

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
