"""Calibrations: never less privacy than asked for, and the paper's true epsilon."""

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.paper import classic_constant, paper_noise_gain, paper_true_epsilon
from fedprikl.privacy import (
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    LaplaceMechanism,
    Numbers,
    calibrate,
)
from fedprikl.privacy import accounting as gaussian_account
from fedprikl.privacy.noise import GRID_SLACK, _sampler

epsilons = st.floats(0.01, 20)
deltas = st.sampled_from([1e-9, 1e-6, 1e-3])
sensitivities = st.floats(1e-6, 10)


@given(epsilons, deltas, sensitivities)
def test_no_less_privacy_than_asked_for(epsilon: float, delta: float, sensitivity: float) -> None:
    for kind in ("laplace", "gaussian", "auto"):
        mechanism = calibrate(Numbers(sensitivity), epsilon=epsilon, delta=delta, law=kind)
        assert mechanism.epsilon(delta) <= epsilon
        assert mechanism.epsilon(delta) > epsilon * (1 - 1e-6)


@given(epsilons, deltas)
def test_the_gaussian_profile_is_the_definition(epsilon: float, delta: float) -> None:
    """delta(epsilon) from the two normal tails (Balle and Wang), independently of dp-accounting."""
    sigma = GaussianMechanism.calibrated(Numbers(), epsilon=epsilon, delta=delta).sigma
    first = stats.norm.cdf(0.5 / sigma - epsilon * sigma)
    second = math.exp(epsilon + stats.norm.logcdf(-0.5 / sigma - epsilon * sigma))
    assert first - second <= delta * (1 + 1e-6)
    assert first - second > delta * 0.999


@given(st.floats(-4, 2.5), st.floats(-29, -0.1), st.floats(-3, 7))
def test_the_gaussian_account_is_the_librarys(
    log_epsilon: float, log_delta: float, log_ratio: float
) -> None:
    """To the last digit, at the part of delta that rounding leaves."""
    epsilon, delta, ratio = 10**log_epsilon, 10**log_delta, 10**log_ratio
    least = dp_accounting.get_sigma_gaussian(epsilon, gaussian_account._usable(delta, 1.0))
    usable = gaussian_account._usable(delta, 2 * least)
    sigma = dp_accounting.get_sigma_gaussian(epsilon, usable)
    assert gaussian_account.gaussian_sigma(epsilon, delta) == sigma
    usable = gaussian_account._usable(delta, ratio)
    with np.errstate(divide="ignore"):
        spent = dp_accounting.get_epsilon_gaussian(ratio, usable, tol=1e-18)
    assert gaussian_account.gaussian_epsilon(ratio, delta) == spent


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_opendp_agrees_that_the_slack_covers_its_grid(scale: float) -> None:
    mechanism = LaplaceMechanism(scale=scale, sensitivity=0.01)
    assert _sampler("laplace", scale, 1).map(0.01) <= mechanism.epsilon(0.0)
    assert mechanism.epsilon(0.0) < 0.01 / scale * (1 + 1e-8)


@pytest.mark.parametrize("steps", [200, 1000])
def test_the_slack_covers_the_discrete_gaussian(steps: int) -> None:
    """The sampler's noise is a discrete Gaussian on the grid. On a grid coarse enough to sum its
    probabilities, delta at the continuous epsilon, with the slack's four steps, is not exceeded.
    """
    distance = steps // 4
    mechanism = GaussianMechanism(sigma=steps, sensitivity=distance + 4 - GRID_SLACK)
    for delta in (1e-3, 1e-6):
        epsilon = mechanism.epsilon(delta)
        k = np.arange(-12 * steps, 12 * steps + 1)
        mass = np.exp(-(k**2) / (2 * steps**2))
        mass /= mass.sum()
        shifted = np.exp(-((k - distance) ** 2) / (2 * steps**2))
        shifted /= np.exp(-(k**2) / (2 * steps**2)).sum()
        assert np.maximum(shifted - math.exp(epsilon) * mass, 0).sum() <= delta


@pytest.mark.parametrize("delta", [1e-30, 1e-15, 0.5, 0.9])
def test_integer_noise_for_extreme_deltas(delta: float) -> None:
    mechanism = IntegerGaussianMechanism.calibrated(Counts(), epsilon=1.0, delta=delta)
    assert math.isfinite(mechanism.sigma)
    assert mechanism.epsilon(delta) <= 1.0


