"""Noise in shares: the probabilities of the sum, its exact account, its draws."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.checks import Floats
from fedprikl.privacy import (
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    Numbers,
    SecureNoise,
    SharedCounts,
    calibrate,
)
from fedprikl.privacy import accounting as integer_account
from fedprikl.privacy.accounting import integer_gaussian_delta, many_counts_delta, two_counts_delta
from fedprikl.privacy.shares import SharedGaussianMechanism, sum_probabilities
from tests.false_alarm import FALSE_ALARM


def one_share(sigma: float, reach: int) -> Floats:
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    normalised: Floats = weights / weights.sum()
    return normalised


@pytest.mark.parametrize(("sigma", "shares"), [(0.3, 5), (1.0, 3), (2.5, 4), (3.1, 5)])
def test_the_sum_has_the_convolved_probabilities(sigma: float, shares: int) -> None:
    expected = np.ones(1)
    for _ in range(shares):
        expected = np.convolve(expected, one_share(sigma, 90))
    found = sum_probabilities(sigma, shares)
    middle, reach = len(expected) // 2, len(found) // 2
    np.testing.assert_allclose(
        found, expected[middle - reach : middle + reach + 1], rtol=1e-9, atol=1e-50
    )
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("coordinates", [2, 7, 30])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_wide_noise_has_the_account_of_any_noise(
    coordinates: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a sigma of 3 on, all cosets weigh the same."""
    wide = integer_gaussian_delta(3.0, coordinates)(epsilon)
    monkeypatch.setattr(integer_account, "WIDE", math.inf)
    assert wide == pytest.approx(integer_gaussian_delta(3.0, coordinates)(epsilon), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "shares"), [(0.5, 1e-6, 7), (1.0, 1e-6, 400), (4.0, 1e-4, 30)]
)
def test_the_account_is_the_definition(epsilon: float, delta: float, shares: int) -> None:
    """delta(epsilon) summed over all outcomes of two cells, one losing and one gaining a record."""
    mechanism = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=shares), epsilon=epsilon, delta=delta
    )
    one = sum_probabilities(mechanism.sigma, shares)
    p, q = np.append(one, 0.0), np.append(0.0, one)
    worlds = np.outer(p, q), np.outer(q, p)
    true_delta = float(np.maximum(worlds[0] - math.exp(epsilon) * worlds[1], 0).sum())
    assert true_delta <= delta
    assert true_delta > 0.8 * delta  # and it is not wasteful
    assert mechanism.epsilon(delta) <= epsilon


def test_many_counts_by_definition() -> None:
    """Three counts, by enumeration of all outcomes; and one more than are accounted for."""
    mechanism = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=9, coordinates=3), epsilon=2.0, delta=1e-4
    )
    assert mechanism.epsilon(1e-4) <= 2.0
    one = sum_probabilities(mechanism.sigma, 9)
    p, q = np.append(one, 0.0), np.append(0.0, one)

    def true_delta(coordinates: int) -> float:
        left, right = np.ones(1), np.ones(1)
        for _ in range(coordinates):
            left, right = np.outer(left, p).ravel(), np.outer(right, q).ravel()
            likely = np.maximum(left, right) > 1e-12
            left, right = left[likely], right[likely]
        return float(np.maximum(left - math.exp(2.0) * right, 0).sum())

    assert 0.9e-4 < true_delta(3) <= 1e-4
    assert true_delta(4) > 2e-4


@pytest.mark.parametrize(("sigma", "coordinates"), [(1.3, 4), (8.0, 4), (20.0, 42), (84.0, 402)])
def test_many_counts_by_another_method(sigma: float, coordinates: int) -> None:
    """One discrete Gaussian share, whose exact sum is known: never below, and hardly above."""
    exact = integer_gaussian_delta(sigma, coordinates)
    found = many_counts_delta(sum_probabilities(sigma, 1), coordinates)
    middle = math.sqrt(coordinates) / sigma
    for epsilon in np.array([0.1, 1, 3, 5, 8]) * middle:
        assert exact(epsilon) <= found(epsilon) <= exact(epsilon) * 1.02


