"""Without a trusted party the interval covers too: for no, spread and concentrated drift."""

import math

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Ints
from fedprikl.divergence import Floor, Score, Skew, skewed_divergence
from fedprikl.estimation import CountNoise, NoisyCounts, estimate_noisy_counts
from fedprikl.estimation.drift_model import drifted_ratios
from fedprikl.estimation.interval import counts_interval
from fedprikl.privacy import laplace_variance
from fedprikl.reference import QueryPoints, all_points, spread_points
from tests.estimation.test_interval import population
from tests.long import long

pytestmark = pytest.mark.slow

KINDS, ALL = ["no drift", "spread drift", "concentrated drift"], 600
# Standard deviations of the noise: Laplace of epsilon 1, and normal; cells hold 15 to 8,700 records
QUIET, LOUD = math.sqrt(laplace_variance(2.0)), 30.0


def release(
    points: QueryPoints, held: Ints, noise_sd: float, rng: np.random.Generator
) -> NoisyCounts:
    """What a round would release, with Laplace noise where it is quiet."""
    counts = held[points.cells]
    noise = CountNoise(sd=noise_sd, scale=2.0 if noise_sd == QUIET else None)
    exact = np.append(counts, held.sum() - counts.sum())
    return NoisyCounts.of(exact + noise.draw(rng, exact.shape), [held.sum()], [noise], points)


@pytest.mark.parametrize(
    ("kind", "size"), [("smooth", 0.0), long("smooth", 0.1), long("gone", 0.2)]
)
def test_releases_of_one_round_are_covered(kind: str, size: float) -> None:
    """80 releases: the lower 99% limit is above 82% (a true 95% fails with p = 0.1)."""
    pi, score, rng = np.arange(1.0, 41), Score(Skew(0.01)), np.random.default_rng(9)
    pi, releases = pi / pi.sum(), 80
    ratios = drifted_ratios(pi, kind, size, score)
    assert ratios is not None
    held, points = rng.multinomial(6000, pi * ratios), all_points(pi)
    truth = skewed_divergence(pi, held / held.sum(), skew=0.01)
    errors, limits = np.empty(releases), np.empty((releases, 2))
    for i in range(releases):
        noisy = release(points, held, QUIET, rng)
        value, _ = estimate_noisy_counts(points, noisy, score=score, rng=rng)
        interval = counts_interval(points, noisy, value, score=score)
        assert interval is not None
        errors[i], limits[i] = value - truth, interval.printed
    covered = np.count_nonzero((limits[:, 0] <= truth) & (truth <= limits[:, 1]))
    assert stats.beta.ppf(0.01, covered, releases - covered + 1) > 0.82
    # Not merely wide: 5 to 14 times the error was measured, 3.9 would be a normal 95% interval.
    assert np.diff(limits).mean() < 20 * np.sqrt(np.mean(errors**2))


def coverage(kind: str, noise_sd: float, cells: int, repetitions: int) -> tuple[float, float]:
    """Of the interval, and of the estimate plus or minus 1.96 deviations of its noise."""
    pi, held = population(kind)
    truth = skewed_divergence(pi, held / held.sum(), skew=0.01)
    rng, score = np.random.default_rng(8), Score(Skew(0.01))
    covered = naive = 0
    for repetition in range(repetitions):
        if repetition == 0 or cells < ALL:
            points = spread_points(pi, cells, batches=1, rng=rng)
        noisy = release(points, held, noise_sd, rng)
        value, sd = estimate_noisy_counts(points, noisy, score=score, rng=rng)
        limits = counts_interval(points, noisy, value, score=score)
        assert limits is not None
        assert limits.guaranteed is None
        low, high = limits.printed
        covered += low <= truth <= high
        naive += abs(value - truth) <= 1.96 * sd
    return covered / repetitions, naive / repetitions


@pytest.mark.parametrize("noise_sd", [QUIET, long(LOUD)])
@pytest.mark.parametrize("kind", [*map(long, KINDS[:2]), KINDS[2]])
def test_the_interval_covers_where_every_cell_is_asked(kind: str, noise_sd: float) -> None:
    """20 repetitions, each simulated anew: at least 80% (a true 95% fails with p = 0.003)."""
    assert coverage(kind, noise_sd, ALL, 20)[0] >= 0.8


@pytest.mark.validation
@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers_where_cells_are_sampled(kind: str) -> None:
    """40 repetitions: at least 85% (a true 95% fails here with probability 0.003)."""
    assert coverage(kind, LOUD, 60, 40)[0] >= 0.85


def test_an_interval_of_the_noise_alone_would_not() -> None:
    """Where noise dominates many cells, a bias remains that its spread does not show."""
    assert coverage("concentrated drift", LOUD, ALL, 20)[1] < 0.5


def test_more_noise_is_a_wider_interval_and_a_level_too(rng: np.random.Generator) -> None:
    pi, held = population("spread drift")
    points, score = spread_points(pi, 60, batches=1, rng=rng), Score(Skew(0.01))

    def width(noise_sd: float, level: float) -> float:
        noisy = release(points, held, noise_sd, rng)
        limits = counts_interval(points, noisy, 0.3, score=score, level=level)
        assert limits is not None
        return limits.printed[1] - limits.printed[0]

    assert width(QUIET, 0.95) < width(LOUD, 0.95) < width(LOUD, 0.999)


def test_impossible_values_and_other_scores(rng: np.random.Generator) -> None:
    pi, held = population("no drift")
    skew = Score(Skew(0.01))
    points = spread_points(pi, 60, batches=1, rng=rng)
    noisy = release(points, held, QUIET, rng)
    far = counts_interval(points, noisy, 50.0, score=skew)
    assert far is not None
    assert far.printed[0] == far.printed[1] == pytest.approx(math.log(100))
    low = counts_interval(points, noisy, -0.01, score=skew)
    assert low is not None
    assert low.printed[0] == 0
    assert counts_interval(points, noisy, 0.1, score=Score(Skew(0.01), control=1.0)) is None
    assert counts_interval(points, noisy, 0.1, score=Score(Floor(1e-4))) is None
    with pytest.raises(InvalidInputError, match="strictly between"):
        counts_interval(points, noisy, 0.1, score=skew, level=95.0)
