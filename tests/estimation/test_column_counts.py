"""The law of one noisy count, against exact laws."""

import numpy as np
import pytest
from scipy import stats

from fedprikl.estimation import CountNoise
from fedprikl.estimation.cells import CountLaw, survival_of
from fedprikl.privacy import Counts, IntegerLaplaceMechanism, laplace_variance
from tests.false_alarm import looks_as_frequent, missed


def laplace(scale: float, sums: float = 1.0) -> CountNoise:
    return CountNoise(sd=(sums * laplace_variance(scale)) ** 0.5, scale=scale)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 5.0])
def test_one_laplace_variable_has_its_closed_form(epsilon: float) -> None:
    mechanism = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=epsilon, delta=0.0)
    found = survival_of(laplace(mechanism.scale))
    x = np.linspace(-20 * mechanism.scale, 20 * mechanism.scale, 1001)
    assert found(x) == pytest.approx(mechanism.survival(x), rel=1e-4, abs=1e-14)


@pytest.mark.parametrize("sums", [0.4, 1.7, 3.0])
def test_sums_of_them_are_as_frequent_as_drawn(sums: float) -> None:
    law, draws = laplace(5.0, sums), 200_000
    noise = law.draw(np.random.default_rng(2), (draws,))
    survival = survival_of(law)
    for x in (-12.0, 0.0, 7.0):
        chance = float(survival(np.array([x]))[0])
        assert looks_as_frequent(int(np.count_nonzero(noise > x)), draws, chance)
        assert missed(draws, chance, 0.7 * chance) < 1e-3  # the check has teeth


def test_normal_noise_and_none() -> None:
    x = np.array([-3.0, 0.0, 2.0])
    assert survival_of(CountNoise(sd=2.0))(x) == pytest.approx(stats.norm.sf(x / 2))
    assert survival_of(CountNoise(sd=0.0))(x).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("mean", [0.01, 0.5, 8.0, 29.0])
@pytest.mark.parametrize("effect", [1.0, 1.5, 20.0])
def test_few_records_are_counted_one_by_one(mean: float, effect: float) -> None:
    """Poisson and negative binomial tails, exactly up to where steps grow."""
    law = CountLaw.of(
        np.array([mean]),
        np.array([mean * effect]),
        np.array([1e-3]),
        survival_of(CountNoise(sd=0.0)),
    )
    exact = stats.poisson(mean) if effect == 1 else stats.nbinom(mean / (effect - 1), 1 / effect)
    for seen in (0, 1, 3, 10, 40, 75):
        assert law.above(np.array([float(seen)])) == pytest.approx(exact.sf(seen - 1), abs=1e-12)
        assert law.below(np.array([float(seen)])) == pytest.approx(exact.cdf(seen), abs=1e-9)


@pytest.mark.parametrize("pi", [0.01, 0.3, 0.5, 0.95])
def test_many_records_have_binomial_tails(pi: float) -> None:
    """From one in 10 to one in 1,000 within 20%; one in 100,000 within a half."""
    records, noise = 4000, survival_of(CountNoise(sd=0.0))
    law = CountLaw.of(
        np.array([records * pi]), np.array([records * pi * (1 - pi)]), np.array([pi]), noise
    )
    for chance in (0.1, 0.01, 1e-3, 1e-5):
        tolerance = 0.2 if chance > 1e-4 else 0.5
        high, low = stats.binom.isf(chance, records, pi), stats.binom.ppf(chance, records, pi)
        assert law.above(np.array([high])) == pytest.approx(
            stats.binom.sf(high - 1, records, pi), rel=tolerance
        )
        assert law.below(np.array([low])) == pytest.approx(
            stats.binom.cdf(low, records, pi), rel=tolerance
        )
