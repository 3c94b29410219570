"""Every mechanism has the same operations, and they agree with what it draws."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.privacy import (
    AccountedRelease,
    Calibrated,
    Charge,
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    LaplaceMechanism,
    Ledger,
    Mechanism,
    Numbers,
    PureLoss,
    SecureNoise,
    SharedCounts,
    calibrate,
    charges,
    register_charge,
    total_epsilon,
)
from fedprikl.privacy.charges import GaussianLoss, IntegerGaussianLoss, charge_to_dict, check_charge
from tests.false_alarm import FALSE_ALARM

AT = "2030-01-31T12:00:00+00:00"
MECHANISMS: dict[str, Mechanism] = {
    "laplace": LaplaceMechanism(scale=1.5, sensitivity=1.0),
    "gaussian": GaussianMechanism(sigma=1.5, sensitivity=1.0),
    "integer_laplace": IntegerLaplaceMechanism(scale=1.5, coordinates=2),
    "integer_gaussian": IntegerGaussianMechanism(sigma=1.5, coordinates=2),
}
every_kind = pytest.mark.parametrize("noise", MECHANISMS.values(), ids=MECHANISMS)


@every_kind
def test_survival_is_that_of_the_draws(noise: Mechanism) -> None:
    """At each place a binomial test; and a place that is half a unit off is noticed."""
    drawn = noise.add_to(np.zeros(20_000), SecureNoise())
    places = np.array([-5.0, -1.0, -0.25, 0.0, 0.5, 1.0, 4.0])
    chances = noise.survival(places)
    for place, chance in zip(places, chances, strict=True):
        above = int(np.count_nonzero(drawn > place))
        assert stats.binomtest(above, len(drawn), chance).pvalue > FALSE_ALARM
    moved = int(np.count_nonzero(drawn > 0.5))
    assert stats.binomtest(moved, len(drawn), noise.survival(np.array([-0.5]))[0]).pvalue < 1e-9


@every_kind
def test_survival_far_out(noise: Mechanism) -> None:
    assert noise.survival(np.array([-1e4, 1e4])) == pytest.approx([1.0, 0.0], abs=1e-20)
    assert noise.survival(np.array([15.0]))[0] > 0


@pytest.mark.parametrize("name", ["integer_laplace", "integer_gaussian"])
def test_survival_of_whole_numbers_is_the_sum_of_their_probabilities(name: str) -> None:
    k = np.arange(-200, 201)
    law = {"integer_laplace": np.abs(k) / 1.5, "integer_gaussian": (k / 1.5) ** 2 / 2}[name]
    p = np.exp(-law) / np.exp(-law).sum()
    for x in (-7.5, -2.0, -0.1, 0.0, 0.9, 3.0, 11.0):
        found = MECHANISMS[name].survival(np.array([x]))[0]
        assert found == pytest.approx(p[k > x].sum(), rel=1e-12)


@every_kind
@pytest.mark.parametrize("error_sd", [0.0, 0.3, 5.0])
def test_quantiles_invert_survival(noise: Mechanism, error_sd: float) -> None:
    """The least x that at most 5% exceed: the noise in fine cells, the error exactly."""
    found = noise.quantile(0.95, error_sd=error_sd)
    edges = np.linspace(-40.005, 39.995, 16_001)
    masses, middles = -np.diff(noise.survival(edges)), (edges[1:] + edges[:-1]) / 2

    def above(x: float) -> float:
        if not error_sd:
            return float(noise.survival(np.array([x]))[0])
        return float(masses @ stats.norm.sf((x - middles) / error_sd))

    assert above(found + 1e-3) <= 0.05 + 2e-5
    assert above(found - 0.02) > 0.05


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_the_default_quantile_is_the_closed_form(name: str) -> None:
    noise = MECHANISMS[name]
    for probability in (0.6, 0.95, 0.9999):
        for sd in (0.0, 0.2, 4.0):
            general = Mechanism.quantile(noise, probability, error_sd=sd)
            assert general == pytest.approx(noise.quantile(probability, error_sd=sd), rel=1e-5)


@pytest.mark.parametrize("chance", [0.0, 1.0, math.nan])
def test_a_law_without_quantiles_is_refused(chance: float) -> None:
    class Wrong:
        standard_deviation = 1.0

        def survival(self, x: Floats) -> Floats:
            return np.full(len(x), chance)

    wrong: Any = Wrong()
    with pytest.raises(InvalidInputError, match="must fall from 1 to 0"):
        Mechanism.quantile(wrong, 0.9)


@every_kind
def test_the_stated_delta_is_0_only_where_it_is_proved(noise: Mechanism) -> None:
    proved = noise.proved_delta(1e-6)
    assert proved == Mechanism.proved_delta(noise, 1e-6)
    assert math.isfinite(total_epsilon([noise], delta=proved))
    assert (proved == 0) is math.isfinite(total_epsilon([noise], delta=0.0))


@every_kind
def test_the_loss_alone_is_the_mechanism(noise: Mechanism) -> None:
    assert noise.loss.alone(1e-6) == pytest.approx(noise.epsilon(1e-6), rel=1e-9)
    assert noise.loss.gaussian is isinstance(noise, GaussianMechanism)


def test_integer_laplace_noise_can_be_charged(tmp_path: Path) -> None:
    noise = calibrate(Counts(), epsilon=0.5, law="laplace")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("people", epsilon=1.0, delta=0.0, at=AT)
        for name in ("one", "two"):
            ledger.reserve("people", noise, round_id=name, at=AT)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert [each.charge for each in ledger.account("people").rounds] == [noise, noise]
        assert ledger.account("people").spent == pytest.approx(1.0)


@pytest.mark.parametrize("coordinates", [1, 2])
def test_integer_laplace_noise_composes_exactly(coordinates: int) -> None:
    """A count loses 1/b or gains it: delta is a sum over how often it does."""
    noise, releases, delta = IntegerLaplaceMechanism(scale=8.0, coordinates=coordinates), 30, 1e-6
    n = releases * coordinates
    found = total_epsilon([noise] * releases, delta=delta)
    losing = stats.binom.pmf(np.arange(n + 1), n, 1 / (1 + np.exp(-1 / 8)))
    loss = (2 * np.arange(n + 1) - n) / 8

    def exact(epsilon: float) -> float:
        return float(losing @ -np.expm1(np.minimum(epsilon - loss, 0.0)))

    assert exact(found) <= delta < exact(found * 0.99)
    assert found < releases * noise.epsilon(0.0)


def test_pure_releases_that_are_tiny_or_huge_are_added() -> None:
    tiny = calibrate(Counts(), epsilon=1e-7, law="laplace")
    large = calibrate(Numbers(), epsilon=1.0, law="laplace")
    both = total_epsilon([tiny, large], delta=1e-6)
    assert large.epsilon(0.0) <= both <= large.epsilon(0.0) + tiny.epsilon(0.0)
    huge = calibrate(Counts(), epsilon=400.0, law="laplace")
    assert total_epsilon([huge, huge], delta=1e-6) == pytest.approx(800.0)


CHARGES: list[Charge] = [
    LaplaceMechanism(scale=2.0, sensitivity=1),
    GaussianMechanism(sigma=12.5, sensitivity=0.37),
    IntegerGaussianMechanism(sigma=6.25, coordinates=2),
    AccountedRelease(proved_epsilon=0.5, proved_delta=1e-9),
    AccountedRelease(proved_epsilon=0.1),
]


def test_a_ledger_is_written_as_ever(tmp_path: Path) -> None:
    """The hash of the last entry fixes every byte of every entry before it."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.set_budget("péople", epsilon=5, delta=1e-5, at=AT)
        for number, charge in enumerate(CHARGES):
            ledger.reserve("péople", charge, round_id=str(number), at=AT, note="a note")
        assert (
            ledger.head.hash == "3e382eeb2491a097986b8a2fec5c53a7e68c210203aa7674000a2b5bb224cbf0"
        )
        # Computed, so its last digits are the processor's; what is written is not.
        assert ledger.account("péople").spent == pytest.approx(1.8997867401217974, rel=1e-9)


