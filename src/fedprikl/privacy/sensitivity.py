"""Sensitivity: how far one substituted record can move what is released.

Knows increments and numbers only, no divergence: the same function serves every score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError, UnboundedSensitivityError
from fedprikl.privacy.adaptive import Scores
from fedprikl.search import bisect_whole

ENUMERATION_LIMIT = 2**22  # increments of one batch that may be tabulated to settle a tie
SMALL_TABLE = 2**14  # of steps that are computed sooner than it is found out which ones matter
LOOKED = 256  # cells that are looked at one by one; beyond, the bound of the next one is taken
CLOSE = 1e-12  # of the result: bounds no further above it are not looked into


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BatchIncrements:
    """What one more record can add to each asked cell of one batch, weights included.

    Where counts of several batches are pooled, a cell's count and records are those of all
    batches that were asked for it.
    """

    records: Ints  # N(x) behind the count of each asked cell; public and equal for neighbours
    lowest: Floats  # min over h = 0 .. N(x)-1 of w(x) (s(h+1) - s(h)), per asked cell
    lowest_at: Ints  # a count h that attains it
    highest: Floats
    highest_at: Ints
    table: Callable[[], Floats] | None  # all increments, (asked cells, N_t); None if pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """A record moves from cell `losing` to cell `gaining` of a batch; None: a cell not asked."""

    change: float
    batch: int
    gaining: int | None  # position among the batch's asked cells
    gain_at: int  # count of the gaining cell before
    losing: int | None
    lose_at: int  # count of the losing cell after


def exact_sensitivity(batches: Sequence[BatchIncrements]) -> float:
    """Delta: the largest change of `sum_t sum_x w s` when one record is substituted.

    Neighbours have equal N_t, and exactly one batch changes: a cell y loses a record and another
    cell z gains one. With d_x(h) = w(x) (s(h+1) - s(h)), the sum changes by d_z(i) - d_y(j), where
    i + j <= N - 1 because the counts before and after share the N records of the batches that were
    asked for y or z. So

        Delta = max_t max_{y != z} max_{i + j < N} [d_z(i) - d_y(j)]

    where cells that are not asked ("other" is always among them) have d = 0. No assumption on
    the data, and attained. Steps of a convex score rise with the count, so the two extremes
    (i = N(z) - 1, j = 0) always fit together: for every f-divergence, skew, lambda, convex
    correction and maximum step. Cost: a few operations per asked cell; only where they do not (a
    floor, a negative weight) the increments are tabulated, and for more than 2^22 of them, or
    pooled counts, the slightly larger value without i + j < N is taken: never too small.
    """
    return worst_substitution(batches).change


def worst_substitution(batches: Sequence[BatchIncrements]) -> Substitution:
    """The substitution that attains `exact_sensitivity`: proof that it is not too large.

    (Beyond the table's limit, one that comes close to it.)
    """
    limits = [_largest_conceivable(batch) for batch in batches]
    if not limits:
        raise InvalidInputError("There is no batch, so nothing can be released.")
    first, *others = sorted(range(len(batches)), key=lambda t: -limits[t])
    worst = _worst_of_batch(first, batches[first])
    for t in others:
        if limits[t] <= worst.change:
            break  # no batch that is left can move the sum further
        worst = max(worst, _worst_of_batch(t, batches[t]), key=lambda found: found.change)
    return worst


def terms_sensitivity(batches: Sequence[BatchIncrements], draws: Sequence[Ints]) -> float:
    """L2 sensitivity of releasing every term on its own: two cells change, each `draws` times.

    `batches` hold increments of single terms (weight 1). Never too small; attained if the two
    largest changes can occur together, as for every convex score without lambda.
    """
    worst = 0.0
    for batch, repeats in zip(batches, draws, strict=True):
        change = np.maximum(np.abs(batch.lowest), np.abs(batch.highest))
        _refuse_infinite(change)
        worst = max(worst, math.sqrt(float(np.sort(repeats * change**2)[-2:].sum())))
    return worst


def rounding_slack(magnitude: float) -> float:
    """What rounding can add to the distance of two computed sums, given sum |w| (max |s| + 1).

    Terms of unchanged cells are the same floats, and `math.fsum` rounds their sum once; 2^-47 of
    the magnitude covers that rounding and the few ulps in the scores of the two changed cells.
    """
    return check_finite(magnitude, "magnitude") * 2.0**-47


def _refuse_infinite(increments: Floats) -> None:
    if not np.all(np.isfinite(increments)):
        raise UnboundedSensitivityError(
            "One record can move this score without limit (an empty cell has an infinite "
            "score), so no finite noise makes it private. Choose a smoothing, as Skew(0.01)."
        )


def _largest_conceivable(batch: BatchIncrements) -> float:
    """At least the change of every substitution in the batch: its two extremes, as if they met."""
    _refuse_infinite(batch.lowest)
    _refuse_infinite(batch.highest)
    return float(max(0.0, batch.highest.max()) - min(0.0, batch.lowest.min()))


def _worst_of_batch(t: int, batch: BatchIncrements) -> Substitution:
    # The last row stands for the cells that are not asked.
    highest, lowest = np.append(batch.highest, 0.0), np.append(batch.lowest, 0.0)
    gain_at, lose_at = np.append(batch.highest_at, 0), np.append(batch.lowest_at, 0)
    changes, gaining, losing = _best_pair(highest[:, None], -lowest[:, None])
    change, z, y = float(changes[0]), int(gaining[0]), int(losing[0])
    i, j, unasked = int(gain_at[z]), int(lose_at[y]), len(batch.highest)
    if unasked not in (z, y) and i + j >= (shared := int(max(batch.records[z], batch.records[y]))):
        if batch.table is not None and unasked * shared <= ENUMERATION_LIMIT:
            change, z, i, y, j = _tabulated_worst(batch.table())
        else:
            i = shared - 1 - j  # a neighbour that exists; `change` stays the upper bound
    return Substitution(
        change=change,
        batch=t,
        gaining=None if z == unasked else z,
        gain_at=i,
        losing=None if y == unasked else y,
        lose_at=j,
    )


def _tabulated_worst(table: Floats) -> tuple[float, int, int, int, int]:
    """max over z != y and i + j < N of d_z(i) - d_y(j), and z, i, y, j, from all increments."""
    rows = np.vstack([table, np.zeros(table.shape[1])])
    best_gain = np.maximum.accumulate(rows, axis=1)[:, ::-1]  # column j: i up to N - 1 - j
    changes, gaining, losing = _best_pair(best_gain, -rows)
    j = int(np.argmax(changes))
    z, y = int(gaining[j]), int(losing[j])
    i = int(np.argmax(rows[z, : rows.shape[1] - j]))
    return float(changes[j]), z, i, y, j


def _best_pair(rise: Floats, fall: Floats) -> tuple[Floats, Ints, Ints]:
    """Per column, the largest rise[z] + fall[y] over rows z != y, and z and y."""
    column = np.arange(rise.shape[1])
    tops = np.argsort(rise, axis=0)[:-3:-1], np.argsort(fall, axis=0)[:-3:-1]
    options = [(z, y) for z in tops[0] for y in tops[1]]
    values = np.array(
        [np.where(z == y, -np.inf, rise[z, column] + fall[y, column]) for z, y in options]
    )
    choice = np.argmax(values, axis=0)
    gaining = np.array([z for z, _ in options])[choice, column]
    losing = np.array([y for _, y in options])[choice, column]
    return values[choice, column], gaining, losing


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


def contribution_sensitivity(batches: Sequence[BatchScores], contribution: int) -> float:
    """Delta_k: the largest change of `sum_t sum_x S_x` if k records of one batch change.

    With k = `contribution` and d_y(j) = S_y(j) - S_y(j + 1), which falls with j,

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
    >>> [round(contribution_sensitivity([batch], k), 3) for k in (1, 2, 10)]
    [0.1, 0.2, 0.5]
    """
    check_positive_int(contribution, "contribution")
    if not batches:
        raise InvalidInputError("There is no batch, so nothing can be released.")
    return max(_worst_of_records(batch, min(contribution, batch.size)) for batch in batches)


def joint_sensitivity(everything: BatchScores, contribution: int) -> float:
    """At least the largest change of the sum if so many records of any batches change.

    For several clients, as those that lie: the largest losses and the largest gains, as if none
    stood in the way of another. `everything` has all terms, and the records of all batches.
    """
    most = min(check_positive_int(contribution, "contribution"), everything.size)
    records = everything.records

    def falling(cells: Ints, removed: Ints) -> Floats:
        return everything.scores(cells, np.minimum(removed, records[cells]))

    def rising(cells: Ints, removed: Ints) -> Floats:
        return everything.scores(cells, np.maximum(records[cells] - removed, 0))

    steps = (
        _largest_steps(replace(everything, scores=scores), most)[0][:most]
        for scores in (falling, rising)
    )
    return math.fsum(float(each.sum()) for each in steps)


def _worst_of_records(batch: BatchScores, most: int) -> float:
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

    def rises(n: Ints) -> npt.NDArray[np.bool_]:
        at = records - n
        return batch.scores(cells, at) - batch.scores(cells, at - 1) + steps[n] > 0

    first = np.full(len(cells), -1)
    best = bisect_whole(rises, first, first + 1 + len(steps)) + 1
    losses = np.append(0.0, np.cumsum(steps))
    full = batch.scores(cells, records)
    return np.asarray(full - batch.scores(cells, records - best) + losses[best])


def _exactly(batch: BatchScores, z: int, most: int, steps: Floats) -> float:
    """The best n for a gaining cell z, given the steps of the others."""
    losses = np.append(0.0, np.cumsum(steps))
    n = np.arange(most + 1)
    cell = np.array([z])
    gains = batch.scores(cell, batch.records[cell]) - batch.scores(cell, batch.records[cell] - n)
    return float((gains + losses[np.minimum(n, len(losses) - 1)]).max())
