"""Tails and thresholds on laws that are known: no simulation, and no chance."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic
from fedprikl.estimation.verdict import (
    DRAWS,
    ColumnNull,
    NoisyTail,
    NullValues,
    SmoothTail,
    alarm_threshold,
    any_above,
    gamma_like_deviate,
    hopeful_thresholds,
    joint_thresholds,
    judge_columns,
    least_depth,
    simulate_together,
    simulated_draws,
    tail_of,
    upper_limit,
    with_noise,
)
from fedprikl.privacy import GaussianMechanism, LaplaceMechanism
from fedprikl.reference import all_points

Z = stats.norm.ppf(0.99)
DEPTHS = np.array([0.1, 0.7, 1.5, 2.3, 2.4, 4.0, 9.0, 20.0])
POINTS = all_points([0.5, 0.3, 0.2])
MODEL = NoDrift.of(POINTS, np.array([100]), 1.0)


def quantiles(law: Any, size: int) -> Floats:
    """A sample of a law without any chance in it."""
    return np.asarray(law.ppf((np.arange(size) + 0.5) / size))


def null(values: Floats, **more: Any) -> NullValues:
    return NullValues(values[:, None] if values.ndim == 1 else values, **more)


def test_as_many_populations_as_a_rate_needs() -> None:
    assert simulated_draws(0.01) == simulated_draws(0.1) == DRAWS == 4000
    assert simulated_draws(0.001) == 40_000
    for rate, draws in ((0.01, 3999), (0.1, 399)):
        with pytest.raises(InvalidInputError, match=f"needs at least {draws + 1}"):
            alarm_threshold(np.zeros(draws), None, false_alarm=rate)


@pytest.mark.parametrize(("draws", "rate"), [(4000, 0.01), (4001, 0.01), (4200, 0.05), (9999, 0.1)])
def test_without_noise_the_limit_says_how_many_may_exceed_it(draws: int, rate: float) -> None:
    values = np.random.default_rng(1).permutation(draws).astype(float)
    threshold = alarm_threshold(values, None, false_alarm=rate)

    def limit(above: int) -> float:
        share = above / draws
        return float(share + Z * math.sqrt(share * (1 - share) / draws) + Z**2 / (2 * draws))

    above = int((values > threshold).sum())
    assert limit(above) <= rate < limit(above + 1)
    assert threshold in values


def test_the_upper_limit_of_a_mean() -> None:
    samples = np.array([0.0, 1.0] * 50)
    assert upper_limit(samples) == pytest.approx(0.5 + Z * 0.5 / 10 + Z**2 / 200)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e3])
def test_thresholds_are_found_whatever_is_wider_the_noise_or_the_values(spread: float) -> None:
    values = spread * quantiles(stats.norm, 4000)
    noise = GaussianMechanism(sigma=1.0, sensitivity=1.0)
    found = alarm_threshold(values, noise, false_alarm=0.01)
    assert upper_limit(noise.survival(found - values)) == pytest.approx(0.01, rel=1e-6)
    level = null(values, mechanism=noise).at_level(0.01)
    assert level == pytest.approx(math.hypot(1, spread) * Z, rel=1e-3)
    assert null(values).at_level(0.01) == values[-41]


def test_a_mean_and_a_tail_are_of_what_is_released() -> None:
    noise = LaplaceMechanism(scale=0.5, sensitivity=1.0)
    noisy = null(np.array([1.0, 3.0]), mechanism=noise)
    assert noisy.mean == pytest.approx(2.0, abs=1e-3)
    clamped = replace(noisy, possible=(0.0, 1.0))
    lost = 0.5 * (1 - math.exp(-2)) / 2  # of the first: its noise below 0, by at most 1
    assert clamped.mean == pytest.approx(1 - lost * (1 + math.exp(-4)) / 2, abs=0.005)
    assert noisy.above(1.0).tolist() == pytest.approx([0.5, 1 - math.exp(-4) / 2])
    assert null(np.array([1.0, 3.0])).above(1.0).tolist() == [0.0, 1.0]
    assert null(np.array([1.0, 3.0])).mean == 2.0
    values = np.zeros((2, 1))
    assert with_noise(values, None) is values
    assert with_noise(values, noise).std() == pytest.approx(noise.standard_deviation, rel=0.1)


def test_any_of_several_is_above_its_own() -> None:
    one, two = null(np.array([[0.0, 2.0], [2.0, 2.0]])), null(np.array([[0.0, 2.0], [0.0, 0.0]]))
    assert any_above([one, two], [1.0, 1.0]).tolist() == [0.75, 1.0]
    assert any_above([one, two], [1.0, math.inf]).tolist() == [0.5, 1.0]


def test_what_nobody_can_exceed_is_left_out_and_the_worst_first() -> None:
    limits = [null(np.zeros(1), possible=(0.0, largest)) for largest in (10.0, 2.0, 1.0)]
    asked: list[list[int]] = []

    def found(some: Any) -> list[float]:
        asked.append(list(some))
        return [float(len(some))] * len(some)

    assert hopeful_thresholds(limits, found) == (1.0, math.inf, math.inf)
    assert asked == [[0, 1, 2], [0, 1], [0]]
    assert hopeful_thresholds(limits[2:], found) == (math.inf,)  # reaching it is not exceeding it


def test_two_independent_statistics_share_the_rate() -> None:
    rng = np.random.default_rng(3)
    values = rng.permuted(np.tile(quantiles(stats.norm, 8000), (2, 1)), axis=1)
    nulls = [null(each) for each in values]
    thresholds = joint_thresholds(nulls, false_alarm=0.02)
    assert thresholds[0] == pytest.approx(thresholds[1], rel=0.01)
    rate = any_above(nulls, thresholds)
    assert 0.015 < rate.mean() < 0.02
    assert upper_limit(rate) <= 0.02


@pytest.mark.parametrize("skew", [0.25, 0.5, 1.5, 3.0])
def test_deviates_are_those_of_a_gamma_law(skew: float) -> None:
    law = stats.gamma(4 / skew**2)
    for normal in (-1.0, 0.0, 2.0, 4.0):
        exact = (law.ppf(stats.norm.cdf(normal)) - law.mean()) / law.std()
        found = gamma_like_deviate(np.array([normal]), skew)[0]
        assert found == pytest.approx(exact, abs=0.03 + 0.04 * skew * abs(exact))
    nearly = gamma_like_deviate(np.array([-2.0, 2.0]), 0.0)
    assert nearly == pytest.approx([-2.0, 2.0], abs=2e-3)


@pytest.mark.parametrize(
    "law",
    [stats.norm(3, 2), stats.gamma(4), stats.gamma(0.7), stats.laplace],
    ids=["normal", "gamma(4)", "gamma(0.7)", "laplace"],
)
@pytest.mark.parametrize("size", [23, 2000])
def test_a_fitted_tail_and_its_depths_are_inverse(law: Any, size: int) -> None:
    tail = SmoothTail.of(quantiles(law, size))
    assert tail.depth(tail.at(DEPTHS)) == pytest.approx(DEPTHS, rel=1e-6)
    assert tail.threshold(3.0) == pytest.approx(tail.at(np.array([3.0]))[0])


@pytest.mark.parametrize("size", [12, 16, 2000])
def test_a_tenth_of_the_sample_lies_beyond_the_knee(size: int) -> None:
    """Depth ln 10 is where the sample's own nine tenths are, between two values if need be."""
    values = quantiles(stats.gamma(2), size)
    tail = SmoothTail.of(values)
    place = 0.9 * (size - 1)
    low, high = tail._plain_depth(values[int(place) : int(place) + 2])
    assert tail.knee == pytest.approx(low + (place % 1) * (high - low))
    assert tail.depth(np.array([values[int(place)]]))[0] <= math.log(10) + 1e-9