@pytest.mark.parametrize("kind", ["auto", "laplace", "gaussian"])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.01, 0.2), (3.0, 1e-35)])
def test_calibrated_is_resolved_once(kind: str, epsilon: float, delta: float) -> None:
    if kind == "gaussian" and delta < 1e-30:
        with pytest.raises(InvalidInputError, match="Raise delta"):
            Calibrated(Numbers(), epsilon, delta, kind)
        return
    noise = Calibrated(Numbers(), epsilon, delta, kind)
    assert noise.law in ("laplace", "gaussian")
    assert Calibrated(Numbers(), epsilon, delta, noise.law) == noise
    for sensitivity in (0.0, 1e-12, 0.037, 1.0, 1e3):
        options: list[Mechanism] = [calibrate(Numbers(sensitivity), epsilon=epsilon, law="laplace")]
        if delta > 1e-30:
            options.append(
                calibrate(Numbers(sensitivity), epsilon=epsilon, delta=delta, law="gaussian")
            )
        least = min(options, key=lambda each: each.standard_deviation)
        drawn = noise.for_sensitivity(sensitivity)
        assert drawn == calibrate(Numbers(sensitivity), epsilon=epsilon, delta=delta, law=kind)
        assert drawn in ([least] if kind == "auto" else options)
        assert type(drawn) is type(noise.charge)
        assert drawn.epsilon(delta) == pytest.approx(noise.charge.epsilon(delta), rel=1e-6)
    assert noise.charge == noise.for_sensitivity(1.0)


