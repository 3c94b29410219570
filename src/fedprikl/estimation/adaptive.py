"""One number with adaptive noise, for a trusted aggregator: small where no record matters much."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import CellScores, Score
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.scoring import BatchCounts, check_adaptive, score_ranges
from fedprikl.privacy import (
    InverseSensitivityMechanism,
    NoiseLaw,
    NoiseSource,
    Ranges,
    adaptive_release,
    reachable_ranges,
)
from fedprikl.reference import QueryPoints
from fedprikl.search import bisect_whole

LOUD = 100.0  # how much rarer than usual noise a record beyond the dead zone must be
LAWS = 64  # populations whose noise is computed, of the thousands that a threshold needs


def is_whole(points: QueryPoints) -> bool:
    """Whether all cells are counted, once, by everybody."""
    return (
        points.batches == 1
        and abs(math.fsum(points.pi.tolist()) - 1) < 1e-9
        and bool(np.allclose(points.weights, points.pi, rtol=1e-12, atol=0.0))
    )


def dead_zone(epsilon: float, *, records: int, cells: int, moved: int = 1) -> float:
    """tau: so many records outside all cells are left out of the value, at most. Public.

        tau = k 2/epsilon ln( 100 sqrt(N / K) ),    k = `moved`

    Otherwise a single record outside would always move the value by 1/N, the more so where nobody
    has one. Without drift other records move it by about sqrt(K/N) / N, so that many more steps
    must be taken, of k records each, before a record outside counts. The value is too low by at
    most (1 - gamma) tau / N, and exact if nobody is outside.
    """
    return moved * 2 / epsilon * math.log(LOUD * max(1.0, math.sqrt(records / cells)))


def gap_ranges(
    counts: BatchCounts, score: Score, *, steps: int, epsilon: float, moved: int = 1
) -> Ranges:
    """The ranges of the gap form for 1, 2, ..., steps - 1 times `moved` substitutions. SECRET.

    A convex score that falls up to the count m and rises from there is a falling one plus a rising
    one, s(min(h, m)) + s(max(h, m)) - s(m), and the rising one is a falling function of N - h.
    A substitution lowers at most one count and raises at most one, of h as of N - h. So each
    part has ranges of its own, and they add up: if I_k(x) lies in I_(k+1)(x') for both, it does for
    their sums.
    """
    n = int(counts.records[0])
    parts = gap_parts(counts.points, n, score, epsilon=epsilon, moved=moved)
    held = np.append(counts.counts, n - int(counts.counts.sum()))
    everybody = np.full(len(held), n)
    falling = reachable_ranges(
        held, everybody, parts.falling, magnitude=parts.magnitude, steps=steps, contribution=moved
    )
    rising = reachable_ranges(
        n - held,
        everybody,
        parts.rising,
        magnitude=parts.magnitude,
        steps=steps,
        contribution=moved,
    )
    least = round(math.fsum(parts.least.tolist()) / falling.grid)
    outer = [one + other - least for one, other in zip(falling.outer, rising.outer, strict=True)]
    return Ranges(
        value=falling.value + rising.value - least,
        lows=falling.lows + rising.lows - least,
        highs=falling.highs + rising.highs - least,
        outer=(outer[0], outer[1]),
        grid=falling.grid,
    )


@lru_cache(maxsize=16)  # simulated populations of one round share them
def gap_parts(
    points: QueryPoints, records: int, score: Score, *, epsilon: float, moved: int = 1
) -> "GapParts":
    """The parts of a whole domain for so many records. Public."""
    tau = dead_zone(epsilon, records=records, cells=len(points), moved=moved)
    gap = replace(score, control=1.0)
    cells = CellScores(
        gap,
        np.append(points.pi, 1.0),
        np.asarray(records),
        outside=0.0,
        weights=np.append(points.pi, 1.0),
    )
    line = np.array([(1 - skew_of(score)) / records, tau])
    turn = np.append(_minimum(gap, points.pi, records), 0)
    parts = GapParts(gap, points.pi, records, cells, line, turn, np.zeros(0))
    return replace(parts, least=parts.scores(np.arange(len(turn)), turn))


@dataclass(frozen=True, slots=True, eq=False)
class GapParts:
    """The score of each cell and of the records outside, split where it is least. Public.

    The last entry is for the records outside: 0 up to the dead zone, then a line.
    """

    score: Score
    pi: Floats
    total: int  # N
    cells: CellScores
    line: Floats  # the line's slope and where it begins
    turn: Ints  # m of each entry
    least: Floats  # w s(m)

    def scores(self, entries: Ints, at: Ints) -> Floats:
        """w s(h) of some entries at some counts; both broadcast."""
        found, last = self.cells(entries, at), entries == len(self.pi)
        if not np.any(last):
            return found
        slope, start = self.line
        beyond = slope * np.maximum(np.asarray(at, dtype=np.float64) - start, 0.0)
        return np.asarray(np.where(last, beyond, found))

    def falling(self, entries: Ints, at: Ints) -> Floats:
        """Up to its least value, the score; from there on that value."""
        return self.scores(entries, np.minimum(at, self.turn[entries]))

    def rising(self, entries: Ints, at: Ints) -> Floats:
        """The other part, as a function of N - h, which it falls with."""
        return self.scores(entries, np.maximum(self.total - at, self.turn[entries]))

    @property
    def magnitude(self) -> float:
        """At least the sum of all scores' sizes, with more records than there are."""
        bound = self.score.bound(self.pi, np.full(len(self.pi), 2 * self.total))
        return 4 * float(np.sum(self.pi * bound)) + 2


def _minimum(score: Score, pi: Floats, total: int) -> Ints:
    """The count at which each convex score is least: the first from which it does not fall.

    Cost: a bisection of 0 .. N, all cells at once.
    """
    records, none = np.asarray(total), np.full(len(pi), -1)
    return bisect_whole(
        lambda counts: score.increments(counts, pi, records, outside=0.0, weights=pi) >= 0,
        np.full(len(pi), total),
        none,
    )


def adaptive_ranges(counts: BatchCounts, score: Score, *, epsilon: float, moved: int = 1) -> Ranges:
    """What 1, 2, ... substituted records, or clients of `moved` records, can make of the scored
    sum. SECRET.

    In the gap form where every cell is counted in one batch, else as the score is.
    """
    check_adaptive(score, counts.points.weights)
    steps = InverseSensitivityMechanism(epsilon=epsilon).steps
    if is_whole(counts.points):
        return gap_ranges(counts, score, steps=steps, epsilon=epsilon, moved=moved)
    return score_ranges(counts, score, steps=steps, moved=moved)


def adaptive_value(
    counts: BatchCounts, score: Score, *, epsilon: float, source: NoiseSource, moved: int = 1
) -> float:
    """The divergence with adaptive noise: epsilon-private. Cost: tens of milliseconds."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon, moved=moved)
    return adaptive_release(ranges, epsilon=epsilon, source=source)


def adaptive_law(
    counts: BatchCounts, score: Score, *, epsilon: float, moved: int = 1
) -> tuple[float, NoiseLaw]:
    """The value before noise and the law of the noise, for simulated populations only."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon, moved=moved)
    return float(ranges.value) * ranges.grid, NoiseLaw.of(ranges, epsilon=epsilon)


def adaptive_noise(
    points: QueryPoints,
    records: Ints,
    score: Score,
    *,
    epsilon: float,
    populations: Ints,
    moved: int = 1,
) -> Callable[[np.random.Generator, int, int], Floats]:
    """Noise like that of simulated populations: (draws, repetitions), for thresholds.

    `populations` are counts of the points, one population a row. The noise of populations of one
    kind is alike, so it is computed for the first 64 and used for all.
    """
    some = np.ascontiguousarray(populations[:LAWS], dtype=np.int64).tobytes()
    laws = _laws(points, tuple(records.tolist()), score, epsilon, moved, some)

    def draw(rng: np.random.Generator, draws: int, repetitions: int) -> Floats:
        which = np.arange(draws) % len(laws)
        found = np.empty((draws, repetitions))
        for i, law in enumerate(laws):
            mine = which == i
            drawn = law.simulate(rng, int(mine.sum()) * repetitions)
            found[mine] = drawn.reshape(-1, repetitions)
        return found

    return draw


@lru_cache(maxsize=16)  # rounds alike are judged by the same simulated populations
def _laws(
    points: QueryPoints,
    records: tuple[int, ...],
    score: Score,
    epsilon: float,
    moved: int,
    populations: bytes,
) -> tuple[NoiseLaw, ...]:
    sizes, rows = np.array(records), np.frombuffer(populations, np.int64).reshape(-1, len(points))
    return tuple(
        adaptive_law(BatchCounts(points, row, sizes), score, epsilon=epsilon, moved=moved)[1]
        for row in rows
    )
