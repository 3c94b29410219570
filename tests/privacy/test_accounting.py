"""Accounts of one law of noise, each by its definition on few outcomes: never below, and close."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize, stats

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.privacy.accounting import (
    LARGEST,
    LEAST,
    SMALLEST_DELTA,
    _largest_per_square,
    check_accounted_delta,
    client_counts_delta,
    client_gaussian_delta,
    concentrated_epsilon,
    concentration_of,
    gaussian_epsilon,
    gaussian_sigma,
    integer_gaussian_delta,
    integer_gaussian_epsilon,
    many_counts_delta,
    normal_tail,
    orders,
    renyi_delta,
    smallest_epsilon,
    two_counts_delta,
)

CLOSE = 1e-6  # how far above the truth an exact account may be, of it
CUT = 1e-13  # outcomes beyond 8 sigma are less likely than this, also if all are in one tail


def discrete_gaussian(sigma: float, reach: int | None = None) -> Floats:
    """Its probabilities, centred."""
    reach = reach or math.ceil(16 * sigma) + 2
    masses = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
    found: Floats = masses / masses.sum()
    return found


def by_definition(noise: Floats, shifts: list[int], epsilon: float) -> float:
    """The sum of max(0, P - e^epsilon Q) over all outcomes of counts that are shifted so far."""
    mine, other = np.ones(1), np.ones(1)
    for shift in shifts:
        pad = np.zeros(shift)
        mine = np.multiply.outer(mine, np.concatenate([noise, pad])).ravel()
        other = np.multiply.outer(other, np.concatenate([pad, noise])).ravel()
    return float(np.maximum(mine - math.exp(epsilon) * other, 0.0).sum())


def is_exact(found: float, truth: float) -> bool:
    return truth - CUT <= found <= truth * (1 + CLOSE) + CUT


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("coordinates", [1, 2, 3])
def test_integer_noise_by_its_definition(sigma: float, coordinates: int) -> None:
    noise = discrete_gaussian(sigma, math.ceil(8 * sigma))
    found = integer_gaussian_delta(sigma, coordinates)
    for factor in (0.0, 0.3, 1.0):
        epsilon = factor * normal_tail(coordinates / sigma**2, 1e-3)
        truth = by_definition(noise, [1] * coordinates, epsilon)
        assert is_exact(found(epsilon), truth), epsilon
        again = integer_gaussian_epsilon(sigma, coordinates, truth)
        assert again == pytest.approx(epsilon, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 4.0])
def test_counts_that_change_together_by_their_definition(sigma: float) -> None:
    noise = discrete_gaussian(sigma)
    few = discrete_gaussian(sigma, math.ceil(8 * sigma))
    for factor in (0.0, 0.3, 1.0):
        epsilon = factor * normal_tail(2 / sigma**2, 1e-3)
        assert is_exact(two_counts_delta(noise)(epsilon), by_definition(few, [1, 1], epsilon))
        three = by_definition(few, [1, 1, 1], epsilon)
        assert three - CUT <= many_counts_delta(noise, 3)(epsilon) <= three * 1.01


def test_many_counts_are_about_one_normal_number() -> None:
    """Four hundred counts of sigma 40: a normal loss, to the percent that whole numbers leave."""
    found = many_counts_delta(discrete_gaussian(40.0), 400)
    mu = math.sqrt(400) / 40
    for epsilon in (0.5, 2.0):
        normal = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
            -mu / 2 - epsilon / mu
        )
        assert found(epsilon) == pytest.approx(normal, rel=0.01)


@pytest.mark.parametrize("ratio", [0.5, 3.0, 100.0, 2e5])
def test_gaussian_noise_is_free_only_where_delta_pays_for_all_of_it(ratio: float) -> None:
    """At epsilon 0, delta is the distance of the laws; with a little less, something is lost."""
    whole = 2 * stats.norm.cdf(0.5 / ratio) - 1
    assert gaussian_epsilon(ratio, whole * 1.01) == 0.0
    lost = gaussian_epsilon(ratio, whole * 0.99)
    assert 0 < lost < 0.05 / ratio
    assert gaussian_epsilon(ratio, whole / 2) > lost


def test_the_noise_for_an_epsilon_has_that_epsilon() -> None:
    for epsilon, delta in itertools.product((0.01, 1.0, 30.0), (1e-12, 1e-3)):
        assert gaussian_epsilon(gaussian_sigma(epsilon, delta), delta) == pytest.approx(
            epsilon, rel=1e-4
        )


def test_below_the_smallest_delta_nothing_is_claimed() -> None:
    assert check_accounted_delta(SMALLEST_DELTA) == SMALLEST_DELTA
    assert gaussian_epsilon(2.0, SMALLEST_DELTA) < math.inf
    assert integer_gaussian_epsilon(2.0, 2, SMALLEST_DELTA) < math.inf
    below = math.nextafter(SMALLEST_DELTA, 0)
    assert gaussian_epsilon(2.0, below) == integer_gaussian_epsilon(2.0, 2, below) == math.inf
    with pytest.raises(InvalidInputError, match="down to a delta of 1e-30"):
        check_accounted_delta(below)


@pytest.mark.parametrize("variance", [1e-4, 1.0, 1e4])
def test_the_smallest_epsilon_is_found_from_any_start(variance: float) -> None:
    def falling(epsilon: float) -> float:
        return 0.5 * math.exp(-epsilon)

    found = smallest_epsilon(falling, 1e-5, variance=variance)
    assert falling(found) <= 1e-5
    assert found == pytest.approx(math.log(0.5e5), rel=1e-8)
    assert smallest_epsilon(falling, 0.5, variance=variance) == 0.0
    assert smallest_epsilon(lambda _: 0.5, 0.4, variance=variance) == math.inf
    late = smallest_epsilon(lambda x: float(x < LARGEST / 10), 0.1, variance=variance)
    assert late == pytest.approx(LARGEST / 10)


def test_the_tail_of_a_normal_loss() -> None:
    """Chernoff's bound: an epsilon that a loss N(v/2, v) exceeds with at most delta."""
    for variance, delta in itertools.product((0.01, 1.0, 25.0), (1e-9, 1e-3)):
        found = normal_tail(variance, delta)
        beyond = stats.norm.sf(found, variance / 2, math.sqrt(variance))
        assert delta / 20 < beyond < delta


