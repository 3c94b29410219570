"""Rules of composition that a pencil can follow: sums, closed forms, and what is refused."""

import math
from dataclasses import dataclass

import pytest

from fedprikl import InvalidInputError
from fedprikl.privacy import AccountedRelease, Charge, GaussianMechanism, Numbers, calibrate
from fedprikl.privacy import composition as module
from fedprikl.privacy.accounting import concentrated_epsilon, gaussian_epsilon
from fedprikl.privacy.charges import (
    BoundedRangeLoss,
    ConcentratedRelease,
    GaussianLoss,
    IntegerGaussianLoss,
    Loss,
    PureLoss,
)
from fedprikl.privacy.composition import largest_fitting_epsilon, total_epsilon

DELTA = 1e-6


def composed(*losses: Loss, delta: float = DELTA) -> float:
    return module._known_epsilon(losses, delta)


def laplace(epsilon: float) -> Charge:
    return calibrate(Numbers(), epsilon=epsilon, law="laplace")


def gaussian(epsilon: float) -> Charge:
    return calibrate(Numbers(), epsilon=epsilon, delta=DELTA, law="gaussian")


def test_concentrated_releases_add_their_rho() -> None:
    one = ConcentratedRelease(rho=0.01)
    assert composed(one, one, one) == pytest.approx(concentrated_epsilon(0.03, DELTA))
    assert composed(one, one, delta=0.0) == math.inf
    assert total_epsilon([one, one], delta=DELTA) == composed(one, one)


@pytest.mark.parametrize(
    ("loss", "rho"),
    [
        (PureLoss(0.2), 0.02),
        (BoundedRangeLoss(0.2), 0.005),
        (GaussianLoss(0.2), 0.02),
        (IntegerGaussianLoss(5.0, 3), 0.06),
        (ConcentratedRelease(rho=0.3), 0.3),
        (IntegerGaussianLoss(0.0, 3), math.inf),
        (AccountedRelease(proved_epsilon=0.1), math.inf),
    ],
)
def test_what_is_known_of_a_loss_by_its_concentration(loss: Loss, rho: float) -> None:
    assert module._concentration(loss) == pytest.approx(rho)


@pytest.mark.parametrize(
    "others", [[PureLoss(0.5)], [GaussianLoss(0.1)], [IntegerGaussianLoss(20.0, 2)]]
)
def test_beside_others_the_best_of_all_ways_counts(others: list[Loss]) -> None:
    one = ConcentratedRelease(rho=0.002)
    both = composed(one, *others)
    rho = 0.002 + sum(map(module._concentration, others))
    ways = [concentrated_epsilon(rho, DELTA)]
    for share in (0.1, 0.5, 0.9):
        rest = composed(*others, delta=(1 - share) * DELTA)
        ways.append(concentrated_epsilon(0.002, share * DELTA) + rest)
    ways.append(concentrated_epsilon(0.002, DELTA) + composed(*others, delta=0.0))
    assert both == pytest.approx(max(min(ways), composed(*others)))
    assert both > composed(*others)


def test_pure_losses_add_up_where_delta_is_zero() -> None:
    assert composed(PureLoss(0.5), PureLoss(0.25), delta=0.0) == pytest.approx(0.75)
    assert composed(PureLoss(0.5), GaussianLoss(0.1), delta=0.0) == math.inf
    assert composed(PureLoss(0.5), PureLoss(1e-9), delta=0.1) >= 0.5  # no less than one of them


def test_gaussian_losses_are_one() -> None:
    together = composed(GaussianLoss(0.3), GaussianLoss(0.4))
    assert together == pytest.approx(gaussian_epsilon(1 / 0.5, DELTA), rel=1e-6)
    silent = composed(GaussianLoss(0.0), GaussianLoss(0.0))
    assert silent == 0.0


def test_a_loss_that_nobody_knows_is_refused_and_not_passed_over() -> None:
    @dataclass(frozen=True)
    class Strange(Loss): ...

    with pytest.raises(InvalidInputError, match="Strange cannot be convolved"):
        composed(Strange(), PureLoss(0.5))


@pytest.mark.parametrize(
    "losses",
    [
        [PureLoss(0.1)] * 20,
        [PureLoss(0.01)] * 200,
        [PureLoss(0.5), PureLoss(0.02)],
        [IntegerGaussianLoss(20.0, 2)] * 10,
        [IntegerGaussianLoss(30.0, 40)] * 2,
        [GaussianLoss(0.2), PureLoss(0.1), PureLoss(0.3), IntegerGaussianLoss(20.0, 2)],
    ],
)
def test_the_grid_is_scaled_to_the_total(losses: list[Loss]) -> None:
    """Otherwise it would be too coarse to be near the truth, or too fine to be computed."""
    pure, others = module._merged(losses)
    expected = module._expected_total(pure, others, DELTA)
    assert expected == pytest.approx(composed(*losses), rel=0.4)


def test_what_accounted_releases_leave_of_delta() -> None:
    def accounted(delta: float) -> Charge:
        return AccountedRelease(proved_epsilon=0.1, proved_delta=delta)

    rest = total_epsilon([gaussian(0.5)], delta=0.75 * DELTA)
    both = total_epsilon([gaussian(0.5), accounted(0.25 * DELTA)], delta=DELTA)
    assert both == pytest.approx(rest + 0.1)
    thirds = [accounted(DELTA / 3)] * 3
    assert total_epsilon(thirds, delta=DELTA) == pytest.approx(0.3)  # whatever the rounding
    assert total_epsilon([accounted(DELTA * (1 + 1e-9))], delta=DELTA) == math.inf


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 0.5, 1 / 3, 1.0, 123.456])
def test_losses_are_rounded_up_and_hardly(epsilon: float) -> None:
    rounded = module._round_up(epsilon)
    assert epsilon <= rounded <= epsilon * (1 + 2.0**-18)
    assert module._round_up(math.nextafter(0.05, 1)) == module._round_up(0.05 * (1 + 1e-9))


@pytest.mark.parametrize("past", [0.2, 0.6543, 0.99])
def test_what_fits_has_three_digits(past: float) -> None:
    fits = largest_fitting_epsilon([laplace(past)], epsilon=1.0, delta=0.0, law="laplace")
    assert fits == float(f"{fits:.3g}")
    assert 0.99 * (1 - past) <= fits <= 1 - past
    assert total_epsilon([laplace(past), laplace(fits)], delta=0.0) <= 1.0


def test_what_fits_at_the_ends() -> None:
    def fitting(*past: Charge, **changes: object) -> float:
        given = {"epsilon": 1.0, "delta": DELTA, "law": "laplace"} | changes
        return largest_fitting_epsilon(past, **given)  # type: ignore[arg-type]

    assert fitting() == 1.0
    assert fitting(AccountedRelease(proved_epsilon=1.0)) == 0.0
    assert fitting(AccountedRelease(proved_epsilon=1 - 2e-6)) == pytest.approx(2e-6, rel=0.01)
    assert fitting(AccountedRelease(proved_epsilon=1 - 1e-9)) == 0.0
    assert fitting(delta=0.0, law="gaussian") == 0.0
    assert 0 < fitting(GaussianMechanism(sigma=20.0, sensitivity=1.0), law="gaussian") < 1.0
