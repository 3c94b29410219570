"""The answer with adaptive noise: a number, its interval, and what a verdict makes of it."""

from dataclasses import replace
from functools import partial

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.adaptive import LAWS, adaptive_noise, adaptive_value
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.gap_ranges import dead_zone, is_whole
from fedprikl.estimation.interval import adaptive_interval
from fedprikl.estimation.statistic import AdaptiveStatistic
from fedprikl.estimation.terms import Terms
from fedprikl.estimation.trusted_aggregator import TRUST
from fedprikl.privacy import (
    SECURE_NOISE,
    InverseSensitivityMechanism,
    NoiseSource,
    PrivacyStatement,
)
from fedprikl.reference import QueryPoints

__all__ = ["adaptive_estimate", "adaptive_statistic", "explain_adaptive"]

REPETITIONS = 8  # draws of the noise for each simulated population


def adaptive_estimate(
    counts: BatchCounts,
    *,
    epsilon: float,
    score: Score,
    client_effect: float = 1.0,
    moved: int = 1,
    source: NoiseSource = SECURE_NOISE,
) -> Estimate:
    """The scored sum with noise that fits the population; how large it was is private.

    `moved`: the records of whoever is protected; 1, or those of a client.
    """
    return explain_adaptive(
        adaptive_value(counts, score, epsilon=epsilon, source=source, moved=moved),
        counts.points,
        counts.records,
        epsilon=epsilon,
        score=score,
        client_effect=client_effect,
        moved=moved,
        insecure=source.insecure,
    )


def explain_adaptive(
    value: float,
    points: QueryPoints,
    records: Ints,
    *,
    epsilon: float,
    score: Score,
    client_effect: float,
    moved: int,
    insecure: bool,
) -> Estimate:
    """The estimate that a value with adaptive noise is: all of it post-processing."""
    return Estimate(
        method="trusted aggregator, adaptive noise",
        value=value,
        target=score.target,
        unit=score.unit,
        payload=points.payload,
        statistic=adaptive_statistic(value, points, records, score, epsilon=epsilon, moved=moved),
        limits=partial(
            adaptive_interval,
            value,
            epsilon=epsilon,
            points=points,
            records=records,
            score=score,
            client_effect=client_effect,
            moved=moved,
        ),
        privacy=PrivacyStatement(
            epsilon=epsilon,
            delta=0.0,
            claimed_epsilon=epsilon,
            mechanism=str(InverseSensitivityMechanism(epsilon=epsilon)),
            released="one number",
            trust=TRUST,
            insecure=insecure,
        ),
    )


def adaptive_statistic(
    value: float,
    points: QueryPoints,
    records: Ints,
    score: Score,
    *,
    epsilon: float,
    moved: int = 1,
) -> AdaptiveStatistic:
    """The released value as a witness. Its noise without drift is simulated."""
    terms = Terms.of(points, records)

    def before_noise(counts: Ints) -> Floats:
        if not is_whole(points):
            return np.asarray(terms.scores(counts, score) @ terms.weights)
        total = int(records[0])
        cells = terms.scores(counts, replace(score, control=1.0)) @ terms.weights
        tau = dead_zone(epsilon, records=total, cells=len(points), moved=moved)
        outside = np.maximum(total - counts.sum(axis=1) - tau, 0.0)
        return np.asarray(cells + (1 - skew_of(score)) * outside / total)

    def noise(rng: np.random.Generator, counts: Ints) -> Floats:
        draw = adaptive_noise(
            points,
            records,
            score,
            epsilon=epsilon,
            populations=_dealt(terms, counts[:LAWS]),
            moved=moved,
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
