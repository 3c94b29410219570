"""Discrete Laplace noise on counts: its probabilities, its epsilon, its draws."""

import math
from typing import Any

import numpy as np
import pytest

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.privacy import (
    Counts,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    SecureNoise,
    calibrate,
)
from tests.false_alarm import looks_centred
from tests.privacy.test_polya import fits

pytestmark = pytest.mark.slow

K = np.arange(-400, 401)


@pytest.mark.parametrize("scale", [0.2, 2.0, 10.0])
def test_the_variance_is_the_definition(scale: float) -> None:
    weights = np.exp(-np.abs(K) / scale)
    variance = float(K**2 @ weights / weights.sum())
    mechanism = IntegerLaplaceMechanism(scale=scale, coordinates=2)
    assert mechanism.standard_deviation == pytest.approx(math.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
def test_epsilon_is_the_log_ratio(epsilon: float, coordinates: int) -> None:
    mechanism = IntegerLaplaceMechanism.calibrated(
        Counts(coordinates=coordinates), epsilon=epsilon, delta=0.0
    )
    step = np.abs(np.diff(-np.abs(K) / mechanism.scale)).max()
    assert coordinates * step == pytest.approx(epsilon, rel=1e-9)
    assert epsilon * (1 - 1e-9) < mechanism.epsilon(0.0) <= epsilon
    assert mechanism.sensitivity == coordinates


@pytest.mark.parametrize("source", [SecureNoise(), InsecureSeededNoise(2)], ids=repr)
def test_draws_have_their_probabilities(source: Any) -> None:
    """Chi-square at a false-alarm rate of 1e-9; noise 10% smaller is missed once in 1e40."""
    for scale, expected in ((2.0, True), (1.8, False)):
        draws = source.integer_laplace(np.full(60_000, 7), scale=scale) - 7
        assert fits(draws, np.exp(-np.abs(K) / 2.0) * math.tanh(0.25)) is expected


def test_noise_is_added_to_the_counts() -> None:
    """A z-test at 1e-9; half a count is 12 standard errors, missed once in 1e10."""
    mechanism = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=1.0, delta=0.0)
    noisy = mechanism.add_to(np.full(5000, 10**6), SecureNoise())
    assert noisy.dtype == np.float64
    assert looks_centred(noisy, 10**6)
    assert not looks_centred(noisy, 10**6 + 0.5)
    assert "Laplace" in str(mechanism)


def test_the_smaller_noise_is_taken() -> None:
    assert isinstance(calibrate(Counts(), epsilon=1.0, delta=1e-6), IntegerLaplaceMechanism)
    assert isinstance(calibrate(Counts(), epsilon=1.0, delta=0.05), IntegerGaussianMechanism)
    for kind in ("laplace", "gaussian"):
        chosen = calibrate(Counts(), epsilon=1.0, delta=1e-6, law=kind)
        assert kind in str(chosen).lower()


@pytest.mark.parametrize("coordinates", [2, 6, 40, 202, 402])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_many_moved_counts(epsilon: float, coordinates: int) -> None:
    """As many as 200 columns and their joint domain have: what is asked for is proved."""
    chosen = calibrate(Counts(coordinates=coordinates), epsilon=epsilon, delta=1e-6)
    assert 0.97 * epsilon < chosen.epsilon(1e-6) <= epsilon
    for kind in ("laplace", "gaussian"):
        other = calibrate(Counts(coordinates=coordinates), epsilon=epsilon, delta=1e-6, law=kind)
        assert other.epsilon(1e-6) <= epsilon
        assert chosen.standard_deviation <= other.standard_deviation


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: calibrate(Counts(), epsilon=0.0, delta=1e-6), "above 0"),
        (lambda: calibrate(Counts(coordinates=0), epsilon=1.0, law="laplace"), "at least 1"),
        (lambda: calibrate(Counts(), epsilon=1.0, delta=1e-6, law="x"), "There is no noise"),
        (lambda: SecureNoise().integer_laplace([0.5], scale=1.0), "whole numbers"),
        (lambda: SecureNoise().integer_laplace([math.nan], scale=1.0), "finite numbers"),
    ],
)
def test_bad_input_says_what_to_do(call: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        call()
