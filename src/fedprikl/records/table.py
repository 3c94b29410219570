"""One table with the records of all clients: one pass divides its rows by a column of ids.

An id is known by its own value alone, like every other value. A row whose id is missing or cannot
be read has no client. A line that cannot be read for another reason counts as one "other" record of
the client whose id stands in it: else the number of records, or of clients, would tell of a single
value whether it spoils its line. Ids go no further than this file.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records.clients import TimeSlice
from fedprikl.records.counting import (
    KEY_BYTES,
    UNREADABLE,
    CellReader,
    Draw,
    RecordCounts,
    draw_reference,
)
from fedprikl.reference import Reference, Table
from fedprikl.reference.columns import Gaps, Values, value_list
from fedprikl.reference.domain import Levels
from fedprikl.reference.rows import Chunk, Source
from fedprikl.reference.values import MISSING_TEXTS, simple, text_of

NoClient = Literal["drop", "one-each", "refuse"]  # what becomes of rows without a client
NONE = -1  # in place of a client's number
UNDECODED = {"\ufffd", "\0"}  # what stands for bytes that are no text, and what no text holds
PENDING = 2**20  # rows that wait to be merged


def count_by_client(
    sources: Sequence[Source],
    reference: Reference,
    column: str,
    *,
    no_client: NoClient = "refuse",
    draw: Draw | None = None,
    times: TimeSlice | None = None,
) -> dict[str, RecordCounts]:
    """The counts of each client, under made-up names: all rows with one value in `column`.

    With a `draw`, of k rows of each. With `times`, of the rows of these times: a client without
    any has zeros, so that who is asked does not depend on them. Memory grows with the cells that
    clients have records in, not with rows.
    """
    if no_client not in get_args(NoClient):
        raise InvalidInputError(
            f"Rows without a client are one of drop, one-each, refuse; got {no_client!r:.40}."
        )
    reader = CellReader(reference)
    rows = _Rows(sources, column, reader, no_client, times)
    domains = [view.domain for view in (reference.whole, *reference.views)]
    tallies = [_Tally(domain.size) for domain in domains]
    for clients, levels, broken in rows if draw is None else _drawn(rows, draw):
        for tally, domain in zip(tallies, domains, strict=True):
            tally.add(clients, domain.cells(levels) if len(clients) else clients)
            tally.add(broken, np.full(len(broken), domain.other))
    width = len(str(rows.clients))
    by_view = zip(*(tally.of_clients(rows.clients) for tally in tallies), strict=True)
    return {
        f"client {number:0{width}}": _counts(counts, reference, draw)
        for number, counts in enumerate(by_view, start=1)
    }


def _counts(counts: tuple[Ints, ...], reference: Reference, draw: Draw | None) -> RecordCounts:
    if draw is not None and (missing := draw.missing(int(counts[0].sum()))):
        whole, views = draw_reference(reference, missing, draw.randomness)
        counts = tuple(own + more for own, more in zip(counts, (whole, *views), strict=True))
    whole, *views = counts
    return RecordCounts(whole, views=tuple(views)).small()


Part = tuple[Ints, Levels, Ints]  # clients of rows, levels of these; clients of unreadable lines


class _Rows:
    """The rows of a table by client, a chunk at a time; how many clients, once all were read."""

    def __init__(
        self,
        sources: Sequence[Source],
        column: str,
        reader: CellReader,
        no_client: NoClient,
        times: TimeSlice | None,
    ) -> None:
        """Refuses what has no such column, as far as headers tell."""
        encoder = reader.encoder
        if isinstance(encoder, Table) and column in encoder.names:
            raise InvalidInputError(
                f"The reference compares the column {column!r}, so it cannot hold the ids of "
                "clients. Make the reference without it (`fedprikl reference --client-column`)."
            )
        self._sources = []
        own = [column] if times is None else [column, times.column]
        for source in sources:
            needed = reader.columns([n for n in source.names if n not in own], source.where)
            source.require([*needed, *own])
            self._sources.append((source, needed))
        self.clients, self._times = 0, times
        self._column, self._reader, self._no_client = column, reader, no_client
        self._gaps = Gaps.of(encoder.missing if isinstance(encoder, Table) else MISSING_TEXTS)
        self._by_text: dict[str, int] = {}
        self._by_value: dict[Any, int] = {}  # remembers what was looked up

    def __iter__(self) -> Iterator[Part]:
        for source, needed in self._sources:
            for chunk in self._chunks(source, [*needed, self._column]):
                clients = self._numbers(chunk.columns[self._column])
                broken = self._of_lines(source, chunk)
                levels = self._reader.levels({name: chunk.columns[name] for name in needed})
                yield self._placed(clients, levels, broken)

    def _chunks(self, source: Source, columns: list[str]) -> Iterator[Chunk]:
        """All rows, or those of some times. The ids of all are known, whatever their time."""
        if (times := self._times) is None:
            yield from source.chunks(columns)
            return
        wanted, aware = dict.fromkeys([*columns, times.column]), source.is_aware(times.column)
        for chunk in source.chunks(list(wanted), times=times.column):
            self._numbers(chunk.columns[self._column])
            self._of_lines(source, chunk)
            yield times.of(chunk, columns, aware=aware)

    def _of_lines(self, source: Source, chunk: Chunk) -> Ints:
        """The clients of the lines that cannot be read."""
        lines: Sequence[bytes] = chunk.lines or [b""] * len(chunk.unreadable)
        return np.fromiter((self._of_line(source, line) for line in lines), np.int64, len(lines))

    def _of_line(self, source: Source, line: bytes) -> int:
        """The client whose id stands in a line: one that is known, or in the likeliest place."""
        texts = [self._text(guess) for guess in source.guesses(line, self._column)]
        likely = [None if text is None or UNDECODED & set(text) else text for text in texts]
        known = [text for text in likely if text in self._by_text]
        return self._number([*known, *likely, None][0])

    def _placed(self, clients: Ints, levels: Levels, broken: Ints) -> Part:
        """The rows that count, each with a client."""
        homeless, lost = clients == NONE, broken == NONE
        if not homeless.any() and not lost.any():
            return clients, levels, broken
        if self._no_client == "refuse":
            raise RecordsError(
                f"A row of the table has no client: its {self._column!r} is missing or cannot be "
                "read. Nothing was released or charged. Say what becomes of such rows: "
                "--no-client drop, or --no-client one-each for a client each (in Python: "
                "no_client)."
            )
        if self._no_client == "drop":
            kept = {name: each[~homeless] for name, each in levels.items()}
            return clients[~homeless], kept, broken[~lost]
        return self._fresh(clients), levels, self._fresh(broken)

    def _fresh(self, clients: Ints) -> Ints:
        """A client of its own for each that has none."""
        homeless = clients == NONE
        number, self.clients = self.clients, self.clients + int(np.count_nonzero(homeless))
        found = clients.copy()
        found[homeless] = np.arange(number, self.clients)
        return found

    def _numbers(self, values: Values) -> Ints:
        listed = value_list(values)
        return np.fromiter(map(self._number, listed), np.int64, len(listed))

    def _number(self, value: Any) -> int:
        plain = type(value) in (str, int, float) and value == value  # others may not even hash
        found = self._by_value.get(value) if plain else None
        if found is None:
            text = self._text(value)
            found = NONE if text is None else self._by_text.setdefault(text, self.clients)
            self.clients += found == self.clients
            if plain:
                self._by_value[value] = found
        return found

    def _text(self, value: Any) -> str | None:
        """The id as text; None if it is missing. Whole numbers keep all their digits."""
        try:
            found = simple(value)
            if self._gaps.hold(found):
                return None
            if isinstance(value, int) and not isinstance(value, bool):
                return str(value)
            text = found if isinstance(found, str) else text_of(found)
        except Exception:  # an object of whatever kind must not stop the other records
            return None
        return text if text and text.strip() else None


def _drawn(rows: _Rows, draw: Draw) -> Iterator[Part]:
    """The k rows of each client with the smallest keys: the same draw as `Sample` makes."""
    kept: list[tuple[Ints, Any]] = []  # clients and keys
    held: list[Ints] = []  # what stands in the rows
    names: tuple[str, ...] = ()
    waiting = 0
    for clients, levels, broken in rows:
        names = tuple(levels)
        number = len(clients) + len(broken)
        keys = np.frombuffer(draw.randomness(KEY_BYTES * number), dtype=np.uint64)
        table = np.column_stack([levels[name] for name in names])
        lines = np.full((len(broken), len(names)), UNREADABLE)
        kept.append((np.concatenate([clients, broken]), keys))
        held.append(np.concatenate([table, lines]))
        waiting += number
        if waiting > PENDING:
            kept, held = _smallest(kept, held, draw.records)
            waiting = 0
    if not names:
        return
    (((clients, _),), (table,)) = _smallest(kept, held, draw.records)
    lost = table[:, 0] == UNREADABLE
    levels = dict(zip(names, table[~lost].T, strict=True))
    yield clients[~lost], levels, clients[lost]


def _smallest(
    kept: list[tuple[Ints, Any]], held: list[Ints], number: int
) -> tuple[list[tuple[Ints, Any]], list[Ints]]:
    """Of each client, so many rows with the smallest keys."""
    clients, keys = (np.concatenate(part) for part in zip(*kept, strict=True))
    order = np.lexsort((keys, clients))
    starts = np.searchsorted(clients[order], clients[order])
    order = order[np.arange(len(order)) - starts < number]
    return [(clients[order], keys[order])], [np.concatenate(held)[order]]


class _Tally:
    """Rows per client and cell of one view, of the pairs that occur."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pairs = np.zeros(0, dtype=np.int64)  # client x size + cell, increasing
        self._counts = np.zeros(0, dtype=np.int64)
        self._new: list[Ints] = []
        self._waiting = 0

    def add(self, clients: Ints, cells: Ints) -> None:
        """One more row for each."""
        self._new.append(clients * self._size + cells)
        self._waiting += len(clients)
        if self._waiting > PENDING:
            self._merge()

    def _merge(self) -> None:
        new, counts = np.unique(np.concatenate([self._pairs[:0], *self._new]), return_counts=True)
        pairs, place = np.unique(np.concatenate([self._pairs, new]), return_inverse=True)
        both = np.concatenate([self._counts, counts])
        self._pairs = pairs
        self._counts = np.bincount(place, both, len(pairs)).astype(np.int64)
        self._new, self._waiting = [], 0

    def of_clients(self, number: int) -> Iterator[Ints]:
        """h(x) of every cell, for one client after the other."""
        self._merge()
        starts = np.searchsorted(self._pairs, np.arange(number + 1) * self._size)
        for client, (first, last) in enumerate(pairwise(starts)):
            counts = np.zeros(self._size, dtype=np.int64)
            counts[self._pairs[first:last] - client * self._size] = self._counts[first:last]
            yield counts