@pytest.mark.parametrize("rho", [1e-4, 0.05, 2.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_concentration_is_the_best_order(rho: float, delta: float) -> None:
    def bound(log_order: float) -> float:
        more = math.exp(log_order)
        alpha = 1 + more
        return alpha * rho + math.log(more / alpha) - math.log(alpha * delta) / more

    least = optimize.minimize_scalar(bound, bounds=(-6, 16), method="bounded").fun
    found = concentrated_epsilon(rho, delta)
    assert max(least, 0.0) <= found * (1 + 1e-9)
    assert found == pytest.approx(max(least, 0.0), rel=1e-4)
    if found:
        assert renyi_delta(orders() * rho, orders(), found) == pytest.approx(delta, rel=1e-3)


def test_no_delta_no_concentration() -> None:
    assert concentrated_epsilon(0.1, 0.0) == math.inf
    assert concentrated_epsilon(1e-9, 0.5) == 0.0
    assert renyi_delta(orders() * 10, orders(), 0.0) == 1.0


def test_the_largest_rho_is_found_or_refused() -> None:
    for epsilon, delta in itertools.product((1e-3, 1.0, 50.0), (1e-12, 1e-3)):
        rho = concentration_of(epsilon, delta)
        assert concentrated_epsilon(rho, delta) <= epsilon
        assert concentrated_epsilon(rho * 1.000001, delta) > epsilon
    least = concentrated_epsilon(LEAST, 1e-12)
    assert least > 0
    with pytest.raises(InvalidInputError, match="No Gaussian noise within reach"):
        concentration_of(least / 2, 1e-12)


def largest_of_all_shifts(noise: Floats, moved: int, epsilon: float) -> float:
    """A client moves some records from one count to another, or to none that is looked at."""
    pairs = [[a, b] for a in range(moved + 1) for b in range(moved + 1) if a + b]
    return max(by_definition(noise, [m for m in pair if m], epsilon) for pair in pairs)


Account = Callable[[float], float]


@pytest.mark.parametrize("moved", [1, 2, 4])
@pytest.mark.parametrize("sigma", [3.0, 8.0])
def test_a_client_is_hidden_as_far_as_is_said(moved: int, sigma: float) -> None:
    """Never below all shifts, and within a factor that a Renyi account costs."""
    noise = discrete_gaussian(sigma)
    few = discrete_gaussian(sigma, math.ceil(8 * sigma))
    exact: Account = client_gaussian_delta(sigma**2, 2, moved)
    counted: Account = client_counts_delta(noise, 2, moved)
    for factor in (0.7, 1.2):
        epsilon = factor * normal_tail(2 * moved**2 / sigma**2, 1e-4)
        truth = largest_of_all_shifts(few, moved, epsilon)
        assert truth <= exact(epsilon) <= 20 * truth
        assert truth <= counted(epsilon) <= 25 * truth
        assert counted(epsilon) == pytest.approx(exact(epsilon), rel=0.2)


@pytest.mark.parametrize("moved", [1, 2, 5])
@pytest.mark.parametrize("power", [1, 2, 4])
def test_the_worst_of_all_shifts_per_square_is_that_of_no_larger_one(
    moved: int, power: int
) -> None:
    """By definition, of heavy, normal and light tails, which get worse with m."""
    noise = np.exp(-((np.abs(np.arange(-20, 21)) / 8) ** power))
    noise /= noise.sum()
    for alpha in (1.5, 3.0):
        divergences = [
            math.log((noise[:-m] ** alpha * noise[m:] ** (1 - alpha)).sum()) / (alpha - 1)
            for m in range(1, moved + 1)
        ]
        worst = max(each / m**2 for m, each in enumerate(divergences, start=1))
        found = _largest_per_square(np.log(noise), alpha, moved)
        assert worst <= found <= worst * (1 + 1e-6)


def test_noise_of_a_few_outcomes_hides_no_client() -> None:
    noise = np.array([0.25, 0.5, 0.25])
    for epsilon in (0.1, 10.0):
        assert client_counts_delta(noise, 2, 1)(epsilon) == 1.0
        assert client_counts_delta(noise, 2, 5)(epsilon) == 1.0
