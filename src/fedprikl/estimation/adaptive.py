"""One number with adaptive noise, for a trusted aggregator: small where no record matters much."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import CellScores, Score
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.scoring import BatchCounts, cached_by_value, check_adaptive, score_ranges
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

RARER = 100.0  # how much rarer than usual noise a record beyond the dead zone must be
LAWS = 64  # populations whose noise is computed, of the thousands that a threshold needs


def is_whole(points: QueryPoints) -> bool:
    """Whether all cells are counted, once, by everybody."""
    return (
        points.batches == 1
        and abs(math.fsum(points.pi.tolist()) - 1) < 1e-9
        and bool(np.allclose(points.weights, points.pi, rtol=1e-12, atol=0.0))
    )


def dead_zone(epsilon: float, *, records: int, cells: int, contribution: int = 1) -> float:
    """tau: so many records outside all cells are left out of the value, at most. Public.

        tau = k 2/epsilon ln( 100 sqrt(N / K) ),    k = `contribution`

    Otherwise a single record outside would always move the value by 1/N, the more so where nobody
    has one. Without drift other records move it by about sqrt(K/N) / N, so that many more steps
    must be taken, of k records each, before a record outside counts. The value is too low by at
    most (1 - gamma) tau / N, and exact if nobody is outside.
    """
    return contribution * 2 / epsilon * math.log(RARER * max(1.0, math.sqrt(records / cells)))


def gap_ranges(
    counts: BatchCounts, score: Score, *, steps: int, epsilon: float, contribution: int = 1
) -> Ranges:
    """The ranges of the gap form for 1, 2, ... times `contribution` substitutions. SECRET.

    A convex score that falls up to the count m and rises from there is a falling one plus a rising
    one, s(min(h, m)) + s(max(h, m)) - s(m), and the rising one is a falling function of N - h.
    A substitution lowers at most one count and raises at most one, of h as of N - h. So each
    part has ranges of its own, and they add up: if I_k(x) lies in I_(k+1)(x') for both, it does for
    their sums.
    """
    n = int(counts.records[0])
    parts = gap_parts(counts.points, n, score, epsilon=epsilon, contribution=contribution)
    held = np.append(counts.counts, n - int(counts.counts.sum()))
    falling, rising = (
        reachable_ranges(
            at,
            np.full(len(held), n),
            part,
            magnitude=parts.magnitude,
            steps=steps,
            contribution=contribution,
        )
        for at, part in ((held, parts.falling), (n - held, parts.rising))
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
    points: QueryPoints, records: int, score: Score, *, epsilon: float, contribution: int = 1
) -> "GapParts":
    """The parts of a whole domain for so many records. Public."""
    tau = dead_zone(epsilon, records=records, cells=len(points), contribution=contribution)
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


def adaptive_ranges(
    counts: BatchCounts, score: Score, *, epsilon: float, contribution: int = 1
) -> Ranges:
    """What 1, 2, ... times `contribution` substituted records can make of the scored sum. SECRET.

    In the gap form where every cell is counted in one batch, else as the score is.
    """
    check_adaptive(score, counts.points.weights)
    steps = InverseSensitivityMechanism(epsilon=epsilon).steps
    if is_whole(counts.points):
        return gap_ranges(counts, score, steps=steps, epsilon=epsilon, contribution=contribution)
    return score_ranges(counts, score, steps=steps, contribution=contribution)


def adaptive_value(
    counts: BatchCounts, score: Score, *, epsilon: float, source: NoiseSource, contribution: int = 1
) -> float:
    """The divergence with adaptive noise: epsilon-private. Cost: tens of milliseconds."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon, contribution=contribution)
    return adaptive_release(ranges, epsilon=epsilon, source=source)


def adaptive_law(
    counts: BatchCounts, score: Score, *, epsilon: float, contribution: int = 1
) -> tuple[float, NoiseLaw]:
    """The value before noise and the law of the noise, for simulated populations only."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon, contribution=contribution)
    return float(ranges.value) * ranges.grid, NoiseLaw.of(ranges, epsilon=epsilon)


@cached_by_value(16)  # rounds of one kind are judged by the same simulated populations
def adaptive_laws(
    points: QueryPoints,
    records: Ints,
    score: Score,
    epsilon: float,
    contribution: int,
    populations: Ints,
) -> tuple[NoiseLaw, ...]:
    """The laws of the noise of simulated populations, one a row of their counts of the points."""
    return tuple(
        adaptive_law(
            BatchCounts(points, row, records), score, epsilon=epsilon, contribution=contribution
        )[1]
        for row in populations
    )


def draw_adaptive(
    laws: Sequence[NoiseLaw], rng: np.random.Generator, shape: tuple[int, int]
) -> Floats:
    """Noise like that of simulated populations: (draws, repetitions), for thresholds.

    The noise of populations of one kind differs little, so few laws serve all draws.
    """
    draws, repetitions = shape
    which, found = np.arange(draws) % len(laws), np.empty(shape)
    for i, law in enumerate(laws):
        mine = which == i
        drawn = law.simulate(rng, int(mine.sum()) * repetitions)
        found[mine] = drawn.reshape(-1, repetitions)
    return found
