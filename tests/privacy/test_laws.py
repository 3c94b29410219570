"""Noise laws, exactly: scales, losses, tails and what is refused, by their formulas."""

import math
from dataclasses import astuple, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError, libraries
from fedprikl.privacy import (
    Calibrated,
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    LaplaceMechanism,
    Mechanism,
    Numbers,
    SharedCounts,
    calibrate,
    laws,
)
from fedprikl.privacy.accounting import SMALLEST_DELTA, concentrated_epsilon
from fedprikl.privacy.charges import (
    ConcentratedRelease,
    GaussianLoss,
    IntegerGaussianLoss,
    LaplaceLoss,
    PureLoss,
)
from fedprikl.privacy.laws import (
    SIGMA_RANGE,
    VectorMechanism,
    check_law,
    check_noise,
    check_sensitivity,
    laplace_variance,
    register_law,
    resolve_law,
)

DELTA = 1e-6
LAPLACE = LaplaceMechanism(scale=2.0, sensitivity=1.0)
GAUSSIAN = GaussianMechanism(sigma=2.0, sensitivity=1.0)


class Unlike:
    """A source that draws no noise, and notes what it was asked for."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def laplace(self, values: Any, *, scale: float) -> Any:
        self.scales.append(scale)
        return np.asarray(values, float)


def test_counts_change_by_all_records_in_all_coordinates() -> None:
    assert Counts().changes == SharedCounts(shares=1).changes == 2
    assert Counts(3, 5).changes == SharedCounts(7, 3, 5).changes == 15
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(InvalidInputError, match="at least 1"):
            Counts(*wrong)
        with pytest.raises(InvalidInputError, match="at least 1"):
            SharedCounts(1, *wrong)
    with pytest.raises(InvalidInputError, match="at least 1"):
        SharedCounts(0)


def test_a_failure_is_paid_for_out_of_delta() -> None:
    on = SharedCounts(3, failure=1e-9)
    assert on.usable(3e-9) == pytest.approx(2e-9)
    for delta in (1e-9, 1e-10):
        with pytest.raises(InvalidInputError, match="less than its cohort"):
            on.usable(delta)
    assert SharedCounts(3).usable(DELTA) == DELTA


def test_a_law_says_which_part_it_lacks() -> None:
    @dataclass(frozen=True)
    class Unfinished(Mechanism): ...

    law = Unfinished()
    for part in (
        lambda: Unfinished.calibrated(Numbers(), epsilon=1.0, delta=0.0),
        lambda: law.standard_deviation,
        lambda: law.add_to([0.0], Unlike()),  # type: ignore[arg-type]
        lambda: law.survival(np.zeros(1)),
    ):
        with pytest.raises(NotImplementedError):
            part()
    assert law.laplace_scale is None
    assert law.charge(DELTA) is law


def test_a_law_is_found_where_it_is_registered_or_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidInputError, match="no noise 'new'; known are auto, adaptive"):
        calibrate(Numbers(), epsilon=1.0, law="new")
    with pytest.raises(InvalidInputError, match="'adaptive' is not for Counts"):
        calibrate(Counts(), epsilon=1.0, law="adaptive")
    monkeypatch.setattr(laws, "_LAWS", {**laws._LAWS})
    load = lambda: register_law("new", on=Numbers)(LaplaceMechanism)  # noqa: E731
    points = [SimpleNamespace(load=load)]
    monkeypatch.setattr(libraries, "entry_points", lambda *, group: points if group else [])
    libraries.load_extensions.cache_clear()
    assert isinstance(calibrate(Numbers(), epsilon=1.0, law="new"), LaplaceMechanism)
    libraries.load_extensions.cache_clear()


def test_a_plan_names_auto_or_additive_noise() -> None:
    for name in ("auto", "laplace", "gaussian"):
        check_law(name, on=Numbers)
    with pytest.raises(InvalidInputError, match="no law of additive noise"):
        check_law("adaptive", on=Numbers)


@pytest.mark.parametrize("law", ["auto", "laplace", "gaussian"])
def test_epsilon_and_delta_are_checked_whatever_the_law(law: str) -> None:
    for wrong in ({"epsilon": 0.0, "delta": DELTA}, {"epsilon": 1.0, "delta": 1.0}):
        with pytest.raises(InvalidInputError):
            resolve_law(Numbers(), law=law, **wrong)


def test_auto_is_the_least_noise_and_of_equal_ones_the_first() -> None:
    assert resolve_law(Numbers(), epsilon=1.0, delta=DELTA, law="auto") == "laplace"
    many = Numbers(coordinates=1000)
    assert resolve_law(many, epsilon=1.0, delta=DELTA, law="auto") == "gaussian"
    assert resolve_law(many, epsilon=1.0, delta=0.0, law="auto") == "laplace"
    assert GaussianMechanism.deviation(Numbers(), epsilon=1.0, delta=0.0) == math.inf
    found = LaplaceMechanism.deviation(Numbers(), epsilon=1.0, delta=0.0)
    assert found == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_no_noise_is_refused(wrong: float) -> None:
    with pytest.raises(InvalidInputError):
        check_noise(wrong, "scale")
    for noise in (
        LaplaceMechanism(scale=wrong, sensitivity=1.0),
        GaussianMechanism(sigma=wrong, sensitivity=1.0),
        IntegerLaplaceMechanism(scale=wrong, coordinates=2),
        IntegerGaussianMechanism(sigma=wrong, coordinates=2),
    ):
        with pytest.raises(InvalidInputError):
            noise.check()


def test_a_sensitivity_is_at_least_zero() -> None:
    assert check_sensitivity(0) == 0.0
    for kind, noise in ((LaplaceMechanism, "scale"), (GaussianMechanism, "sigma")):
        kind(**{noise: 1.0, "sensitivity": 0.0}).check()
        with pytest.raises(InvalidInputError, match="negative"):
            kind(**{noise: 1.0, "sensitivity": -1e-9}).check()


@pytest.mark.parametrize("make", [IntegerLaplaceMechanism, IntegerGaussianMechanism])
def test_whole_noise_is_on_some_count_of_some_record(make: Any) -> None:
    size = "scale" if make is IntegerLaplaceMechanism else "sigma"
    make(**{size: 2.0}, coordinates=1).check()
    for wrong in ({"coordinates": 0}, {"coordinates": 2, "contribution": 0}):
        with pytest.raises(InvalidInputError, match="at least 1"):
            make(**{size: 2.0}, **wrong).check()


def test_integer_noise_is_accounted_within_limits_that_grow_with_a_client() -> None:
    for contribution in (1, 4):
        for end, beyond in zip(SIGMA_RANGE, (0.99, 1.01), strict=True):
            sigma = contribution * end
            fine = IntegerGaussianMechanism(sigma=sigma, coordinates=2, contribution=contribution)
            fine.check()
            with pytest.raises(InvalidInputError, match="is accounted for a sigma"):
                IntegerGaussianMechanism(
                    sigma=sigma * beyond, coordinates=2, contribution=contribution
                ).check()
    assert IntegerGaussianMechanism(sigma=0.1, coordinates=2).epsilon(SMALLEST_DELTA) < math.inf
    below = IntegerGaussianMechanism(sigma=0.1, coordinates=2).epsilon(SMALLEST_DELTA / 2)
    assert below == math.inf


def test_scales_follow_from_sensitivity_and_coordinates() -> None:
    for d in (1, 3):
        on = Numbers(0.5, d)
        laplace = LaplaceMechanism.calibrated(on, epsilon=0.25, delta=0.0)
        assert laplace.scale == pytest.approx(d * 0.5 / 0.25, rel=1e-6)
        assert laplace.sensitivity == 0.5
        gaussian = GaussianMechanism.calibrated(on, epsilon=0.25, delta=DELTA)
        one = GaussianMechanism.calibrated(Numbers(), epsilon=0.25, delta=DELTA)
        assert gaussian.sigma == pytest.approx(math.sqrt(d) * 0.5 * one.sigma, rel=1e-6)
    counts = IntegerLaplaceMechanism.calibrated(Counts(3, 5), epsilon=0.5, delta=0.0)
    assert counts.scale == pytest.approx(30, rel=1e-9)
    assert counts.loss.epsilon <= 0.5
    assert (counts.coordinates, counts.contribution, counts.sensitivity) == (3, 5, 15.0)


def same(one: Any, other: Any) -> bool:
    """Losses of one kind, up to rounding."""
    return type(one) is type(other) and astuple(one) == pytest.approx(astuple(other))


def test_losses_are_those_of_the_formulas() -> None:
    assert same(LAPLACE.loss, LaplaceLoss(0.5))
    assert LAPLACE.loss.epsilon > 0.5  # the grid that is drawn on
    assert same(GAUSSIAN.loss, GaussianLoss(0.5))
    assert GAUSSIAN.loss.mu > 0.5
    record = IntegerLaplaceMechanism(scale=8.0, coordinates=2)
    client = IntegerLaplaceMechanism(scale=8.0, coordinates=2, contribution=3)
    assert same(record.loss, PureLoss(0.25, 2))
    assert same(client.loss, PureLoss(0.75, 1))
    assert IntegerGaussianMechanism(sigma=8.0, coordinates=2).loss == IntegerGaussianLoss(8.0, 2)
    wide = IntegerGaussianMechanism(sigma=8.0, coordinates=2, contribution=3)
    assert wide.sensitivity == pytest.approx(3 * math.sqrt(2))
    assert same(wide.loss, ConcentratedRelease(rho=18 / 64 / 2))


@pytest.mark.parametrize("contribution", [2, 20])
def test_noise_for_a_client_is_calibrated_by_its_rho(contribution: int) -> None:
    noise = IntegerGaussianMechanism.calibrated(Counts(2, contribution), epsilon=1.0, delta=DELTA)
    rho = 2 * contribution**2 / (2 * noise.sigma**2)
    assert concentrated_epsilon(rho, DELTA) == pytest.approx(1.0, rel=1e-6)
    assert noise.epsilon(DELTA) <= 1.0
    assert (noise.coordinates, noise.contribution) == (2, contribution)


def test_a_vector_costs_as_much_as_all_its_numbers() -> None:
    laplace = VectorMechanism(one=LAPLACE, coordinates=3)
    assert same(laplace.loss, LaplaceLoss(1.5, 3))
    assert laplace.epsilon(DELTA) == pytest.approx(1.5)
    assert laplace.proved_delta(DELTA) == 0.0
    gaussian = VectorMechanism(one=GAUSSIAN, coordinates=4)
    assert same(gaussian.loss, GaussianLoss(1.0))
    alone = GaussianMechanism(sigma=1.0, sensitivity=1.0).epsilon(DELTA)
    assert gaussian.epsilon(DELTA) == pytest.approx(alone, rel=1e-6)
    assert gaussian.proved_delta(DELTA) == DELTA
    for wrong in (
        VectorMechanism(one=LAPLACE, coordinates=0),
        VectorMechanism(one=LaplaceMechanism(scale=1.0, sensitivity=2.0), coordinates=2),
        VectorMechanism(one=LaplaceMechanism(scale=0.0, sensitivity=1.0), coordinates=2),
    ):
        with pytest.raises(InvalidInputError):
            wrong.check()
    whole = VectorMechanism(one=IntegerGaussianMechanism(sigma=2.0, coordinates=1), coordinates=2)
    with pytest.raises(InvalidInputError, match="pure or Gaussian"):
        _ = whole.loss


def test_each_number_gets_noise_for_its_own_sensitivity() -> None:
    noise, source = Calibrated(Numbers(coordinates=2), 1.0, 0.0), Unlike()
    any_source: Any = source
    assert noise.add_to([3.0, 4.0], [0.5, 2.0], any_source).tolist() == [3.0, 4.0]
    assert source.scales == pytest.approx([1.0, 4.0])
    assert isinstance(noise.charge, VectorMechanism)
    assert isinstance(Calibrated(Numbers(), 1.0, 0.0).charge, LaplaceMechanism)
    for values, bounds, words in [
        ([3.0], [0.5], "for 2 numbers"),
        ([3.0, 4.0], [0.5], "for 2 numbers"),
        ([3.0, 4.0], [0.5, 0.0], "finite sensitivity above 0"),
        ([3.0, 4.0], [0.5, math.inf], "finite sensitivity above 0"),
    ]:
        with pytest.raises(InvalidInputError, match=words):
            noise.add_to(values, bounds, any_source)


def test_tails_by_scipy() -> None:
    x = np.array([-7.5, -2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0])
    assert LAPLACE.survival(x) == pytest.approx(stats.laplace.sf(x, scale=2.0))
    assert GAUSSIAN.survival(x) == pytest.approx(stats.norm.sf(x, scale=2.0))
    whole = IntegerLaplaceMechanism(scale=2.0, coordinates=1)
    assert whole.survival(x) == pytest.approx(stats.dlaplace.sf(np.floor(x), 0.5))
    assert whole.standard_deviation == pytest.approx(stats.dlaplace.std(0.5))
    assert whole.laplace_scale == 2.0
    assert laplace_variance(2.0) == pytest.approx(stats.dlaplace.var(0.5))
    assert LAPLACE.standard_deviation == pytest.approx(stats.laplace.std(scale=2.0))


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975])
def test_quantiles_by_scipy(probability: float) -> None:
    assert LAPLACE.quantile(probability) == pytest.approx(stats.laplace.ppf(probability, scale=2))
    expected = stats.norm.ppf(probability, scale=math.hypot(2.0, 1.5))
    assert GAUSSIAN.quantile(probability, error_sd=1.5) == pytest.approx(expected)
    # Of a sum of both by the other law's own way of adding an error.
    generally = Mechanism.quantile(LAPLACE, probability, error_sd=1.5)
    assert LAPLACE.quantile(probability, error_sd=1.5) == pytest.approx(generally, rel=1e-6)
    for wrong in (0.0, 1.0):
        with pytest.raises(InvalidInputError, match="probability"):
            Mechanism.quantile(LAPLACE, wrong)


def test_words_are_relative_where_there_is_a_sensitivity() -> None:
    half = LaplaceMechanism(scale=2.0, sensitivity=0.5)
    assert half.per_unit() == "Laplace noise of scale 4 per unit of sensitivity"
    silent = GaussianMechanism(sigma=2.0, sensitivity=0.0)
    assert silent.per_unit() == "Gaussian noise of standard deviation 2"
