"""Composition: closed forms, an independent count of all outcomes, and never too little."""

import itertools
import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.privacy import (
    AccountedRelease,
    Charge,
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    InverseSensitivityMechanism,
    LaplaceMechanism,
    Numbers,
    total_epsilon,
)
from fedprikl.privacy.accounting import concentrated_epsilon
from fedprikl.privacy.charges import charge_from_dict, charge_to_dict
from fedprikl.privacy.composition import largest_fitting_epsilon
from tests.privacy.basic import basic_epsilon

pytestmark = pytest.mark.slow

DELTA = 1e-6


def laplace(epsilon: float) -> LaplaceMechanism:
    return LaplaceMechanism.calibrated(Numbers(), epsilon=epsilon, delta=0.0)


def gaussian(epsilon: float) -> GaussianMechanism:
    return GaussianMechanism.calibrated(Numbers(), epsilon=epsilon, delta=DELTA)


def accounted(epsilon: float, delta: float = 0.0) -> AccountedRelease:
    return AccountedRelease(proved_epsilon=epsilon, proved_delta=delta)


def adaptive(epsilon: float) -> InverseSensitivityMechanism:
    return InverseSensitivityMechanism(epsilon=epsilon)


INTEGER = IntegerGaussianMechanism(sigma=40.0, coordinates=2)

charges = st.one_of(
    st.floats(1e-3, 2).map(laplace),
    st.floats(1e-3, 2).map(gaussian),
    st.floats(1e-3, 2).map(adaptive),
    st.builds(accounted, st.floats(1e-3, 2), st.sampled_from([0.0, 1e-8])),
    st.just(INTEGER),
)


def test_nothing_costs_nothing() -> None:
    assert total_epsilon([], delta=DELTA) == total_epsilon([], delta=0.0) == 0