def test_auto_takes_the_smaller_noise() -> None:
    single = calibrate(Numbers(), epsilon=1.0, delta=1e-6)
    assert isinstance(single, LaplaceMechanism)
    gaussian = GaussianMechanism.calibrated(Numbers(), epsilon=1.0, delta=1e-6)
    assert gaussian.standard_deviation / single.standard_deviation == pytest.approx(2.99, abs=0.01)
    tolerant = calibrate(Numbers(), epsilon=0.1, delta=0.2)
    assert isinstance(tolerant, GaussianMechanism)


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (8.0, 1e-3)])
def test_integer_noise_is_accounted_exactly(coordinates: int, epsilon: float, delta: float) -> None:
    """delta(epsilon) summed over all outcomes of the discrete Gaussian in one or two cells."""
    mechanism = IntegerGaussianMechanism.calibrated(
        Counts(coordinates=coordinates), epsilon=epsilon, delta=delta
    )
    sigma = mechanism.sigma
    reach = np.arange(-math.ceil(9 * sigma) - 2, math.ceil(9 * sigma) + 3)
    one = np.exp(-(reach**2) / (2 * sigma**2))
    one /= one.sum()
    if coordinates == 1:
        p, q = one[1:], one[:-1]
    else:  # cell y loses a record and cell z gains one
        p, q = np.outer(one[1:], one[:-1]), np.outer(one[:-1], one[1:])
    true_delta = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
    assert true_delta <= delta
    assert true_delta > delta * 0.9 or sigma < 1  # coarse noise has few values to choose from
    continuous = math.sqrt(coordinates) * dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert continuous <= sigma <= 1.5 * continuous
    assert mechanism.epsilon(delta) <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "released", "repeated", "expected"),
    [
        (0.1, "terms", False, {50: 4.57, 20: 1.66, 10: 0.78}),
        (1.0, "terms", False, {50: 88.6, 20: 24.4, 10: 10.3}),
        (1.0, "mean", False, {50: 1.87, 20: 1.14, 10: 0.78}),
        (1.0, "mean", True, {50: 28.3, 20: 15.7, 10: 10.3}),
    ],
)
def test_what_the_paper_noise_truly_gives(
    epsilon: float, released: Any, repeated: bool, expected: dict[int, float]
) -> None:
    """The table in docs/paper-errata.md."""
    for batches, value in expected.items():
        found = paper_true_epsilon(
            epsilon=epsilon,
            delta=1e-6,
            points=10,
            batches=batches,
            released=released,
            repeated=repeated,
        )
        assert found == pytest.approx(value, abs=0.06 if value > 10 else 0.006)


def test_repeated_terms_are_worse_than_distinct_ones() -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 10, "batches": 20}
    assert paper_true_epsilon(repeated=True, **settings) > paper_true_epsilon(**settings)


@pytest.mark.parametrize(("epsilon", "holds"), [(1.5, True), (8.0, True), (10.0, False)])
def test_the_classic_constant_fails_for_large_epsilon(epsilon: float, holds: bool) -> None:
    """sigma = c / epsilon is proved below 1 only. At 1.5, which the paper uses, it happens to
    hold; further on it gives less than it claims.
    """
    classic = GaussianMechanism(sigma=classic_constant(1e-6) / epsilon, sensitivity=1.0)
    assert (classic.epsilon(1e-6) <= epsilon) == holds


def test_the_noise_gain() -> None:
    gain = paper_noise_gain(epsilon=0.5, delta=1e-6, batches=20)
    assert gain == pytest.approx(2 * math.log(1.25e6) / 100)


def test_mechanisms_describe_themselves() -> None:
    laplace = LaplaceMechanism.calibrated(Numbers(), epsilon=1.0, delta=0.0)
    assert str(laplace) == "Laplace noise of scale 1"
    assert laplace.standard_deviation == pytest.approx(math.sqrt(2))
    integer = IntegerGaussianMechanism(sigma=3.0, coordinates=2)
    assert "integer Gaussian" in str(integer)
    assert integer.standard_deviation == 3.0
    assert GaussianMechanism(sigma=0.0, sensitivity=1.0).epsilon(1e-6) == math.inf


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: calibrate(Numbers(), epsilon=0, law="laplace"), "above 0"),
        (lambda: calibrate(Numbers(), epsilon=-1, law="laplace"), "above 0"),
        (lambda: calibrate(Numbers(), epsilon=math.nan, law="laplace"), "finite"),
        (lambda: calibrate(Numbers(), epsilon=math.inf, law="laplace"), "finite"),
        (lambda: calibrate(Numbers(), epsilon=1e300, law="laplace"), "no privacy at all"),
        (lambda: calibrate(Numbers(), epsilon=10**400, law="laplace"), "must be a number"),
        (
            lambda: paper_true_epsilon(epsilon=math.nan, delta=0.1, points=1, batches=1),
            "finite",
        ),
        (lambda: calibrate(Numbers(), epsilon="a", law="laplace"), "must be a number"),  # type: ignore[call-overload]
        (lambda: calibrate(Numbers(-1), epsilon=1, law="laplace"), "negative"),
        (lambda: calibrate(Numbers(math.inf), epsilon=1, law="laplace"), "finite"),
        (lambda: calibrate(Numbers(), epsilon=1, delta=0, law="gaussian"), "strictly between"),
        (lambda: calibrate(Numbers(), epsilon=1, delta=1, law="gaussian"), "under 1"),
        (lambda: calibrate(Numbers(), epsilon=1, delta=0.1, law="x"), "known are auto"),
        (
            lambda: calibrate(Counts(coordinates=0), epsilon=1, delta=0.1, law="gaussian"),
            "at least 1",
        ),
        (
            lambda: paper_true_epsilon(
                epsilon=1,
                delta=0.1,
                points=1,
                batches=1,
                released="x",  # type: ignore[arg-type]
            ),
            "'terms' or 'mean'",
        ),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