@pytest.mark.parametrize("law", [stats.norm, stats.gamma(4), stats.gamma(1)], ids=["a", "b", "c"])
def test_a_tail_that_is_a_gamma_law_is_found(law: Any) -> None:
    tail = SmoothTail.of(quantiles(law, 4000))
    assert tail.stretch == pytest.approx(1.0, abs=0.06)
    for depth in (0.5, 2.0, 5.0, 9.0):
        exact = law.isf(math.exp(-depth))
        assert tail.threshold(depth) == pytest.approx(exact, abs=0.05 * (1 + abs(exact)))


def test_a_heavier_tail_is_stretched_and_a_lighter_one_shrunk() -> None:
    heavy = SmoothTail.of(np.sign(z := quantiles(stats.norm, 4000)) * np.abs(z) ** 3)
    light = SmoothTail.of(quantiles(stats.uniform, 4000))
    assert heavy.stretch > 1.3
    assert light.stretch < 0.9
    constant = SmoothTail.of(np.full(100, 7.0))
    assert constant.threshold(5.0) == pytest.approx(7.0)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 10.0])
def test_normal_values_with_normal_noise_are_normal(sigma: float) -> None:
    noise = GaussianMechanism(sigma=sigma, sensitivity=1.0)
    tail = NoisyTail.of(SmoothTail(3.0, 1.0), noise)
    assert (np.diff(tail.values) > 0).all()
    assert (np.diff(tail.depths) > 0).all()
    for depth in (0.1, 0.7, 2.0, 5.0, 12.0, 30.0):
        exact = 3 + math.hypot(1, sigma) * stats.norm.isf(math.exp(-depth))
        assert tail.threshold(depth) == pytest.approx(exact, abs=0.05 * math.hypot(1, sigma))


