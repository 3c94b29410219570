"""One number with adaptive noise, for a trusted aggregator: small where no record matters much."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.gap_ranges import dead_zone, gap_ranges, is_whole
from fedprikl.estimation.score_ranges import score_ranges
from fedprikl.estimation.statistic import AdaptiveStatistic
from fedprikl.estimation.terms import Terms
from fedprikl.estimation.trusted_aggregator import TRUST
from fedprikl.privacy import (
    SECURE_NOISE,
    InverseSensitivityMechanism,
    NoiseLaw,
    NoiseSource,
    PrivacyStatement,
    Ranges,
    adaptive_release,
)
from fedprikl.reference import QueryPoints

__all__ = [
    "adaptive_estimate",
    "adaptive_law",
    "adaptive_noise",
    "adaptive_ranges",
    "adaptive_statistic",
    "adaptive_value",
]

REPETITIONS = 8  # draws of the noise for each simulated population
LAWS = 64  # populations whose noise is computed, of the thousands that a threshold needs


def adaptive_ranges(counts: BatchCounts, score: Score, *, epsilon: float) -> Ranges:
    """What 1, 2, ... substituted records can make of the scored sum. SECRET.

    In the gap form where every cell is counted in one batch, else as the score is.
    """
    steps = InverseSensitivityMechanism(epsilon=epsilon).steps
    if is_whole(counts.points):
        return gap_ranges(counts, score, steps=steps, epsilon=epsilon)
    return score_ranges(counts, score, steps=steps)


def adaptive_value(
    counts: BatchCounts, score: Score, *, epsilon: float, source: NoiseSource
) -> float:
    """The divergence with adaptive noise: epsilon-private. Cost: tens of milliseconds."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon)
    return adaptive_release(ranges, epsilon=epsilon, source=source)


def adaptive_estimate(
    counts: BatchCounts, *, epsilon: float, score: Score, source: NoiseSource = SECURE_NOISE
) -> Estimate:
    """The scored sum with noise that fits the population; how large it was is private."""
    value = adaptive_value(counts, score, epsilon=epsilon, source=source)
    return Estimate(
        method="trusted aggregator, adaptive noise",
        value=value,
        target=score.target,
        unit=score.unit,
        payload=counts.points.payload,
        statistic=adaptive_statistic(value, counts.points, counts.records, score, epsilon=epsilon),
        privacy=PrivacyStatement(
            epsilon=epsilon,
            delta=0.0,
            claimed_epsilon=epsilon,
            mechanism=str(InverseSensitivityMechanism(epsilon=epsilon)),
            released="one number",
            trust=TRUST,
            insecure=source.insecure,
        ),
    )


def adaptive_statistic(
    value: float, points: QueryPoints, records: Ints, score: Score, *, epsilon: float
) -> AdaptiveStatistic:
    """The released value as a witness. Its noise without drift is simulated."""
    terms = Terms.of(points, records)

    def before_noise(counts: Ints) -> Floats:
        if not is_whole(points):
            return np.asarray(terms.scores(counts, score) @ terms.weights)
        total = int(records[0])
        cells = terms.scores(counts, replace(score, control=1.0)) @ terms.weights
        outside = np.maximum(total - counts.sum(axis=1) - dead_zone(epsilon), 0.0)
        return np.asarray(cells + (1 - skew_of(score)) * outside / total)

    def noise(rng: np.random.Generator, counts: Ints) -> Floats:
        draw = adaptive_noise(
            points, records, score, epsilon=epsilon, populations=_dealt(terms, counts[:LAWS])
        )
        return draw(rng, len(counts), REPETITIONS)

    return AdaptiveStatistic(
        name=score.divergence.name,
        unit=score.unit,
        value=value,
        points=points,
        records=records,
        before_noise=before_noise,
        noise=noise,
    )


def _dealt(terms: Terms, counts: Ints) -> Ints:
    """Counts of terms dealt evenly to their points: pooled, they are the same again."""
    asked = np.bincount(terms.of_point)
    order = np.argsort(terms.of_point, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(asked) - asked, asked)
    of, number = counts[:, terms.of_point], asked[terms.of_point]
    return np.asarray(of // number + (place < of % number))


def adaptive_law(counts: BatchCounts, score: Score, *, epsilon: float) -> tuple[float, NoiseLaw]:
    """The value before noise and the law of the noise, for simulated populations only."""
    ranges = adaptive_ranges(counts, score, epsilon=epsilon)
    return float(ranges.value) * ranges.grid, NoiseLaw.of(ranges, epsilon=epsilon)


def adaptive_noise(
    points: QueryPoints, records: Ints, score: Score, *, epsilon: float, populations: Ints
) -> Callable[[np.random.Generator, int, int], Floats]:
    """Noise like that of simulated populations: (draws, repetitions), for thresholds.

    `populations` are counts of the points, one population a row. The noise of populations of one
    kind is alike, so it is computed for the first 64 and used for all.
    """
    laws = [
        adaptive_law(BatchCounts(points, row, records), score, epsilon=epsilon)[1]
        for row in populations[:LAWS]
    ]

    def draw(rng: np.random.Generator, draws: int, repetitions: int) -> Floats:
        which = np.arange(draws) % len(laws)
        found = np.empty((draws, repetitions))
        for i, law in enumerate(laws):
            mine = which == i
            drawn = law.simulate(rng, int(mine.sum()) * repetitions)
            found[mine] = drawn.reshape(-1, repetitions)
        return found

    return draw
