"""Printed intervals cover for all kinds of drift, cells that nearly vanished included."""

import math

import numpy as np
import pytest

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
from fedprikl.estimation.adaptive import adaptive_law
from fedprikl.estimation.interval import adaptive_interval, counts_interval, value_interval
from fedprikl.estimation.scoring import AskedNumber
from fedprikl.privacy import Counts, IntegerLaplaceMechanism, LaplaceMechanism, Numbers
from fedprikl.reference import all_points

pytestmark = pytest.mark.slow


def lognormal(cells: int, seed: int = 4) -> Floats:
    mass = np.random.default_rng(seed).lognormal(0, 1, cells)
    normalised: Floats = mass / mass.sum()
    return normalised


def drifted(pi: Floats, kind: str) -> Floats:
    """Drifts that are like no level of the calibration grid: other cells, directions and sizes."""
    rng, order = np.random.default_rng(8), np.argsort(pi)
    ratios = np.ones(len(pi))
    if kind == "smooth":
        ratios = np.exp(0.5 * rng.normal(size=len(pi)))
    elif kind == "rare":
        ratios[order[: len(pi) // 2]] = 0.2
    elif kind == "heavy":
        ratios[order[-1]] = 0.003
    elif kind == "gone":
        ratios = (rng.random(len(pi)) > 0.1).astype(float)
    elif kind == "shuffled":
        ratios = rng.gamma(1.5, size=len(pi))
    p = pi * ratios
    normalised: Floats = p / p.sum()
    return normalised


DRIFTS = ["none", "smooth", "rare", "heavy", "gone", "shuffled"]


def test_a_cell_that_nearly_vanished_and_clipping() -> None:
    """A 10% cell falls to 0.3% of itself; 402,953 records, epsilon 0.1, steps of 0.6.

    From the law of the noise: the interval covers in 95% of the releases, and the value plus or
    minus the quantile of its noise in less than half of them.
    """
    pi = np.append(0.1, 0.9 * lognormal(249))
    points, records = all_points(pi), np.array([402_953])
    p = pi * np.append(0.003, np.ones(249))
    held = np.random.default_rng(1).multinomial(records[0], p / p.sum())
    truth = skewed_divergence(pi, held / records[0], skew=0.01)
    score = Score(maximum_step=0.6 * score_sensitivity(points, records, Score()))
    noise = LaplaceMechanism.calibrated(
        Numbers(score_sensitivity(points, records, score)), epsilon=0.1, delta=0.0
    )
    before = weighted_score(BatchCounts(points, held, records), score)
    values = before + np.linspace(-10, 10, 2001) * noise.scale
    limits = [value_interval(value, noise, AskedNumber(points, records, score)) for value in values]
    low, high = np.array([found.printed for found in limits if found is not None]).T
    inside = values[(low <= truth) & (truth <= high)]
    ends = noise.survival(np.array([inside[0], inside[-1]]) - before)
    assert ends[0] - ends[1] >= 0.949
    reach = noise.quantile(0.975)
    naive = noise.survival(np.array([truth - reach, truth + reach]) - before)
    assert naive[0] - naive[1] < 0.5


@pytest.mark.parametrize("kind", DRIFTS)
def test_adaptive_intervals_cover(kind: str) -> None:
    """Releases at the 3%, 50% and 96.5% quantiles of the noise of a population are covered."""
    pi, epsilon, records = lognormal(30), 1.0, np.array([5000])
    score = Score(maximum_step=0.6 * score_sensitivity(POINTS, records, Score()))
    held = np.random.default_rng(2).multinomial(5000, drifted(pi, kind))
    truth = skewed_divergence(pi, held / 5000, skew=0.01)
    before, law = adaptive_law(BatchCounts(POINTS, held, records), score, epsilon=epsilon)
    covered = []
    for level in (0.03, 0.5, 0.965):
        value = before + float(np.interp(level, law.below, law.edges))
        found = adaptive_interval(value, epsilon, AskedNumber(POINTS, records, score))
        assert found is not None
        covered.append(found.printed[0] <= truth <= found.printed[1])
    assert all(covered)


POINTS = all_points(lognormal(30))  # one object: what was simulated once is used again


@pytest.mark.parametrize("kind", DRIFTS)
@pytest.mark.parametrize(("records", "epsilon"), [(5000, 1.0), (50_000, 0.1)])
def test_intervals_of_noisy_counts_cover(kind: str, records: int, epsilon: float) -> None:
    """30 releases of a population: at least 25 cover (a true 95% fails with probability 0.003)."""
    pi, rng, score = POINTS.pi, np.random.default_rng(5), Score()
    held = rng.multinomial(records, drifted(pi, kind))
    truth = skewed_divergence(pi, held / records, skew=0.01)
    mechanism = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=epsilon, delta=0.0)
    scale = mechanism.scale
    covered, widths = 0, []
    for _ in range(30):
        noise = rng.geometric(-math.expm1(-1 / scale), (2, len(pi) + 1))
        numbers = np.append(held, 0) + noise[0] - noise[1]
        noisy = NoisyCounts.of(numbers, [records], [CountNoise.of(mechanism)])
        value, _ = estimate_noisy_counts(POINTS, noisy, score=score, rng=rng)
        found = counts_interval(POINTS, noisy, value, score=score)
        assert found is not None
        covered += found.printed[0] <= truth <= found.printed[1]
        widths.append(found.printed[1] - found.printed[0])
    assert covered >= 25
    assert np.mean(widths) < 0.5  # and say something