def test_beyond_its_grid_a_tail_goes_straight_on() -> None:
    noise = LaplaceMechanism(scale=2.0, sensitivity=1.0)
    tail = NoisyTail.of(SmoothTail(0.0, 1e-6), noise)
    end = float(tail.depths[-1])
    assert end > 40
    assert tail.threshold(end + 10) == pytest.approx(tail.threshold(end) + 20, rel=1e-3)
    assert tail.threshold(5.0) == pytest.approx(2 * (5 - math.log(2)), rel=1e-2)


def test_a_statistic_has_the_noise_of_its_mechanism_in_its_tail() -> None:
    values = quantiles(stats.norm, 2000)
    assert isinstance(tail_of(values, None), SmoothTail)
    noise = GaussianMechanism(sigma=3.0, sensitivity=1.0)
    found = tail_of(values, noise).threshold(4.0)
    assert found == pytest.approx(math.hypot(1, 3) * stats.norm.isf(math.exp(-4)), rel=0.03)


def test_statistics_of_a_column_alarm_in_proportion_to_their_shares() -> None:
    """One of sparse drift has half of the rate, two others a quarter each."""
    values = tuple(null(np.zeros(1), sparse=sparse) for sparse in (True, False, False))
    column = ColumnNull((SmoothTail(0.0, 1.0),) * 3, values)
    for depth in (1.0, 6.0):
        found = [stats.norm.sf(t) / math.exp(-depth) for t in column.thresholds(depth)]
        assert found == pytest.approx([0.5, 0.25, 0.25], rel=0.02)


@pytest.mark.parametrize("guess", [0.1, 1.0, 7.0, 40.0])
def test_the_least_depth_is_found_from_any_guess(guess: float) -> None:
    found = least_depth(lambda depth: depth >= 7, guess, halvings=30)
    assert found == pytest.approx(7, rel=1e-6)
    assert found >= 7


def statistic(**more: Any) -> Statistic:
    """Twice the first count of each population; a tenth of it is noise, if there is any."""
    given: dict[str, Any] = {
        "name": "first",
        "unit": "",
        "points": POINTS,
        "records": np.array([100]),
        "observed": lambda _: 500.0,
        "simulated": lambda _model, counts, _rng: 2.0 * counts[:, :1],
        "possible": lambda _: (0.0, 1000.0),
    }
    return Statistic(**(given | more))


def test_all_statistics_are_of_the_same_populations() -> None:
    """And the noise of the first of them serves all."""

    def noise(counts: Any) -> Any:
        return lambda _, draws: np.resize(0.1 * counts[:, :1], (draws, 1))

    noisy = statistic(noise=noise, sparse=True)
    drawn = np.arange(12).reshape(4, 3)
    one, two = simulate_together(
        [statistic(), noisy], MODEL, draws=4, populations=iter([drawn[:2], drawn[2:]])
    )
    assert one.values.ravel().tolist() == [0, 6, 12, 18]
    assert one.noise is None
    assert two.noise is not None
    assert two.noise.ravel() == pytest.approx([0, 0.3, 0, 0.3])
    assert two.values.ravel() == pytest.approx([0, 6.3, 12, 18.3])
    assert (one.sparse, two.sparse, two.possible) == (False, True, (0.0, 1000.0))
    (drawn_here,) = simulate_together([statistic()], MODEL, draws=7)
    assert drawn_here.values.shape == (7, 1)


def test_columns_that_lie_far_out_have_drifted_however_it_is_controlled() -> None:
    far, near = (MODEL, [statistic()]), (MODEL, [statistic(observed=lambda _: 100.0)])
    for control in ("family", "discovery"):
        found = judge_columns([far, near], false_alarm=0.05, control=control)
        assert [each.drifted for each in found] == [True, False]
        assert found[0].statistics[0].value == 500.0
        assert found[0].false_alarm == 0.05
    assert judge_columns([], false_alarm=0.05) == ()
    with pytest.raises(InvalidInputError, match="'family' or by 'discovery'"):
        judge_columns([far], false_alarm=0.05, control="none")  # type: ignore[arg-type]


def test_the_more_columns_are_discovered_the_lower_is_what_discovers_them() -> None:
    """With as many false ones allowed as their share of all; with none or one, as of a family."""
    far, near = (MODEL, [statistic()]), (MODEL, [statistic(observed=lambda _: 100.0)])

    def threshold(*columns: Any, control: Any) -> float:
        found = judge_columns(columns, false_alarm=0.05, control=control)
        return found[0].statistics[0].threshold

    alone = threshold(near, near, control="discovery")
    assert threshold(far, near, control="discovery") == alone
    assert threshold(far, far, control="discovery") < alone
    assert threshold(far, far, control="family") == alone
