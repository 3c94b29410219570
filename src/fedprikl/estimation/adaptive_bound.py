"""What an adaptive release says of *every* population. docs/intervals.md has the argument.

How much noise there was is private. But a small divergence has no cell far from Pi, so a few
records cannot move it far; and a large divergence that a few records turn into a small one can be
reached from the small one by as few.
"""

import math
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.gap_ranges import gap_parts
from fedprikl.privacy import InverseSensitivityMechanism
from fedprikl.reference import QueryPoints

__all__ = ["AdaptiveBound", "adaptive_bound"]

DISTANCES = 24  # numbers of records that are looked at; the ones between are bounded by the next
GRID_BITS = 47  # of the ranges' grid, one less to be safe
BISECTIONS, TOLERANCE = 50, 1e-3


def adaptive_bound(
    points: QueryPoints,
    records: Ints,
    score: Score,
    *,
    epsilon: float,
    level: float,
    moved: int = 1,
) -> "AdaptiveBound":
    """The bound for this release; the same one if it is asked for again."""
    return _adaptive_bound(points, tuple(records.tolist()), score, epsilon, level, moved)


@lru_cache(maxsize=16)
def _adaptive_bound(
    points: QueryPoints,
    records: tuple[int, ...],
    score: Score,
    epsilon: float,
    level: float,
    moved: int,
) -> "AdaptiveBound":
    return AdaptiveBound(points, np.array(records), score, epsilon, level, moved)


