"""Every divergence from the same noisy counts: all of it post-processing."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.interval import counts_interval
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import NoisyCounts, debias, estimate_noisy_counts
from fedprikl.estimation.noisy_verdict import VariationStatistic
from fedprikl.privacy import NoiseSource, PrivacyStatement
from fedprikl.privacy.integer_gaussian import IntegerGaussianMechanism
from fedprikl.privacy.integer_laplace import IntegerLaplaceMechanism
from fedprikl.reference import QueryPoints

__all__ = [
    "estimates_from_counts",
    "mean_without_drift",
    "noise_counts",
    "read_counts",
    "values_without_drift",
]

POPULATIONS, RESAMPLES = 200, 20
MOST, CHUNK = 20_000_000, 2_000_000  # numbers in all, and at a time


def estimates_from_counts(
    noisy: NoisyCounts,
    scores: Sequence[Score],
    *,
    method: str,
    payload: int,
    privacy: PrivacyStatement,
    rng: np.random.Generator,
) -> tuple[Estimate, ...]:
    """An estimate for each score, with its interval; one statistic for the verdict on all.

    `rng` serves the debiasing only; it never makes release noise.
    """
    statistic = VariationStatistic.of(noisy)
    found = [estimate_noisy_counts(noisy, score=score, rng=rng) for score in scores]
    return tuple(
        Estimate(
            method=method,
            value=each.value,
            target=score.target,
            unit=score.unit,
            payload=payload,
            noise_sd=each.noise_sd,
            limits=partial(counts_interval, noisy, each.value, score=score),
            statistic=statistic,
            typical=partial(mean_without_drift, noisy, score),
            privacy=privacy,
        )
        for each, score in zip(found, scores, strict=True)
    )


def noise_counts(
    counts: BatchCounts,
    mechanism: IntegerLaplaceMechanism | IntegerGaussianMechanism,
    source: NoiseSource,
) -> NoisyCounts:
    """Exact counts of the points, and of all other cells of a batch, with integer noise on each."""
    points, records = counts.points, counts.records
    asked = np.bincount(points.batch, weights=counts.counts, minlength=points.batches)
    exact = np.concatenate([counts.counts, records - asked.astype(np.int64)])
    return read_counts(points, records, mechanism.add_to(exact, source), mechanism)


def read_counts(
    points: QueryPoints,
    records: Ints,
    noised: Floats,
    mechanism: IntegerLaplaceMechanism | IntegerGaussianMechanism,
) -> NoisyCounts:
    """Noised numbers as what they are: counts of the points, then of the rest of every batch."""
    return NoisyCounts(
        points=points,
        counts=noised[: len(points)],
        rest=noised[len(points) :],
        records=records,
        noise_sd=np.full(points.batches, mechanism.standard_deviation),
        laplace_scale=getattr(mechanism, "scale", None),
    )


def mean_without_drift(noisy: NoisyCounts, score: Score, model: NoDrift) -> float:
    """What the estimate from counts with this noise is on average, if nothing has drifted."""
    return float(values_without_drift(noisy, score, model).mean())


def values_without_drift(noisy: NoisyCounts, score: Score, model: NoDrift) -> Floats:
    """The same estimate of simulated populations of as many records that have not drifted."""
    each = RESAMPLES * (len(noisy.points) + 1)
    populations = min(POPULATIONS, max(10, MOST // each))
    parts = np.array_split(np.arange(populations), 1 + populations * each // CHUNK)
    rng, found = public_simulation(), []
    for part in parts:
        counts = model.counts(len(part), rng)
        asked = counts @ (noisy.points.batch[:, None] == np.arange(noisy.points.batches))
        on_counts, on_rest = noisy.draw_noise(rng, len(part))
        values, _ = debias(
            noisy,
            counts + on_counts,
            noisy.records - asked + on_rest,
            np.broadcast_to(noisy.records, asked.shape),
            score=score,
            rng=rng,
            resamples=RESAMPLES,
        )
        found.append(values)
    return np.concatenate(found)