@pytest.mark.parametrize(("sigma", "shares"), [(0.3, 5), (0.5, 12), (1.0, 3), (0.3, 3000)])
def test_two_counts_by_both_methods(sigma: float, shares: int) -> None:
    """Down to a delta of 1e-30: never below, and above by what 0.03 less of epsilon would be."""
    one = sum_probabilities(sigma, shares)
    exact, found = two_counts_delta(one), many_counts_delta(one, 2)
    for epsilon in np.linspace(0, 20, 21):
        if exact(epsilon) > 1e-30:
            assert exact(epsilon) <= found(epsilon) * (1 + 1e-9)
            assert found(epsilon) <= exact(epsilon - 0.03) * 1.001


@pytest.mark.parametrize(("coordinates", "shares"), [(2, 40), (22, 40), (402, 2800)])
def test_more_moved_counts_need_more_noise(coordinates: int, shares: int) -> None:
    mechanism = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=shares, coordinates=coordinates), epsilon=1.0, delta=1e-6
    )
    continuous = GaussianMechanism.calibrated(
        Numbers(math.sqrt(coordinates)), epsilon=1.0, delta=1e-6
    ).sigma
    assert 0.999 < mechanism.epsilon(1e-6) <= 1.0
    assert mechanism.standard_deviation == pytest.approx(continuous, rel=0.03)
    assert mechanism.sensitivity == math.sqrt(coordinates)
    fewer = SharedGaussianMechanism(
        on=SharedCounts(shares=shares, coordinates=2 * coordinates), sigma=mechanism.sigma
    )
    assert fewer.epsilon(1e-6) > 1.3


def test_half_the_shares_do_not_suffice() -> None:
    mechanism = SharedGaussianMechanism.calibrated(SharedCounts(shares=40), epsilon=1.0, delta=1e-6)
    fewer = SharedGaussianMechanism(on=SharedCounts(shares=20), sigma=mechanism.sigma)
    assert fewer.epsilon(1e-6) > 1.3


def test_one_share_is_the_integer_gaussian() -> None:
    shared = SharedGaussianMechanism.calibrated(SharedCounts(shares=1), epsilon=1.0, delta=1e-6)
    alone = IntegerGaussianMechanism.calibrated(Counts(), epsilon=1.0, delta=1e-6)
    assert shared.sigma == pytest.approx(alone.sigma, rel=1e-3)


@pytest.mark.parametrize("source", [SecureNoise(), InsecureSeededNoise(4)], ids=repr)
def test_drawn_shares_add_up_to_the_stated_spread(source: Any) -> None:
    """Variance of 4,000 sums of 12 shares; chi-square limits at a false-alarm rate of 1e-9.

    Of noise that is a third less, the test sees a ratio of 0.7, ten standard deviations (0.022) of
    the ratio away from the limit of 0.86.
    """
    mechanism = SharedGaussianMechanism.calibrated(SharedCounts(shares=12), epsilon=0.3, delta=1e-6)
    total = np.sum([mechanism.draw_share(4000, source) for _ in range(12)], axis=0)
    ratio = total.var() / mechanism.standard_deviation**2
    low = float(stats.chi2.ppf(FALSE_ALARM / 2, 4000)) / 4000
    high = float(stats.chi2.isf(FALSE_ALARM / 2, 4000)) / 4000
    assert low < ratio < high
    assert not low < ratio * 0.7 < high  # a third less noise would be seen


def test_a_share_stays_within_its_reach() -> None:
    mechanism = SharedGaussianMechanism(on=SharedCounts(shares=50), sigma=0.4)
    assert mechanism.reach == 16
    assert np.abs(mechanism.draw_share(2000, SecureNoise())).max() <= mechanism.reach
    assert "in shares" in str(mechanism)


def test_hardly_any_noise_is_no_privacy() -> None:
    assert SharedGaussianMechanism(on=SharedCounts(shares=10), sigma=0.05).epsilon(1e-6) == math.inf


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "above 0"),
        ({"delta": 1.0}, "under 1"),
        ({"shares": 0}, "at least 1"),
        ({"coordinates": 0}, "at least 1"),
    ],
)
def test_bad_input_says_what_to_do(settings: dict[str, Any], words: str) -> None:
    on, asked = {"shares": 5}, {"epsilon": 1.0, "delta": 1e-6}
    for name, value in settings.items():
        (on if name in ("shares", "coordinates") else asked)[name] = value
    with pytest.raises(InvalidInputError, match=words):
        calibrate(SharedCounts(**on), law="gaussian", **asked)
