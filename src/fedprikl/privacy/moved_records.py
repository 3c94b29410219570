"""Sensitivity to many substituted records: how far the k records of one client can move a sum.

Knows convex scores and numbers only, no divergence. docs/decisions/0021-whole-clients.md has the
proofs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.reachable import Scores

__all__ = ["BatchScores", "moved_anywhere", "moved_sensitivity"]

SMALL_TABLE = 2**14  # of steps that are computed sooner than it is found out which ones matter
LOOKED = 256  # cells that are looked at one by one; beyond, the bound of the next one is taken
CLOSE = 1e-12  # of the result: bounds no further above it are not looked into


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BatchScores:
    """S_x(h) = w(x) s(h) of the asked cells of one batch, each convex in the count. Public.

    Where counts of several batches are pooled, a cell's count and records are those of all batches
    that were asked for it; `size` is still that of this batch alone.
    """

    size: int  # N_t, records of the batch
    records: Ints  # N(x) behind the count of each asked cell
    kinds: Ints  # a number per asked cell; cells of one kind have the same score
    scores: Scores  # of cells (positions) at counts; both broadcast


def moved_sensitivity(batches: Sequence[BatchScores], moved: int) -> float:
    """Delta_k: the largest change of `sum_t sum_x S_x` if `moved` records of one batch change.

    With k = `moved` and d_y(j) = S_y(j) - S_y(j + 1), which falls with j,

        Delta_k = max over batches, n <= min(k, N_t) and z of
                  S_z(N(z)) - S_z(N(z) - n)  +  the n largest of all d_y(j) > 0, y != z, j < n

    where z may be a cell that is not asked, with S = 0. The gain of one cell is largest if nobody
    is elsewhere after the change; gains of several cells are at most that of the best one, as
    scores are convex. Exact, and attained; after 256 cells that come into question, a little above.

    >>> weights = np.array([0.5, 0.5])
    >>> scores = lambda cell, count: weights[cell] * np.abs(count / 10 - weights[cell])
    >>> batch = BatchScores(
    ...     size=10, records=np.array([10, 10]), kinds=np.array([0, 0]), scores=scores
    ... )
    >>> [round(moved_sensitivity([batch], moved), 3) for moved in (1, 2, 10)]
    [0.1, 0.2, 0.5]
    """
    check_positive_int(moved, "moved")
    if not batches:
        raise InvalidInputError("There is no batch, so nothing can be released.")
    return max(_worst_of_batch(batch, min(moved, batch.size)) for batch in batches)


def moved_anywhere(everything: BatchScores, moved: int) -> float:
    """At least the largest change of the sum if `moved` records of any batches change.

    For several clients, as those that lie: the largest losses and the largest gains, as if none
    stood in the way of another. `everything` has all terms, and the records of all batches.
    """
    most, records = min(check_positive_int(moved, "moved"), everything.size), everything.records

    def falling(cells: Ints, removed: Ints) -> Floats:
        return everything.scores(cells, np.minimum(removed, records[cells]))

    def rising(cells: Ints, removed: Ints) -> Floats:
        return everything.scores(cells, np.maximum(records[cells] - removed, 0))

    steps = (
        _largest_steps(replace(everything, scores=scores), most)[0][:most]
        for scores in (falling, rising)
    )
    return math.fsum(float(each.sum()) for each in steps)


def _worst_of_batch(batch: BatchScores, most: int) -> float:
    """max over z of max over n of gain_z(n) + loss(n), the losses being those of other cells."""
    steps, owners = _largest_steps(batch, most)
    losses = np.append(0.0, np.cumsum(steps))
    best = float(losses[: most + 1].max())  # z is not asked
    bounds = _bounds(batch, np.append(steps, np.zeros(max(0, most - len(steps))))[:most])
    losing = np.unique(owners[:most])
    best = max(best, float(np.delete(bounds, losing).max(initial=0.0)))  # their bound is the value
    _, first = np.unique(batch.kinds[losing], return_index=True)
    cells = losing[first]
    order = cells[np.argsort(-bounds[cells], kind="stable")].tolist()
    for place, z in enumerate(order):
        if place == LOOKED or bounds[z] <= best * (1 + CLOSE):
            return max(best, float(bounds[z]))
        best = max(best, _exactly(batch, z, most, steps[owners != z][:most]))
    return best


def _largest_steps(batch: BatchScores, most: int) -> tuple[Floats, Ints]:
    """The 2 `most` largest steps d_y(j) > 0, j < `most`, the largest first, and whose they are.

    So many that `most` are left without those of any one cell. Steps of a cell get smaller, so
    cells are looked at in blocks of 1, 1, 2, 4, ... steps, and only while the last one is among the
    largest.
    """
    active, begin = np.arange(len(batch.records)), 0
    end = most if len(active) * most <= SMALL_TABLE else 1
    steps, owners = np.zeros(0), np.zeros(0, np.int64)
    while active.size and begin < most:
        end = min(end, most)
        at = np.arange(begin, end + 1)[None, :]
        found = -np.diff(batch.scores(active[:, None], at), axis=1)
        steps = np.concatenate([steps, found.ravel()])
        owners = np.concatenate([owners, np.repeat(active, end - begin)])
        chosen = np.argsort(-steps, kind="stable")[: 2 * most]
        chosen = chosen[steps[chosen] > 0]
        steps, owners = steps[chosen], owners[chosen]
        least = float(steps[-1]) if len(steps) == 2 * most else 0.0
        active = active[found[:, -1] > least]
        begin, end = end, 2 * end
    return steps, owners


def _bounds(batch: BatchScores, steps: Floats) -> Floats:
    """Per z: max over n of gain_z(n) + loss(n), as if z itself could lose too.

    Both are concave in n: a bisection for the last n whose step up is above 0, all cells at once.
    """
    cells, records = np.arange(len(batch.records)), batch.records
    low, high = np.zeros(len(cells), np.int64), np.full(len(cells), len(steps))
    while np.any(low < high):
        middle = np.minimum((low + high) // 2, len(steps) - 1)
        at = records - middle
        rise = batch.scores(cells, at) - batch.scores(cells, at - 1) + steps[middle]
        open_, up = low < high, rise > 0
        low = np.where(open_ & up, middle + 1, low)
        high = np.where(open_ & ~up, middle, high)
    losses = np.append(0.0, np.cumsum(steps))
    full = batch.scores(cells, records)
    return np.asarray(full - batch.scores(cells, records - low) + losses[low])


def _exactly(batch: BatchScores, z: int, most: int, steps: Floats) -> float:
    """The best n for a gaining cell z, given the steps of the others."""
    losses = np.append(0.0, np.cumsum(steps))
    n = np.arange(most + 1)
    cell = np.array([z])
    gains = batch.scores(cell, batch.records[cell]) - batch.scores(cell, batch.records[cell] - n)
    return float((gains + losses[np.minimum(n, len(losses) - 1)]).max())