def test_both_shared_kinds_answer_alike() -> None:
    laplace = calibrate(SharedCounts(shares=50), epsilon=1.0, delta=1e-6, law="laplace")
    gaussian = calibrate(SharedCounts(shares=50), epsilon=1.0, delta=1e-6, law="gaussian")
    assert laplace.laplace_scale == pytest.approx(2.0)
    assert gaussian.laplace_scale is None
    assert laplace.proved_delta(1e-6) < 1e-6 == gaussian.proved_delta(1e-6)
    for share in (laplace, gaussian):
        charge = share.charge(1e-6)
        assert isinstance(charge, AccountedRelease)
        assert charge.proved_delta == share.proved_delta(1e-6)


@dataclass(frozen=True)
class Odd(Mechanism):
    """Charges whatever it is told."""

    stated: Any

    @property
    def loss(self) -> Any:
        return self.stated

    def check(self) -> None: ...


def test_what_cannot_be_composed_is_refused() -> None:
    odd: Any = Odd(PureLoss(1.0))
    with pytest.raises(InvalidInputError, match="A Odd cannot be charged"):
        check_charge(odd)
    register_charge("odd")(Odd)
    try:
        wrong: Any = Odd("nothing at all")
        with pytest.raises(InvalidInputError, match="cannot be composed"):
            total_epsilon([wrong], delta=1e-6)
        with pytest.raises(InvalidInputError, match="cannot be composed"):
            charge_to_dict(odd)  # its loss comes back as a mapping
    finally:
        charges._NAMES.pop(charges._KINDS.pop("odd"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: PureLoss(-0.1),
        lambda: PureLoss(math.nan),
        lambda: GaussianLoss(-1.0),
        lambda: IntegerGaussianLoss(math.nan, 1),
        lambda: check_charge(AccountedRelease(proved_epsilon=0.1, proved_delta=-1e-9)),
    ],
)
def test_no_loss_is_negative(make: Any) -> None:
    with pytest.raises(InvalidInputError, match="at least 0"):
        make()
