"""Counting records into cells, a chunk of rows at a time."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.reference import Indices, Reference, Table
from fedprikl.reference.domain import Levels
from fedprikl.reference.rows import Chunk, quoted_names

KEY_BYTES = 8
Randomness = Callable[[int], bytes]

UNREADABLE = -2  # beside levels and `OUT_OF_DOMAIN`: of a drawn record that is not even a row


@dataclass(frozen=True, slots=True)
class Draw:
    """What a client contributes where the unit of privacy is the client: k records, always.

    Of r records, a client draws

        r >= k    k of them, without replacement
        r <  k    all of them, and k - r records x ~ Pi of the reference
        r =  0    k records x ~ Pi of the reference, or nothing if `empty` is "away"

    so that the counts of every client sum to k, whatever it holds. No record is counted twice: if
    nothing drifted and records are unrelated, so are all k. What is filled up makes a drift look
    smaller, never larger. A record that cannot be read is a record.

    >>> len(set(Draw(20).places(800).tolist()))  # of 800 records, 20 different ones
    20
    >>> sorted(Draw(6).places(4).tolist()), Draw(6).missing(4)  # all of four, and two of Pi
    ([0, 1, 2, 3], 2)
    """

    records: int  # k
    empty: Literal["reference", "away"] = "reference"  # what a client without records does
    randomness: Randomness = field(default=os.urandom, repr=False)  # another one for tests only

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        if self.empty not in ("reference", "away"):
            raise InvalidInputError(
                "A client without records takes part with draws of the 'reference' or stays "
                f"'away', got {self.empty!r:.40}."
            )

    def sample(self, width: int) -> "Sample":
        """An empty sample of rows of whole numbers."""
        return Sample(self.records, width, self.randomness)

    def places(self, number: int) -> Ints:
        """Which of `number` records are drawn: k places, or all of them if they are fewer."""
        sample = self.sample(1)
        sample.offer(number, lambda places: places[:, None])
        return sample.drawn()[:, 0]

    def missing(self, held: int) -> int:
        """How many records of the reference fill up what a client with `held` records draws."""
        return 0 if not held and self.empty == "away" else max(0, self.records - held)


class Sample:
    """The rows with the k smallest keys so far. Memory: k rows, and the keys of one chunk."""

    def __init__(self, records: int, width: int, randomness: Randomness) -> None:
        self._records, self._randomness = records, randomness
        self._keys = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros((0, width), dtype=np.int64)

    def offer(self, number: int, read: Callable[[Ints], Ints]) -> None:
        """Takes up some more records; `read` makes the rows of those whose keys are small enough.

        It is called with their places from 0, in order.
        """
        fresh = np.frombuffer(self._randomness(KEY_BYTES * number), dtype=np.uint64)
        keys, held = np.concatenate([self._keys, fresh]), len(self._keys)
        kept = np.arange(len(keys))
        if len(keys) > self._records:
            kept = np.sort(np.argpartition(keys, self._records - 1)[: self._records])
        old, new = kept[kept < held], kept[kept >= held] - held
        self._keys = keys[kept]
        self._rows = np.concatenate([self._rows[old], read(new)])

    def drawn(self) -> Ints:
        """The k rows; all of them if fewer were offered."""
        return self._rows


def draw_reference(
    reference: Reference, records: int, randomness: Randomness
) -> tuple[Ints, list[Ints]]:
    """The counts of k independent records x ~ Pi, and their counts in every view.

    A joint cell tells the cell of each view. For a record without one ("other", and all records of
    a reference that has no joint cells) every view is drawn by itself, from what its distribution
    has beyond the joint cells: E[h_v(x)] = k Pi_v(x) in each of them.
    """
    whole = reference.whole
    cells = _draw(whole.mass, records, randomness)
    counts = np.bincount(cells, minlength=len(whole.mass)).astype(np.int64)
    table, outside = whole.domain.encoder, int(counts[-1])
    if not isinstance(table, Table):
        return counts, []
    inside = table.levels(whole.domain.codes[cells[cells < whole.domain.other]])
    views = [view.domain.count(inside) for view in reference.views]
    if outside:
        levels = table.levels(whole.domain.codes)
        for view, found in zip(reference.views, views, strict=True):
            known = np.bincount(view.domain.cells(levels), whole.mass[:-1], view.domain.size)
            beyond = np.maximum(view.mass - known, 0.0)
            found += np.bincount(_draw(beyond, outside, randomness), minlength=len(beyond))
    return counts, views


def draw_counts(counts: Ints, reference: Reference, draw: Draw) -> Ints:
    """The counts of k drawn records, of records per cell; for simulations.

    As a client draws, also where it has too few records. Which views a record is in, counts do not
    tell.

    >>> pi = Reference.from_counts([5, 5])
    >>> int(draw_counts(np.array([500, 300, 0]), pi, Draw(20)).sum())
    20
    >>> drawn = draw_counts(np.array([2, 1, 1]), pi, Draw(6))  # all four, and two of the reference
    >>> int(drawn.sum()), bool((drawn >= [2, 1, 1]).all()), int(drawn[2])
    (6, True, 1)
    """
    cells = np.repeat(np.arange(len(counts)), counts)
    drawn = np.bincount(cells[draw.places(len(cells))], minlength=len(counts)).astype(np.int64)
    if missing := draw.missing(len(cells)):
        drawn += draw_reference(reference, missing, draw.randomness)[0]
    return drawn


def _draw(mass: Floats, number: int, randomness: Randomness) -> Ints:
    """Cells drawn in proportion to their mass; the last one if none has any."""
    sums = np.cumsum(mass)
    if not sums[-1] > 0:
        return np.full(number, len(mass) - 1)
    keys = np.frombuffer(randomness(KEY_BYTES * number), dtype=np.uint64)
    shares = (keys >> np.uint64(11)) * 2.0**-53  # from 0 to under 1
    found = np.searchsorted(sums, shares * sums[-1], side="right")
    last = int(np.flatnonzero(mass)[-1])  # a share just under 1 may be rounded up
    cells: Ints = np.minimum(found, last).astype(np.int64)
    return cells


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordCounts:
    """How a client's records fall into the cells. Secret: it never leaves the client unmasked."""

    counts: Ints  # h(x) per cell of the whole, "other" last
    unreadable: int = 0  # of these: not even a row, such as a line with a field too many
    views: tuple[Ints, ...] = ()  # per view of the reference: h(x) of its cells, "other" last

    @property
    def total(self) -> int:
        """Number of records; none is ever lost."""
        return int(self.counts.sum())

    @property
    def other(self) -> int:
        """Records out of the domain: all of them if the reference has no joint cells."""
        return int(self.counts[-1])

    def small(self) -> "RecordCounts":
        """The same in the smallest numbers that fit, for who holds the counts of many clients."""
        fits = np.min_scalar_type(-self.total - 1)
        views = tuple(each.astype(fits) for each in self.views)
        return replace(self, counts=self.counts.astype(fits), views=views)

    def __repr__(self) -> str:
        return f"RecordCounts({len(self.counts)} cells, counts not shown)"


