"""One number with adaptive noise, for a trusted aggregator: small where no record matters much."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.gap_ranges import gap_ranges, is_whole
from fedprikl.estimation.score_ranges import check_adaptive, score_ranges
from fedprikl.privacy import (
    InverseSensitivityMechanism,
    NoiseLaw,
    NoiseSource,
    Ranges,
    adaptive_release,
)
from fedprikl.reference import QueryPoints

__all__ = [
    "adaptive_law",
    "adaptive_noise",
    "adaptive_ranges",
    "adaptive_value",
]

LAWS = 64  # populations whose noise is computed, of the thousands that a threshold needs


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
