"""Records drawn from the reference, for a client that has none of its own."""

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.records.drawing import KEY_BYTES, Draw, Randomness
from fedprikl.reference import Domain, Reference, Table
from fedprikl.reference.view_cells import ViewRows

__all__ = ["draw_counts", "draw_reference"]


def draw_reference(
    reference: Reference, records: int, randomness: Randomness
) -> tuple[Ints, tuple[Ints, ...]]:
    """The counts of k independent records x ~ Pi, and their counts in every view.

    A joint cell tells the cell of each view. For a record without one ("other", and all records of
    a reference that has no joint cells) every view is drawn by itself, from what its distribution
    has beyond the joint cells: E[h_v(x)] = k Pi_v(x) in each of them.
    """
    mass = reference.mass
    cells = _draw(mass, records, randomness)
    counts = np.bincount(cells, minlength=len(mass)).astype(np.int64)
    table, codes = reference.domain.encoder, reference.domain.codes
    if not isinstance(table, Table) or not reference.views:
        return counts, ()
    levels = _levels(table, codes)
    views, strays = [], int(counts[-1])
    for view in reference.views:
        rows = ViewRows.of(table, view.columns)
        place = Domain(rows.part, view.codes).cells_of(rows.codes(levels))
        found = _summed(place, counts[:-1], view.size + 1)
        if strays:
            beyond = np.maximum(view.mass - _summed(place, mass[:-1], view.size + 1), 0.0)
            drawn = _draw(beyond, strays, randomness)
            found = found + np.bincount(drawn, minlength=view.size + 1)
        views.append(found.astype(np.int64))
    return counts, tuple(views)


def draw_counts(counts: Ints, reference: Reference, draw: Draw) -> Ints:
    """The counts of k drawn records, of records per cell; for simulations.

    As a client draws, also where it has no records. Which views a record is in, counts do not tell.

    >>> pi = Reference.from_counts([5, 5])
    >>> int(draw_counts(np.array([500, 300, 0]), pi, Draw(20)).sum())
    20
    >>> draw_counts(np.array([2, 1, 0]), pi, Draw(6)).tolist()  # each of the three twice
    [4, 2, 0]
    """
    cells = np.repeat(np.arange(len(counts)), counts)
    if not cells.size and draw.empty == "reference":
        return draw_reference(reference, draw.records, draw.randomness)[0]
    return np.bincount(cells[draw.places(len(cells))], minlength=len(counts)).astype(np.int64)


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


def _levels(table: Table, codes: Ints) -> list[Ints]:
    """The level of each column in each code: `Table.levels`, of all at once."""
    levels = []
    for column in reversed(table.columns):
        codes, level = np.divmod(codes, column.size)
        levels.append(level)
    return levels[::-1]


def _summed(place: Ints, weights: Ints | Floats, size: int) -> Floats:
    """The weight in each cell of a view; exact for counts below 2^53."""
    sums: Floats = np.bincount(place, weights=weights, minlength=size).astype(np.float64)
    return sums