class CellReader:
    """Counts rows into the cells of all views of a reference; one serves any number of files."""

    def __init__(self, reference: Reference) -> None:
        self.reference, self.encoder = reference, reference.domain.encoder
        self.levels = self.encoder.reader()

    def columns(self, available: Sequence[str], where: object) -> tuple[str, ...]:
        """The columns that are needed, of those available."""
        match self.encoder:
            case Table() as table:
                return table.names
            case Indices() if "cell" in available:
                return ("cell",)
            case Indices() if len(available) == 1:
                return tuple(available)
            case Indices():
                raise RecordsError(
                    f"Records of this reference are cell numbers, but {where} has no column 'cell' "
                    f"among {quoted_names(available)}. Name the column with the numbers 'cell'."
                )
        raise RecordsError(
            f"The reference is of images, and {where} is a table. Pass the images as an array, or "
            "use a reference built from a table."
        )

    def count(self, chunks: Iterable[Chunk], draw: Draw | None = None) -> RecordCounts:
        """h(x) for every cell x, and for every cell of every view: of all records, or of a draw.

        A draw is of whole records: the joint cell of each and its cells in all views belong
        together. It sums to k everywhere: records of the reference fill it up. It is empty where a
        client without records is to stay away.
        """
        parts = self._read(chunks) if draw is None else self._drawn(chunks, draw)
        domains = [view.domain for view in (self.reference.whole, *self.reference.views)]
        counts = [np.zeros(domain.size, dtype=np.int64) for domain in domains]
        unreadable = 0
        for levels, broken in parts:
            unreadable += broken
            for of_view, domain in zip(counts, domains, strict=True):
                of_view += domain.count(levels)
                of_view[-1] += broken
        if draw is not None and (missing := draw.missing(int(counts[0].sum()))):
            whole, views = draw_reference(self.reference, missing, draw.randomness)
            for of_view, filled in zip(counts, (whole, *views), strict=True):
                of_view += filled
        whole, *views = counts
        return RecordCounts(whole, unreadable, tuple(views))

    def _read(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Levels, int]]:
        """The level of each row in each column; and how many records are no rows."""
        for chunk in chunks:
            yield self.levels(chunk.columns), len(chunk.unreadable)

    def _drawn(self, chunks: Iterable[Chunk], draw: Draw) -> Iterator[tuple[Levels, int]]:
        """The drawn records, if there are any. Only what may be drawn is read beyond its line."""
        names: tuple[str, ...] = ()
        sample: Sample | None = None
        for chunk in chunks:
            names = names or tuple(chunk.columns)
            sample = sample or draw.sample(len(names))
            sample.offer(chunk.rows + len(chunk.unreadable), partial(self._rows, chunk))
        if sample is None:
            return
        rows = sample.drawn()
        broken = rows[:, 0] == UNREADABLE
        levels = dict(zip(names, rows[~broken].T, strict=True))
        yield levels, int(np.count_nonzero(broken))

    def _rows(self, chunk: Chunk, places: Ints) -> Ints:
        """The levels of some records of a chunk, one row each; lines that are no rows come last."""
        inside = np.zeros(chunk.rows + len(chunk.unreadable), dtype=np.bool_)
        inside[places] = True
        levels = self.levels(chunk.taken(inside[: chunk.rows]))
        rows = np.column_stack([levels[name] for name in chunk.columns])
        broken = np.full((len(places) - len(rows), rows.shape[1]), UNREADABLE)
        return np.concatenate([rows, broken])