@pytest.mark.parametrize("charge", [laplace(0.7), gaussian(0.7), INTEGER])
def test_one_release_costs_its_own_epsilon(charge: Any) -> None:
    assert total_epsilon([charge], delta=DELTA) == pytest.approx(charge.epsilon(DELTA), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_a_release_calibrated_to_the_whole_budget_fits(epsilon: float, delta: float) -> None:
    for release in (
        LaplaceMechanism.calibrated(Numbers(0.3), epsilon=epsilon, delta=0.0),
        GaussianMechanism.calibrated(Numbers(0.3), epsilon=epsilon, delta=delta),
        IntegerGaussianMechanism.calibrated(Counts(), epsilon=epsilon, delta=delta),
    ):
        assert total_epsilon([release], delta=delta) <= epsilon


@given(st.lists(st.floats(0.05, 20), min_size=2, max_size=8), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_gaussian_releases_compose_exactly(sigmas: list[float], delta: float) -> None:
    """n Gaussian releases are one of mu^2 = sum (Delta/sigma)^2, to six digits, from above."""
    releases = [GaussianMechanism(sigma=sigma, sensitivity=0.5) for sigma in sigmas]
    mu = math.sqrt(sum((0.5 / sigma) ** 2 for sigma in sigmas))
    exact = dp_accounting.get_epsilon_gaussian(1 / mu, delta)
    assert exact <= total_epsilon(releases, delta=delta) <= exact * (1 + 1e-6) + 1e-9


def test_calibration_and_composition_are_inverse() -> None:
    """k releases with sqrt(k) times the noise of one cost what the one does."""
    one = gaussian(1.0)
    for k in (2, 10, 1000):
        part = GaussianMechanism(sigma=one.sigma * math.sqrt(k), sensitivity=1.0)
        assert total_epsilon([part] * k, delta=DELTA) == pytest.approx(1.0, rel=1e-6)


def laplace_delta(epsilons: list[float], total: float, cells: int = 4001) -> float:
    """delta(total) of a few Laplace releases from below: outcomes summed over cells of output.

    Merging outputs into cells is post-processing, so this never exceeds the truth.
    """
    joint_p, joint_q = np.ones(1), np.ones(1)
    for epsilon in epsilons:
        edges = np.concatenate([[-np.inf], np.linspace(0, 1, cells), [np.inf]])

        def cdf(x: Any, centre: float, epsilon: float = epsilon) -> Any:
            z = epsilon * (x - centre)
            return np.where(z < 0, np.exp(np.minimum(z, 0)) / 2, 1 - np.exp(-np.abs(z)) / 2)

        p, q = np.diff(cdf(edges, 0.0)), np.diff(cdf(edges, 1.0))
        joint_p, joint_q = np.outer(joint_p, p).ravel(), np.outer(joint_q, q).ravel()
    return float(np.maximum(joint_p - math.exp(total) * joint_q, 0).sum())


@pytest.mark.parametrize("epsilons", [[0.5, 0.5], [1.0, 0.1], [0.02, 0.03], [3.0, 2.0]])
@pytest.mark.parametrize("delta", [1e-2, 1e-4, 1e-6])
def test_two_laplace_releases_against_all_outcomes(epsilons: list[float], delta: float) -> None:
    total = total_epsilon([laplace(epsilon) for epsilon in epsilons], delta=delta)
    assert laplace_delta(epsilons, total, cells=1501) <= delta
    if max(epsilons) < total < sum(epsilons) * 0.999:  # and it is not loose
        assert laplace_delta(epsilons, total * 0.995, cells=1501) > delta


def test_the_loss_of_laplace_noise_on_a_grid_is_covered_by_the_slack() -> None:
    """Discrete Laplace noise shifted by k steps has, at every epsilon, no larger delta than the
    continuous noise shifted by k + 1; rounding takes one step more, and the slack has four.
    """
    scale, k = 50.0, 30  # in steps
    x = np.arange(-4000, 4001)
    p = np.exp(-np.abs(x) / scale)
    q = np.exp(-np.abs(x - k) / scale)
    p, q = p / p.sum(), q / p.sum()
    for epsilon in np.linspace(0, k / scale, 25):
        continuous = -math.expm1((epsilon - (k + 1) / scale) / 2)
        assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= continuous


def test_integer_releases_against_all_outcomes() -> None:
    """Three releases of one moved count each, all outcomes of the three summed."""
    sigmas = (1.5, 2.0, 2.0)
    releases = [IntegerGaussianMechanism(sigma=sigma, coordinates=1) for sigma in sigmas]
    total = total_epsilon(releases, delta=1e-4)
    p, q = np.ones(1), np.ones(1)
    for sigma in sigmas:
        x = np.arange(-20, 22)
        mass = np.exp(-(x**2) / (2 * sigma**2))
        mass /= mass.sum()
        p, q = np.outer(p, mass[1:]).ravel(), np.outer(q, mass[:-1]).ravel()
    assert np.maximum(p - math.exp(total) * q, 0).sum() <= 1e-4
    assert np.maximum(p - math.exp(total * 0.99) * q, 0).sum() > 1e-4


@pytest.mark.parametrize("delta", [1e-10, 1e-8, 1e-5])
def test_gaussian_losses_on_the_grid_agree_with_the_closed_form(delta: float) -> None:
    """The path for mixed releases, fed with almost only Gaussian ones: from above, and close."""
    releases = [gaussian(0.3)] * 5
    exact = total_epsilon(releases, delta=delta)
    mixed = total_epsilon([*releases, laplace(1e-4), laplace(1e-4)], delta=delta)
    assert exact <= mixed <= exact + 3e-4


@pytest.mark.parametrize(
    "epsilons", [(0.3, 0.2, 0.1), (0.05, 0.05, 0.05, 0.05), (2.0, 0.5), (0.9, 0.001)]
)
@pytest.mark.parametrize("delta", [1e-9, 1e-4])
def test_never_below_the_optimistic_estimate(epsilons: tuple[float, ...], delta: float) -> None:
    """dp-accounting rounds the losses down instead of up, by another method: a lower bound."""
    releases: list[Charge] = [gaussian(0.2), *(laplace(epsilon) for epsilon in epsilons)]
    step = {"value_discretization_interval": 1e-4, "pessimistic_estimate": False}
    make = pld.privacy_loss_distribution
    loss = make.from_gaussian_mechanism(gaussian(0.2).sigma, use_connect_dots=False, **step)
    for epsilon in epsilons:
        more = make.from_laplace_mechanism(1 / epsilon, use_connect_dots=False, **step)
        loss = loss.compose(more)
    lower = loss.get_epsilon_for_delta(delta)
    assert lower <= total_epsilon(releases, delta=delta) <= lower + 1e-3


def test_rounds_of_equal_epsilon_are_convolved_together() -> None:
    """Sensitivities change from round to round, and with them the last bit of epsilon."""
    same = [laplace(0.05)] * 60
    other = [
        LaplaceMechanism.calibrated(Numbers(0.001 * (7 + i)), epsilon=0.05, delta=0.0)
        for i in range(60)
    ]
    assert len({release.epsilon(0.0) for release in other}) > 1
    total = total_epsilon(other, delta=DELTA)
    assert total == pytest.approx(total_epsilon(same, delta=DELTA), rel=1e-5)
    assert total < 60 * 0.05 * 0.8


@settings(max_examples=15)
@given(st.lists(charges, min_size=1, max_size=5), charges)
def test_one_more_release_never_costs_less(past: list[Charge], more: Charge) -> None:
    before, after = (total_epsilon(list_, delta=DELTA) for list_ in (past, [*past, more]))
    assert after >= before * (1 - 1e-6)


@settings(max_examples=15)
@given(st.lists(charges, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_order_does_not_matter_and_basic_composition_bounds(past: list[Charge], any_: Any) -> None:
    total = total_epsilon(past, delta=DELTA)
    shuffled = list(past)
    any_.shuffle(shuffled)
    assert total_epsilon(shuffled, delta=DELTA) == total
    basic = basic_epsilon(past, delta=DELTA)
    assert total <= basic * (1 + 1e-3)
    own = [total_epsilon([charge], delta=DELTA) for charge in past]
    assert total >= max(own) * (1 - 1e-3)


def test_basic_composition_is_the_sum_by_hand() -> None:
    """Every release that needs a delta gets an equal share of what accounted ones leave."""
    noisy: list[Charge] = [gaussian(0.5), INTEGER, gaussian(0.3)]
    past = [*noisy, laplace(0.1), accounted(0.2, DELTA / 4)]
    each = DELTA * 3 / 4 / 3
    expected = 0.1 + 0.2 + sum(total_epsilon([charge], delta=each) for charge in noisy)
    assert math.isfinite(expected)
    assert basic_epsilon(past, delta=DELTA) == pytest.approx(expected)
    assert basic_epsilon([gaussian(0.5)], delta=DELTA) == pytest.approx(0.5)
    assert basic_epsilon([laplace(0.1)] * 2, delta=0.0) == pytest.approx(0.2)
    assert basic_epsilon([laplace(0.1), gaussian(0.5)], delta=0.0) == math.inf
    assert basic_epsilon([accounted(0.1, DELTA), gaussian(0.5)], delta=DELTA) == math.inf


@settings(max_examples=10)
@given(st.lists(charges, min_size=1, max_size=4))
def test_a_larger_delta_never_costs_more(past: list[Charge]) -> None:
    totals = [total_epsilon(past, delta=delta) for delta in (1e-7, 1e-6, 1e-5, 1e-3)]
    assert all(b <= a * (1 + 2e-3) for a, b in itertools.pairwise(totals))


def test_many_small_laplace_releases_beat_the_sum() -> None:
    assert total_epsilon([laplace(0.01)] * 100, delta=DELTA) < 0.6
    assert total_epsilon([laplace(0.01)] * 100, delta=0.0) == pytest.approx(1.0, rel=1e-8)
    assert total_epsilon([laplace(0.1)] * 10, delta=DELTA) <= 1.0


@pytest.mark.parametrize("size", [1e-8, 1e-5, 1e-2, 1.0])
def test_tiny_releases_are_not_rounded_up_to_the_grid(size: float) -> None:
    assert total_epsilon([laplace(size), laplace(size / 2)], delta=1e-9) <= 1.5 * size
    beside_a_large_one = total_epsilon([laplace(size), laplace(5.0)], delta=1e-9)
    assert beside_a_large_one <= 5.0 + size


def bounded_range_delta(epsilon: float, releases: int, shift: float, total: float) -> float:
    """delta(total) of releases whose loss is `shift` or `shift - epsilon`: all outcomes summed."""
    likely = (math.exp(epsilon - shift) - 1) / (math.exp(epsilon - shift) - math.exp(-shift))
    times = np.arange(releases + 1)
    losses = times * shift + (releases - times) * (shift - epsilon)
    chance = stats.binom.pmf(times, releases, likely)
    return float((chance * np.maximum(-np.expm1(total - losses), 0)).sum())


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 52), (0.02, 1000), (0.5, 20), (1.0, 5)])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_adaptive_releases_cost_no_less_than_the_worst_of_bounded_range(
    epsilon: float, releases: int, delta: float
) -> None:
    total = total_epsilon([adaptive(epsilon)] * releases, delta=delta)

    def worst(at: float) -> float:
        shifts = np.linspace(0.01, 0.99, 99) * epsilon
        return max(bounded_range_delta(epsilon, releases, float(s), at) for s in shifts)

    assert worst(total) <= delta
    if total > epsilon:
        assert worst(total / 1.5) > delta  # and it is not loose


def test_a_year_of_adaptive_releases_costs_half_of_pure_ones() -> None:
    """52 at epsilon 0.1: rho = 52 0.1^2 / 8, where pure ones would be charged as such."""
    bounded = total_epsilon([adaptive(0.1)] * 52, delta=DELTA)
    assert bounded == pytest.approx(concentrated_epsilon(0.065, DELTA), rel=1e-9)
    assert bounded < 0.6 * total_epsilon([laplace(0.1)] * 52, delta=DELTA)
    assert total_epsilon([adaptive(0.1)] * 52, delta=0.0) == pytest.approx(5.2)


@pytest.mark.parametrize("rho", [1e-4, 0.065, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_concentration_against_many_digits(rho: float, delta: float) -> None:
    """Corollary 13 of Canonne, Kamath and Steinke: ln delta as a function of alpha, minimised."""
    found = concentrated_epsilon(rho, delta)

    def least_delta(epsilon: float) -> Any:
        def log_delta(alpha: Any) -> Any:
            power = (alpha - 1) * (alpha * rho - epsilon)
            return power + alpha * mpmath.log(1 - 1 / alpha) - mpmath.log(alpha - 1)

        slope = lambda alpha: mpmath.diff(log_delta, alpha)  # noqa: E731
        start = max(1.001, (epsilon + rho) / (2 * rho))
        return mpmath.exp(log_delta(mpmath.findroot(slope, (start, start * 1.01 + 0.001))))

    with mpmath.workdps(40):
        assert least_delta(found) <= delta
        if found > 0:
            assert least_delta(found * (1 - 1e-4)) > delta


@pytest.mark.parametrize(
    "others", [[laplace(0.3)], [gaussian(0.3)], [INTEGER], [laplace(0.1)] * 3 + [gaussian(0.2)]]
)
def test_adaptive_releases_beside_others(others: list[Charge]) -> None:
    """More than either alone, and less than if they were merely pure."""
    year: list[Charge] = [adaptive(0.1)] * 52
    both = total_epsilon([*year, *others], delta=DELTA)
    assert both > total_epsilon(year, delta=DELTA)
    assert both > total_epsilon(others, delta=DELTA)
    assert both <= 0.8 * total_epsilon([*[laplace(0.1)] * 52, *others], delta=DELTA)
    apart = total_epsilon(year, delta=DELTA / 2) + total_epsilon(others, delta=DELTA / 2)
    assert both <= apart * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_one_adaptive_release_is_pure(epsilon: float) -> None:
    for delta in (0.0, DELTA, 0.1):
        assert total_epsilon([adaptive(epsilon)], delta=delta) == epsilon
    assert total_epsilon([adaptive(epsilon), adaptive(1e-9)], delta=0.1) >= epsilon


def test_an_accounted_release_takes_its_delta() -> None:
    assert total_epsilon([accounted(0.5), accounted(0.25)], delta=0.0) == 0.75
    whole = total_epsilon([gaussian(0.5)], delta=DELTA / 2)
    both = total_epsilon([gaussian(0.5), accounted(0.1, DELTA / 2)], delta=DELTA)
    assert both == pytest.approx(whole + 0.1)
    assert total_epsilon([accounted(0.1, 1e-7)] * 10, delta=DELTA) == pytest.approx(1.0)
    assert total_epsilon([accounted(0.1, 1e-7)] * 11, delta=DELTA) == math.inf
    assert basic_epsilon([accounted(0.1, 1e-7)] * 11, delta=DELTA) == math.inf


@pytest.mark.parametrize(
    ("releases", "delta"),
    [
        ([gaussian(0.1)], 0.0),
        ([INTEGER], 0.0),
        ([laplace(0.1), gaussian(0.1)], 0.0),
        ([gaussian(0.1), accounted(0.1, DELTA)], DELTA),
        ([GaussianMechanism(sigma=1e-9, sensitivity=1.0)] * 2, DELTA),
        ([IntegerGaussianMechanism(sigma=0.1, coordinates=50)] * 2, DELTA),
        ([INTEGER, INTEGER], 1e-13),
    ],
)
def test_what_cannot_be_bounded_is_infinite(releases: list[Charge], delta: float) -> None:
    assert total_epsilon(releases, delta=delta) == math.inf


def test_below_the_accuracy_of_the_convolution_the_sum_counts() -> None:
    assert total_epsilon([laplace(0.05)] * 50, delta=1e-13) == pytest.approx(2.5)
    assert total_epsilon([laplace(0.05)] * 50, delta=1e-10) < 2.2


@pytest.mark.parametrize("mu", [1e-8, 1e-5, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6])
def test_the_gaussian_profile_at_the_ends_against_many_digits(mu: float, delta: float) -> None:
    release = GaussianMechanism(sigma=math.sqrt(2) / mu, sensitivity=1.0)
    with mpmath.workdps(50):
        x = mpmath.mpf(total_epsilon([release] * 2, delta=delta))
        upper = mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu)
        assert upper <= delta


def test_noise_without_limit_costs_nothing() -> None:
    silent = GaussianMechanism(sigma=1e30, sensitivity=1.0)
    assert total_epsilon([silent] * 3, delta=DELTA) <= 1e-9
    assert total_epsilon([laplace(400.0)] * 3, delta=DELTA) == pytest.approx(1200.0)


@pytest.mark.parametrize("size", [1e-250, 1e-30, 1e30, 1e250])
def test_no_size_of_noise_breaks_the_sum(size: float) -> None:
    """Absurd noise is charged as what it is: nothing, or far too much."""
    pure = LaplaceMechanism(scale=size, sensitivity=1.0)
    normal = GaussianMechanism(sigma=size, sensitivity=1.0)
    mixed: list[Charge] = [pure, normal, INTEGER]
    pasts: list[list[Charge]] = [[pure, pure], [normal, normal], [pure, normal], mixed]
    for releases in pasts:
        total = total_epsilon(releases, delta=DELTA)
        assert total < 1 if size > 1 else total > 1e20


PASTS: list[list[Charge]] = [
    [laplace(0.3)] * 2,
    [accounted(0.9, 1e-7)],
    [gaussian(0.3)] * 3,
    [laplace(0.3), gaussian(0.4)],
]
LONG = [pytest.param(past, marks=pytest.mark.validation) for past in PASTS[2:]]


@pytest.mark.parametrize("past", [*PASTS[:2], *LONG])
@pytest.mark.parametrize("kind", ["laplace", "gaussian", "adaptive"])
def test_what_would_fit_fits_and_a_little_more_does_not(past: list[Charge], kind: Any) -> None:
    fits = largest_fitting_epsilon(past, epsilon=1.0, delta=DELTA, law=kind)
    make: Any = {"laplace": laplace, "gaussian": gaussian, "adaptive": adaptive}[kind]
    assert fits > 0
    assert total_epsilon([*past, make(fits)], delta=DELTA) <= 1.0
    assert total_epsilon([*past, make(fits * 1.02)], delta=DELTA) > 1.0


def test_what_would_fit_at_the_ends() -> None:
    full: list[Charge] = [accounted(1.0)]
    assert largest_fitting_epsilon([], epsilon=1.0, delta=DELTA, law="laplace") == 1.0
    assert largest_fitting_epsilon(full, epsilon=1.0, delta=DELTA, law="laplace") == 0
    assert largest_fitting_epsilon([], epsilon=1.0, delta=0.0, law="gaussian") == 0
    with pytest.raises(InvalidInputError, match="known are auto, adaptive, gaussian, laplace"):
        largest_fitting_epsilon([], epsilon=1.0, delta=DELTA, law="x")


@given(charges)
def test_a_charge_is_data(charge: Charge) -> None:
    assert charge_from_dict(charge_to_dict(charge)) == charge


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: total_epsilon([laplace(1.0)], delta=1.0), "under 1"),
        (lambda: total_epsilon([laplace(1.0)], delta=-1e-9), "at least 0"),
        (lambda: total_epsilon([laplace(1.0)], delta=math.nan), "finite"),
        (lambda: charge_to_dict(LaplaceMechanism(scale=0.0, sensitivity=1)), "above 0"),
        (lambda: charge_to_dict(LaplaceMechanism(scale=1.0, sensitivity=-1)), "negative"),
        (lambda: charge_to_dict(GaussianMechanism(sigma=math.inf, sensitivity=1)), "finite"),
        (lambda: charge_to_dict(GaussianMechanism(sigma=1, sensitivity=math.nan)), "finite"),
        (lambda: charge_to_dict(IntegerGaussianMechanism(sigma=1e9, coordinates=1)), "sigma"),
        (lambda: charge_to_dict(IntegerGaussianMechanism(sigma=2, coordinates=0)), "at least 1"),
        (lambda: charge_to_dict(accounted(0.0)), "above 0"),
        (lambda: charge_to_dict(accounted(1.0, 1.0)), "under 1"),
        (lambda: charge_to_dict("laplace"), "cannot be charged"),  # type: ignore[arg-type]
        (lambda: charge_from_dict({"kind": "magic"}), "known are accounted"),
        (lambda: charge_from_dict({"kind": "laplace", "scale": 1}), "do not match"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_charges_describe_themselves() -> None:
    assert str(accounted(0.5, 1e-7)) == "a release of epsilon 0.5, delta 1e-07"
    assert (
        IntegerGaussianMechanism.calibrated(Counts(), epsilon=1.0, delta=DELTA).epsilon(DELTA)
        <= 1.0
    )
