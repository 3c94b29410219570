"""How far so many substituted records can move a sum of scores: the ranges of adaptive noise.

Knows counts and numbers only, no divergence. docs/decisions/0013-adaptive-noise.md has the proofs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_counts, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["Ranges", "Scores", "reachable_ranges"]

# Weighted scores w s(h) of entries (positions) at counts h; both broadcast.
Scores = Callable[[Ints, Ints], Floats]

# A score is off by at most 2^-50 of its size. The grid is 4 to 8 times as coarse, so that every
# difference of two scores, rounded to the grid, is off by at most one step of it.
GRID_BITS = 48
LARGEST_TABLE = 2**20  # of gains that are sorted at once


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranges:
    """I_k = [low, high] for k = 1 .. steps - 1, on a grid: what k substitutions can reach. SECRET.

    For neighbours x and x', I_k(x) lies in I_(k+1)(x'). The grid, its outer ends and the number of
    ranges are public.
    """

    value: int  # f(x), where no record is substituted
    lows: Ints  # in steps of the grid, like all whole numbers here
    highs: Ints
    outer: tuple[int, int]
    grid: float  # a power of 2

    def __post_init__(self) -> None:
        lowest, highest = self.outer
        rising = np.concatenate([self.highs, [highest]])
        falling = np.concatenate([self.lows, [lowest]])
        if (
            len(self.lows) != len(self.highs)
            or np.any(np.diff(rising) < 0)
            or np.any(np.diff(falling) > 0)
            or np.any(rising < falling)
        ):
            raise InvalidInputError("Each range must contain the ones before it.")

    @property
    def steps(self) -> int:
        """The number of ranges, the outer one included."""
        return len(self.lows) + 1

    def __repr__(self) -> str:  # the ranges are secret
        return f"Ranges({self.steps} steps)"


def reachable_ranges(
    counts: Ints, records: Ints, scores: Scores, *, magnitude: float, steps: int
) -> Ranges:
    """The ranges of f(x) = sum_e w_e s_e(h_e), each w_e s_e convex and not rising in the count.

    A substitution lowers at most one count by 1 and raises at most one by 1. With k of them,

        low_k  = f(x) - the k largest drops w (s(h + j) - s(h + j + 1))
        high_k = f(x) + max sum_e r_e d_e,   sum_e r_e <= k,  0 <= r_e <= m_e = min(k, h_e),
                 d_e = w (s(h - m_e) - s(h)) / m_e

    low_k is the least f within k substitutions. high_k is at least the largest, and exceeds it by
    less than what one cell adds: there, records are divisible. Both are widened by a public slack
    for rounding.

    `records` (public) bound the counts; `magnitude` (public) is at least sum_e max |w_e s_e| and
    50 bits finer than what rounding does to a score.

    >>> weights = np.array([0.5, 0.5])
    >>> scores = lambda entry, count: -weights[entry] * np.log(0.01 + 0.99 * count / 10)
    >>> found = reachable_ranges(
    ...     np.array([10, 10]), np.array([20, 20]), scores, magnitude=10.0, steps=4
    ... )
    >>> (found.lows * found.grid).round(3).tolist(), (found.highs * found.grid).round(3).tolist()
    ([-0.047, -0.094, -0.138], [0.052, 0.11, 0.176])
    """
    h, most = check_counts(counts, "counts"), check_counts(records, "records")
    check_positive_int(steps, "steps")
    grid = math.ldexp(1.0, math.frexp(check_finite(magnitude, "magnitude"))[1] - GRID_BITS)
    entries = np.arange(len(h))

    def total(at: Ints) -> int:
        return round(math.fsum(scores(entries, at).tolist()) / grid)

    value = total(h)
    outer = total(most) - 1, total(np.zeros_like(h)) + 1
    k = np.arange(1, steps)
    slack = 2 * k * (k + 4)
    low = value - _falls(h, scores, grid, steps - 1) - slack
    high = value + _rises(h, scores, grid, steps - 1) + slack
    return Ranges(
        value=value,
        lows=np.clip(np.minimum.accumulate(low), *outer),
        highs=np.clip(np.maximum.accumulate(high), *outer),
        outer=outer,
        grid=grid,
    )


def _falls(h: Ints, scores: Scores, grid: float, most: int) -> Ints:
    """How far f falls if 1, 2, ..., `most` records are added where they lower it most.

    Drops of one cell get smaller, so cells are looked at in blocks of 1, 1, 2, 4, ... drops, and
    only while their last drop is among the largest: at most about `most` new drops a block.
    """
    active, begin, end = np.arange(len(h)), 0, 1
    largest: Ints = np.zeros(0, np.int64)
    while active.size and begin < most:
        at = h[active][:, None] + np.arange(begin, end + 1)
        drops = -_steps(np.diff(scores(active[:, None], at), axis=1), grid)
        largest = _largest(np.concatenate([largest, drops.ravel()]), most)
        least = largest[-1] if len(largest) == most else -1
        active = active[drops[:, -1] > least]
        begin, end = end, 2 * end
    falls = np.zeros(most, np.int64)
    falls[: len(largest)] = largest
    return np.cumsum(falls)


def _largest(values: Ints, most: int) -> Ints:
    """The largest so many, the largest first."""
    if len(values) > most:
        values = np.partition(values, len(values) - most)[len(values) - most :]
    return np.sort(values)[::-1]


def _rises(h: Ints, scores: Scores, grid: float, most: int) -> Ints:
    """How far f rises, at most, if 1, 2, ..., `most` records are removed."""
    present = np.flatnonzero(h)
    rises = np.zeros(most, np.int64)
    if not present.size:
        return rises
    first = 1
    while first <= most:
        last = min(2 * first - 1, most)
        useful = _useful(present, h, scores, grid, first, last)
        for chunk in _chunks(np.arange(first, last + 1), len(useful)):
            rises[chunk - 1] = _fill(useful, h, scores, grid, chunk)
        first = last + 1
    return rises


def _useful(present: Ints, h: Ints, scores: Scores, grid: float, first: int, last: int) -> Ints:
    """The cells that can be among the best for some k in first .. last.

    d(k) rises with k. If cells whose d(first) is at least c hold `last` records together, no cell
    with d(last) < c is needed.
    """
    density, room = _density(present, h, scores, grid, np.array([first]))
    order = np.argsort(-density[0])
    filled = np.searchsorted(np.cumsum(room[0][order]), last)
    if filled == len(order):
        return present
    best, _ = _density(present, h, scores, grid, np.array([last]))
    useful: Ints = present[best[0] >= density[0][order[filled]] * (1 - 2.0**-50)]
    return useful


def _fill(cells: Ints, h: Ints, scores: Scores, grid: float, k: Ints) -> Ints:
    """The largest sum of r d for each k: the cells with the largest d first."""
    density, room = _density(cells, h, scores, grid, k)
    order = np.argsort(-density, axis=1)
    room = np.take_along_axis(room, order, axis=1)
    before = np.cumsum(room, axis=1) - room
    taken = np.clip(k[:, None] - before, 0, room)
    gains = np.rint(np.take_along_axis(density, order, axis=1) * taken)
    return np.asarray(gains.sum(axis=1), dtype=np.int64)


def _density(cells: Ints, h: Ints, scores: Scores, grid: float, k: Ints) -> tuple[Floats, Ints]:
    """d and m of each cell (columns) for each k (rows), d in steps of the grid."""
    here = h[cells]
    room = np.minimum(k[:, None], here)
    gains = _steps(scores(cells, here - room) - scores(cells, here), grid)
    return gains / room, room


def _steps(values: Floats, grid: float) -> Ints:
    return np.rint(values / grid).astype(np.int64)


def _chunks(k: Ints, cells: int) -> list[Ints]:
    return np.array_split(k, min(len(k), 1 + len(k) * cells // LARGEST_TABLE))