class AdaptiveBound:
    """Which values F before noise a release t does not contradict, for every population.

    With U_k(F) at least as large as what k records (k clients of `moved` records, where these are
    protected) add to any data set of value F, and k such that len(t) > k has a probability of at
    most 1 - level for every data set of value F:

        F + U_k(F) >= t    and    F <= t + U_k(t)

    Whole domains in one batch (`is_whole`) only.
    """

    def __init__(
        self,
        points: QueryPoints,
        records: Ints,
        score: Score,
        epsilon: float,
        level: float,
        moved: int = 1,
    ) -> None:
        self._parts = gap_parts(points, int(records[0]), score, epsilon=epsilon, moved=moved)
        self._steps = InverseSensitivityMechanism(epsilon=epsilon).steps
        self._tail, self._log_q = 1 - level, -epsilon / 2
        self._k = np.arange(1, self._steps)
        self._moved, self._records = moved, moved * self._k
        some = np.geomspace(1, self._steps - 1, DISTANCES)
        self._distances = np.unique(np.round(some).astype(np.int64))
        self._next = np.searchsorted(self._distances, self._k)
        # Widths are only compared up to the largest distance that is not above k.
        self._before = np.searchsorted(self._distances, self._k, side="right") - 1
        self._least = self._least_widths()[self._before]
        grid = math.ldexp(1.0, math.frexp(self._parts.magnitude)[1] - GRID_BITS)
        self._slack = 4 * grid * self._records * (self._records + 4)

    def interval(self, value: float, largest: float) -> tuple[float, float]:
        """The least and the largest F between 0 and `largest` that the value allows."""
        high, back = largest, self.reaches(max(value, 0.0))
        for _ in range(BISECTIONS):  # falls to the largest F that is allowed
            allowed = value + float(back[self.distance(high) - 1])
            if allowed >= high * (1 - 1e-6):
                break
            high = max(allowed, 0.0)
        if self.upper(0.0) >= value:
            return 0.0, high
        below, above = 0.0, largest
        while above - below > TOLERANCE * above:
            middle = (below + above) / 2
            below, above = (below, middle) if self.upper(middle) >= value else (middle, above)
        return min(below, high), high

    def contains(self, divergence: float, value: float) -> bool:
        """Whether the value allows F = `divergence`."""
        back = float(self.reaches(max(value, 0.0))[self.distance(divergence) - 1])
        return self.upper(divergence) >= value and divergence <= value + back

    def upper(self, divergence: float) -> float:
        """F + U_k(F): the largest t with len(t) <= k."""
        reach = self.reaches(divergence)
        return divergence + float(reach[self._distance(divergence, reach) - 1])

    def distance(self, divergence: float) -> int:
        """The least k with P(len > k) <= 1 - level, for every data set of this value.

        With widths w_j of I_j, at most W_j and at least l_j, and q = e^(-epsilon / 2),

            P(len > k) <= (A - q^(k+1) l_k) / (A + (1 - q) sum_(j <= k) q^j l_j),
            A = q^steps W_steps + (1 - q) sum_(k < j < steps) q^j W_j
        """
        return self._distance(divergence, self.reaches(divergence))

    def _distance(self, divergence: float, reach: Floats) -> int:
        widest = reach + np.minimum(reach, divergence + self._slack)
        powers = np.exp(self._log_q * self._k)
        falling = -math.expm1(self._log_q)
        outermost = math.exp(self._log_q * self._steps) * 4 * self._parts.magnitude
        beyond = np.cumsum((falling * powers * widest)[::-1])[::-1]
        beyond = outermost + np.append(beyond[1:], 0.0)
        within = np.cumsum(falling * powers * self._least)
        tails = (beyond - powers * math.exp(self._log_q) * self._least) / (beyond + within)
        enough = np.flatnonzero(tails <= self._tail)
        return int(self._k[enough[0]]) if enough.size else len(self._k)

    def reaches(self, divergence: float) -> Floats:
        """U_k(F) for all k.

        A cell can hold h records only if its own term is at most F. The mean of k steps is steepest
        where h is furthest from the least term, as terms are convex. Records are removed where the
        mean is steepest, from each cell until its term is that of an empty cell, and added where it
        is steepest.
        """
        parts, entries = self._parts, np.arange(len(self._parts.turn))
        zero, full = np.zeros_like(parts.turn), np.full_like(parts.turn, parts.total)
        low = np.maximum(self._furthest(divergence, zero), 1)
        high = np.minimum(self._furthest(divergence, full), parts.total - 1)
        k = self._moved * self._distances[:, None]
        down, up = np.minimum(k, low), np.minimum(k, parts.total - high)
        falls = parts.falling(entries, low - down) - parts.falling(entries, low)
        most = parts.falling(entries, zero) - parts.least
        rises = parts.rising(entries, parts.total - high - up)
        rises = rises - parts.rising(entries, parts.total - high)
        adding = np.maximum.accumulate(np.maximum(rises / up, 0.0).max(axis=1))[self._next]
        removing = self._removing(np.maximum(falls / down, 0.0), np.maximum(most, 0.0))
        return np.asarray(removing + self._records * adding + self._slack)

    def _removing(self, means: Floats, most: Floats) -> Floats:
        """What removed records add, at most: `means` per record of each cell, `most` per cell."""
        gains = np.empty(len(self._k))
        order = np.argsort(-means, axis=1)
        for i, row in enumerate(order):
            mean, gain = means[i, row], most[row]
            useful = mean > 0
            records = np.cumsum(gain[useful] / mean[useful])
            here = self._next == i
            reached = np.append(0.0, np.cumsum(gain[useful]))
            gains[here] = np.interp(self._records[here], np.append(0.0, records), reached)
        return np.maximum.accumulate(gains)

    def _furthest(self, divergence: float, end: Ints) -> Ints:
        """The count nearest to `end` at which a cell's term is at most F: a bisection."""
        parts, entries = self._parts, np.arange(len(self._parts.turn))
        inside, outside = parts.turn.copy(), end.copy()
        fits = parts.scores(entries, outside) <= divergence
        inside = np.where(fits, outside, inside)
        while np.any(np.abs(outside - inside) > 1):
            middle = (inside + outside) // 2
            fits = parts.scores(entries, middle) <= divergence
            inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        return inside

    def _least_widths(self) -> Floats:
        """l_k: no range I_k of any data set is narrower. From the cell that moves most for sure.

        A cell with h records moves by the variation of its term between h - k and h + k, within
        0 .. N. That is least around the least term, or at one of the ends.
        """
        parts = self._parts
        cells, n = np.arange(len(parts.pi)), parts.total
        turn, k = parts.turn[:-1], np.minimum(self._moved * self._distances, n)[:, None]

        def variation(low: Ints, high: Ints) -> Floats:
            ends = parts.scores(cells, low) + parts.scores(cells, high)
            return np.asarray(ends - 2 * parts.scores(cells, np.clip(turn, low, high)))

        zero = np.zeros_like(k + turn)
        widths = np.minimum(variation(zero, zero + k), variation(n - k + zero, zero + n))
        low, high = np.clip(turn - k, k, n - k), np.clip(turn + k, k, n - k)
        low, high = np.where(2 * k <= n, low, n // 2), np.where(2 * k <= n, high, n // 2)
        while np.any(low < high):
            middle = (low + high) // 2
            left = np.maximum(middle - k, 0)
            after = parts.scores(cells, left + 1) + parts.scores(cells, middle + 1 + k)
            rises = after >= parts.scores(cells, left) + parts.scores(cells, middle + k)
            low, high = np.where(rises, low, middle + 1), np.where(rises, middle, high)
        centred = variation(np.maximum(low - k, 0), np.minimum(low + k, n))
        widths = np.minimum(widths, np.where(2 * k <= n, centred, np.inf))
        found = np.maximum.accumulate(widths.max(axis=1))
        return np.asarray(np.maximum(found * (1 - 1e-9) - 1e-15, 0.0))
