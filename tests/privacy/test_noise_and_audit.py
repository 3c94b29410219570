"""Noise has the distribution it should, leaks nothing in its low bits; the audit has teeth."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.audit.lower_bounds import audit, lowest_bit
from fedprikl.checks import Floats
from fedprikl.privacy import SecureNoise
from fedprikl.privacy.noise import GRID_EXPONENT
from tests.false_alarm import FALSE_ALARM, looks_distributed

pytestmark = pytest.mark.slow

SOURCES = [SecureNoise(), InsecureSeededNoise(7)]


@pytest.mark.parametrize("source", SOURCES, ids=repr)
def test_the_noise_has_its_distribution(source: Any) -> None:
    """Kolmogorov-Smirnov at a false-alarm rate of 1e-9."""
    zeros = np.zeros(20_000)
    laplace, gaussian = stats.laplace(scale=0.5), stats.norm(scale=2.0)
    assert looks_distributed(source.laplace(zeros, scale=0.5), laplace)
    assert looks_distributed(source.gaussian(zeros, sigma=2.0), gaussian)
    integers = source.integer_gaussian(zeros, sigma=40.0)
    assert looks_distributed(
        integers + np.random.default_rng(1).uniform(-0.5, 0.5, 20_000), stats.norm(scale=40.0)
    )
    assert integers.dtype == np.int64


def test_that_check_would_catch_noise_twenty_percent_too_small() -> None:
    """The two laws are 0.041 apart, the limit is 0.023: missed once in 1e11."""
    noise = SecureNoise().laplace(np.zeros(20_000), scale=0.4)
    assert not looks_distributed(noise, stats.laplace(scale=0.5))


def test_noise_is_centred_on_the_values() -> None:
    noisy = SecureNoise().gaussian([5.0, -3.0], sigma=1e-6)
    np.testing.assert_allclose(noisy, [5.0, -3.0], atol=1e-4)
    assert SecureNoise().integer_gaussian([10**6], sigma=0.01).tolist() == [10**6]


def test_every_release_lies_on_the_grid() -> None:
    source, values = SecureNoise(), np.full(500, math.pi)
    for noisy in (source.laplace(values, scale=1.0), source.gaussian(values, sigma=1.0)):
        on_grid = noisy * 2.0**-GRID_EXPONENT
        assert np.array_equal(on_grid, np.rint(on_grid))


def test_seeded_noise_repeats_and_is_marked() -> None:
    first, second = InsecureSeededNoise(3), InsecureSeededNoise(3)
    assert first.laplace([0.0], scale=1.0) == second.laplace([0.0], scale=1.0)
    assert InsecureSeededNoise.insecure
    assert not SecureNoise.insecure
    assert "Insecure" in repr(first)


@pytest.mark.parametrize("source", SOURCES, ids=repr)
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.laplace([math.nan], scale=1.0), "finite numbers"),
        (lambda s: s.gaussian([math.inf], sigma=1.0), "finite numbers"),
        (lambda s: s.laplace([[1.0]], scale=1.0), "one list"),
        (lambda s: s.laplace([], scale=1.0), "at least 1"),
        (lambda s: s.laplace([1.0], scale=0.0), "above 0"),
        (lambda s: s.gaussian([1.0], sigma=math.nan), "finite"),
        (lambda s: s.integer_gaussian([math.nan], sigma=1.0), "finite numbers"),
    ],
)
def test_bad_values_are_refused(source: Any, call: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        call(source)


def test_integer_noise_is_for_whole_numbers() -> None:
    with pytest.raises(InvalidInputError, match="whole numbers"):
        SecureNoise().integer_gaussian([0.5], sigma=1.0)


def test_the_lowest_bit() -> None:
    values = np.array([1.0, 0.75, 6.0, -6.0, 2.0**-40, 0.0, 0.1])
    assert lowest_bit(values).tolist() == [0, -2, 1, 1, -40, 0, -55]


def world(value: float, draw: Any) -> Any:
    """A mechanism on one data set: n releases of `value` plus noise."""
    return lambda n: draw(np.full(n, value))


def run_audit(draw: Any, *, gaussian: bool, epsilon: float = 1.0, distance: float = 1.0) -> Any:
    return audit(
        world(0.0, draw),
        world(distance, draw),
        epsilon=epsilon,
        delta=1e-6,
        gaussian=gaussian,
        trials=40_000,
        false_alarm=FALSE_ALARM,
    )


def numpy_normal(values: Floats) -> Floats:
    return values + np.random.default_rng(5).normal(0, 4.3, len(values))


def ours(values: Floats) -> Floats:
    return SecureNoise().gaussian(values, sigma=4.3)


def test_the_precision_event_catches_numpy_noise_and_not_ours() -> None:
    """sigma = 4.3 is enough for (1, 1e-6) on paper; numpy's floats give the value away."""
    naive = run_audit(numpy_normal, gaussian=True)
    tests = naive.bounds
    assert tests["floating-point precision"] > 1
    assert tests["clopper-pearson"] < 1
    assert naive.refuted
    careful = run_audit(ours, gaussian=True)
    assert careful.bounds["floating-point precision"] == 0
    assert not careful.refuted


def test_an_honest_laplace_release_is_not_refuted_and_nearly_reached() -> None:
    """The bound is 0.87 with a standard deviation of 0.013: below 0.7 not once in 1e30."""
    result = run_audit(lambda v: SecureNoise().laplace(v, scale=1.0), gaussian=False)
    assert 0.7 < result.lower_bound_epsilon <= 1
    assert not result.refuted
    assert list(result.bounds) == ["clopper-pearson", "floating-point precision"]


def test_half_the_laplace_noise_is_refuted() -> None:
    """The bound is 1.81 with a standard deviation of 0.03."""
    result = run_audit(lambda v: SecureNoise().laplace(v, scale=0.5), gaussian=False)
    assert result.refuted
    assert 1 < result.lower_bound_epsilon <= 2


def test_the_gaussian_test_sees_further_than_counting() -> None:
    """At a distance of 4 sigma the true epsilon is 26; 40,000 trials cannot count that far.

    The Gaussian bound is 24.2 with a standard deviation of 0.19.
    """
    result = run_audit(lambda v: SecureNoise().gaussian(v, sigma=0.25), gaussian=True)
    tests = result.bounds
    assert tests["clopper-pearson"] < 9 < 20 < tests["gaussian"] < 26.8


def test_no_noise_at_all_and_no_difference_at_all() -> None:
    assert run_audit(lambda v: v, gaussian=False).refuted
    same = run_audit(lambda v: v, gaussian=True, distance=0.0)
    assert same.lower_bound_epsilon == 0


def test_the_result_is_plain_data() -> None:
    result = run_audit(ours, gaussian=True)
    document = result.to_dict()
    assert document["claimed_epsilon"] == 1.0
    assert document["refuted"] is False
    assert set(document["bounds"]) == {"clopper-pearson", "floating-point precision", "gaussian"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": 100}, "at least 200"),
        ({"trials": 0}, "at least 1"),
        ({"epsilon": 0}, "above 0"),
        ({"delta": 0}, "strictly between"),
        ({"false_alarm": 0}, "strictly between"),
    ],
)
def test_bad_audits_say_what_to_do(changes: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "gaussian": True}
    with pytest.raises(InvalidInputError, match=words):
        audit(world(0.0, ours), world(1.0, ours), **(settings | changes))
