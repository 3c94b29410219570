"""Trials show the errors that real releases have."""

import math

import numpy as np
import pytest

from fedprikl import InsecureSeededNoise
from fedprikl.checks import Floats
from fedprikl.divergence import Score, skewed_divergence
from fedprikl.estimation import (
    BatchCounts,
    CountNoise,
    NoisyCounts,
    estimate_noisy_counts,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.adaptive import adaptive_value
from fedprikl.estimation.drift_model import drifted_ratios
from fedprikl.estimation.scoring import Terms
from fedprikl.estimation.simulated_releases import (
    AdaptiveNoise,
    CountsNoise,
    ReleaseOption,
    ValueNoise,
    draw_populations,
    simulated_errors,
)
from fedprikl.privacy import Counts, IntegerLaplaceMechanism, LaplaceMechanism, Numbers
from fedprikl.reference import all_points, spread_points

CELLS, RECORDS, EPSILON = 40, 6000, 1.0
MASS = np.random.default_rng(2).lognormal(0, 1, CELLS)
POINTS, N, SCORE = all_points(MASS / MASS.sum()), np.array([RECORDS]), Score()
LAPLACE = LaplaceMechanism.calibrated(
    Numbers(score_sensitivity(POINTS, N, SCORE)), epsilon=EPSILON, delta=0.0
)
ON_COUNTS = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=EPSILON, delta=0.0)
RELEASES: list[ReleaseOption] = [
    ValueNoise(LAPLACE),
    AdaptiveNoise(EPSILON),
    CountsNoise(CountNoise.of(ON_COUNTS)),
]


def real_release(release: ReleaseOption, counts: BatchCounts, source: InsecureSeededNoise) -> float:
    if isinstance(release, ValueNoise):
        return float(release.mechanism.add_to([weighted_score(counts, SCORE)], source)[0])
    if isinstance(release, AdaptiveNoise):
        return adaptive_value(counts, SCORE, epsilon=release.epsilon, source=source)
    outside = RECORDS - counts.counts.sum()
    noisy = ON_COUNTS.add_to([*counts.counts.tolist(), outside], source)
    found = NoisyCounts.of(noisy, N, [CountNoise.of(ON_COUNTS)])
    return estimate_noisy_counts(POINTS, found, score=SCORE, rng=np.random.default_rng(0))[0]


@pytest.mark.parametrize("kind", ["smooth", "gone"])
@pytest.mark.parametrize("release", RELEASES, ids=["value", "adaptive", "counts"])
def test_trials_show_the_errors_of_real_releases(release: ReleaseOption, kind: str) -> None:
    """240 or 150 real releases: their mean error is known to 8 to 12%; trials agree within 30%."""
    ratios = drifted_ratios(POINTS.pi, kind, 0.1, SCORE)
    assert ratios is not None
    rng, source, errors = np.random.default_rng(3), InsecureSeededNoise(4), []
    for _ in range(240 if isinstance(release, AdaptiveNoise) else 150):
        held = rng.multinomial(RECORDS, POINTS.pi * ratios)
        truth = skewed_divergence(POINTS.pi, held / RECORDS, skew=0.01)
        errors.append(real_release(release, BatchCounts(POINTS, held, N), source) - truth)
    found = simulated_errors(POINTS, N, ratios, SCORE, release, effort=(24, 60))
    assert found.mean_absolute == pytest.approx(np.mean(np.abs(errors)), rel=0.3)
    assert found.mean_absolute >= abs(found.bias)
    low, high = np.quantile(found.signed, np.array([0.1, 0.9]))
    assert 0.62 < np.mean((low <= np.array(errors)) & (np.array(errors) <= high)) < 0.95


def test_a_population_has_the_drift_that_was_asked_for() -> None:
    ratios = drifted_ratios(POINTS.pi, "smooth", 0.2, SCORE)
    assert ratios is not None
    drawn = draw_populations(POINTS, N, ratios, np.random.default_rng(0), populations=50)
    assert np.all(drawn.counts.sum(axis=1) == RECORDS)
    assert np.array_equal(drawn.everybody, drawn.counts)
    assert drawn.counts.mean(axis=0) == pytest.approx(RECORDS * POINTS.pi * ratios, rel=0.2)
    truths = [skewed_divergence(POINTS.pi, row / RECORDS, skew=0.01) for row in drawn.counts]
    assert drawn.truths(SCORE) == pytest.approx(np.array(truths))


def test_groups_of_equal_records_vary_more() -> None:
    def spread(design_effect: float) -> Floats:
        drawn = draw_populations(
            POINTS,
            N,
            np.ones(CELLS),
            np.random.default_rng(0),
            populations=400,
            design_effect=design_effect,
        )
        variances: Floats = drawn.counts.var(axis=0)
        return variances

    assert np.mean(spread(3.5) / spread(1.0)) == pytest.approx(3.5, rel=0.1)


def test_batches_are_samples_of_everybody() -> None:
    """Small batches have a bias, and the truth is that of all batches together."""
    points, records = (
        spread_points(POINTS.pi, 20, batches=8, rng=np.random.default_rng(5)),
        N[0] // 8,
    )
    terms = Terms.of(points, np.full(8, records))
    ratios = drifted_ratios(terms.pi, "smooth", 0.1, SCORE, mass=terms.weights)
    assert ratios is not None
    exact = LaplaceMechanism(scale=1e-9, sensitivity=1e-9)
    found = simulated_errors(points, np.full(8, records), ratios, SCORE, ValueNoise(exact))
    assert found.bias > 0.001
    assert found.truth == pytest.approx(0.1, rel=0.2)
    related = simulated_errors(
        points, np.full(8, records), ratios, SCORE, ValueNoise(exact), design_effect=4.0
    )
    assert related.bias > 2 * found.bias
    assert math.isfinite(related.mean_absolute)


def test_several_examples_of_a_drift_have_populations_of_their_own() -> None:
    two = [drifted_ratios(POINTS.pi, "smooth", size, SCORE) for size in (0.1, 0.5)]
    known = np.stack([ratios for ratios in two if ratios is not None])
    found = simulated_errors(POINTS, N, known, SCORE, ValueNoise(LAPLACE), effort=(6, 10))
    assert found.signed.shape == (12, 10)
    assert found.truths[:6] == pytest.approx(np.full(6, 0.1), rel=0.3)
    assert found.truths[6:] == pytest.approx(np.full(6, 0.5), rel=0.2)
