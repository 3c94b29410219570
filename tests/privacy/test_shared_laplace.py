"""Laplace noise in shares: its privacy by definition, with enough, more and too few shares."""

import math
import time
from typing import Any

import mpmath
import numpy as np
import pytest

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.audit import audit
from fedprikl.checks import Floats
from fedprikl.privacy import (
    AccountedRelease,
    GaussianMechanism,
    Numbers,
    SecureNoise,
    SharedCounts,
    calibrate,
)
from fedprikl.privacy.charges import charge_from_dict, charge_to_dict
from fedprikl.privacy.noise import MOST_SHARES, polya_table, tail_bits
from fedprikl.privacy.shares import SAMPLER_DELTA, SharedGaussianMechanism, SharedLaplaceMechanism
from tests.false_alarm import FALSE_ALARM, looks_as_frequent, missed
from tests.privacy.polya_exactly import masses, share_probabilities, summed, worst_loss


def share_of(mechanism: SharedLaplaceMechanism) -> Floats:
    return share_probabilities(polya_table(mechanism.scale, mechanism.on.shares))


@pytest.mark.parametrize(("epsilon", "shares"), [(1.0, 1), (1.0, 40), (0.2, 7), (6.0, 12)])
def test_epsilon_is_the_largest_log_ratio_and_is_attained(epsilon: float, shares: int) -> None:
    mechanism = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=shares), epsilon=epsilon, delta=1e-6
    )
    total = summed(share_of(mechanism), shares)
    assert worst_loss(total) == pytest.approx(epsilon, rel=1e-6)
    assert mechanism.epsilon(1e-6) <= epsilon
    assert mechanism.epsilon(1e-6) == pytest.approx(epsilon, rel=1e-9)
    spread = float((np.arange(len(total)) - len(total) // 2) ** 2 @ total)
    assert mechanism.standard_deviation == pytest.approx(math.sqrt(spread), rel=1e-9)
    assert mechanism.share_variance == pytest.approx(spread / shares, rel=1e-9)


@pytest.mark.parametrize("coordinates", [1, 4, 10])
def test_epsilon_of_more_moved_counts(coordinates: int) -> None:
    """Each count loses as much at most, and all of them can at once."""
    mechanism = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=7, coordinates=coordinates), epsilon=1.0, delta=1e-6
    )
    table = polya_table(mechanism.scale, 7, coordinates)
    one = worst_loss(summed(share_probabilities(table), 7)) / 2
    assert coordinates * one == pytest.approx(1.0, rel=1e-6)
    assert 1 - 1e-9 < mechanism.epsilon(1e-6) <= 1.0
    assert mechanism.sensitivity == coordinates
    assert mechanism.reach == len(table.thresholds)


@pytest.mark.parametrize("present", [8, 9, 16, 40])
def test_more_shares_than_needed_are_no_less_private(present: int) -> None:
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=8), epsilon=1.0, delta=1e-6)
    loss = worst_loss(summed(share_of(mechanism), present))
    assert loss <= 1 + 1e-9
    assert present == 8 or loss < 1


@pytest.mark.parametrize("present", [1, 4, 7])
def test_fewer_shares_than_needed_break_epsilon(present: int) -> None:
    """The teeth of the two tests above."""
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=8), epsilon=1.0, delta=1e-6)
    assert worst_loss(summed(share_of(mechanism), present)) > 1.1


def test_the_cut_off_tail_costs_a_delta_and_less_than_stated() -> None:
    """delta at epsilon = 20, from the exact probabilities of the table: not 0, and under 2^-60."""
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=1), epsilon=20.0, delta=1e-6)
    table = polya_table(mechanism.scale, 1)
    one = masses(table)
    reach = mechanism.reach
    share = [
        sum(one[i] * one[i - k] for i in range(max(k, 0), reach + 1 + min(k, 0)))
        for k in range(-reach, reach + 1)
    ]
    with mpmath.workdps(300):
        left = [mpmath.mpf(mass) for mass in [*share, 0]]
        right = [mpmath.mpf(mass) for mass in [0, *share]]
        factor = mpmath.exp(20)
        excess = mpmath.fsum(
            max(a * b - factor * c * d, 0)
            for a, c in zip(left, right, strict=True)
            for b, d in zip(right, left, strict=True)
        )
        delta = excess / mpmath.mpf(sum(share)) ** 2
        assert 0 < delta < SAMPLER_DELTA
        assert delta < mpmath.mpf(2) ** -96


@pytest.mark.parametrize(
    ("epsilon", "coordinates"),
    [(0.001, 2), (1.0, 2), (60.0, 2), (400.0, 2), (1.0, 1), (1.0, 6), (20.0, 42), (9.0, 402)],
)
def test_the_stated_delta_covers_the_sampler_for_as_many_shares_as_are_allowed(
    epsilon: float, coordinates: int
) -> None:
    """(1 + e^epsilon) times the distance of the moved counts, of `shares` shares of two variables
    each.
    """
    mechanism = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=1, coordinates=coordinates), epsilon=epsilon, delta=1e-6
    )
    bits = tail_bits(mechanism.scale, coordinates)
    log_distance = math.log(2 * coordinates * MOST_SHARES) + (1 - bits) * math.log(2)
    assert np.logaddexp(0, epsilon) + log_distance <= math.log(2.0**-64) + 1e-9
    assert SAMPLER_DELTA == 2.0**-60


def test_below_the_samplers_delta_nothing_is_claimed() -> None:
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=5), epsilon=1.0, delta=1e-6)
    assert mechanism.epsilon(SAMPLER_DELTA) <= 1.0
    assert mechanism.epsilon(SAMPLER_DELTA / 2) == math.inf


def test_a_release_is_charged_its_epsilon_and_the_samplers_delta() -> None:
    charge = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=5), epsilon=0.5, delta=1e-6
    ).charge(1e-6)
    assert 0.5 * (1 - 1e-9) < charge.proved_epsilon <= 0.5
    assert charge.proved_delta == SAMPLER_DELTA
    assert charge_from_dict(charge_to_dict(charge)) == charge
    gaussian = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=5), epsilon=3.0, delta=1e-3
    ).charge(1e-3)
    assert isinstance(gaussian, AccountedRelease)
    assert gaussian.proved_delta == 1e-3


def chance_of_large(scale: float, cut: int) -> float:
    """P(|k| >= cut) of the discrete Laplace law: 2 p^cut / (1 + p) with p = exp(-1 / scale)."""
    p = math.exp(-1 / scale)
    return 2 * p**cut / (1 + p)


@pytest.mark.parametrize("source", [SecureNoise(), InsecureSeededNoise(4)], ids=repr)
def test_drawn_shares_add_up_to_the_stated_spread(source: Any) -> None:
    """How many of 20,000 sums of 12 shares are large: binomial, with an exact false-alarm rate of
    1e-9; 30% more or less variance would pass with a probability below 1e-9, also exact.
    """
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=12), epsilon=0.3, delta=1e-6)
    total = np.sum([mechanism.draw_share(20_000, source) for _ in range(12)], axis=0)
    cut, sums = 11, len(total)
    large = int(np.count_nonzero(np.abs(total) >= cut))
    true = chance_of_large(mechanism.scale, cut)
    assert looks_as_frequent(large, sums, true)
    for factor in (0.7, 1.3):
        wrong = chance_of_large(mechanism.scale * math.sqrt(factor), cut)
        assert missed(sums, wrong, true) < FALSE_ALARM
        assert not looks_as_frequent(large, sums, wrong)


class Extreme(InsecureSeededNoise):
    """Draws far beyond everything."""

    def laplace_share(self, entries: int, **law: Any) -> Any:
        drawn = super().laplace_share(entries, **law)
        return drawn + np.where(np.arange(entries) % 2, 10**9, -(10**9))


def test_a_share_stays_within_its_reach() -> None:
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=3), epsilon=8.0, delta=1e-6)
    table = polya_table(mechanism.scale, 3)
    assert mechanism.reach == len(table.thresholds)  # so the secure source needs no clipping
    assert int(table.draw(1, lambda size: b"\xff" * size)[0]) == mechanism.reach
    assert mechanism.draw_share(2, Extreme(1)).tolist() == [-mechanism.reach, mechanism.reach]
    assert "discrete Laplace noise in shares" in str(mechanism)


def audited(mechanism: SharedLaplaceMechanism, present: int) -> Any:
    """On one count, which is worth half of epsilon, as released by so many clients."""

    def release(count: int) -> Any:
        source = SecureNoise()
        return lambda n: (
            count + np.sum([mechanism.draw_share(n, source) for _ in range(present)], axis=0)
        ).astype(np.float64)

    return audit(
        release(0),
        release(1),
        epsilon=mechanism.epsilon(1e-6) / 2,
        delta=1e-6,
        gaussian=False,
        trials=40_000,
        false_alarm=FALSE_ALARM,
    )


def test_an_audit_does_not_refute_enough_shares_and_refutes_too_few() -> None:
    """False alarms: 1e-9. With 3 of 10 shares the bound is 1.90 with a standard deviation of 0.02,
    45 of them above the claimed 1.
    """
    mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(shares=10), epsilon=2.0, delta=1e-6)
    assert not audited(mechanism, 10).refuted
    assert not audited(mechanism, 15).refuted
    assert audited(mechanism, 3).refuted


def test_the_smaller_noise_is_taken() -> None:
    """Laplace at every usual delta; Gaussian where delta is large. Neither depends on `shares`."""
    for epsilon in (0.01, 0.1, 1.0, 4.0, 16.0, 60.0):
        chosen = calibrate(SharedCounts(shares=9), epsilon=epsilon, delta=1e-6)
        assert isinstance(chosen, SharedLaplaceMechanism)
        formula = GaussianMechanism.calibrated(Numbers(math.sqrt(2)), epsilon=epsilon, delta=1e-6)
        assert chosen.standard_deviation < formula.sigma
    for shares in (1, 30):
        chosen = calibrate(SharedCounts(shares=shares), epsilon=1.0, delta=0.05)
        assert isinstance(chosen, SharedGaussianMechanism)
        laplace = SharedLaplaceMechanism.calibrated(
            SharedCounts(shares=shares), epsilon=1.0, delta=0.05
        )
        assert chosen.standard_deviation < laplace.standard_deviation


def test_the_smaller_noise_depends_on_how_many_counts_move() -> None:
    """Laplace noise for a table of two columns beside its joint domain, Gaussian for many."""
    for coordinates, kind in ((2, SharedLaplaceMechanism), (6, SharedLaplaceMechanism)):
        chosen = calibrate(SharedCounts(shares=9, coordinates=coordinates), epsilon=1.0, delta=1e-6)
        assert isinstance(chosen, kind)
        assert chosen.on.coordinates == coordinates
    for coordinates in (10, 42, 402):
        chosen = calibrate(SharedCounts(shares=9, coordinates=coordinates), epsilon=1.0, delta=1e-6)
        assert isinstance(chosen, SharedGaussianMechanism)
        laplace = SharedLaplaceMechanism.calibrated(
            SharedCounts(shares=9, coordinates=coordinates), epsilon=1.0, delta=1e-6
        )
        assert chosen.standard_deviation < laplace.standard_deviation
        assert chosen.epsilon(1e-6) <= 1.0


def test_where_laplace_cannot_be_drawn_the_gaussian_is_taken() -> None:
    assert isinstance(
        calibrate(SharedCounts(shares=3), epsilon=10.0, delta=1e-20), SharedGaussianMechanism
    )


def test_a_share_of_500_counts_takes_milliseconds() -> None:
    """A blow-up only: the best of 20 is usually 0.2 ms (`benchmarks/noise_in_shares.py`)."""
    mechanism, source = (
        SharedLaplaceMechanism.calibrated(SharedCounts(shares=2800), epsilon=1.0, delta=1e-6),
        SecureNoise(),
    )
    took = []
    for _ in range(20):
        start = time.process_time()
        mechanism.draw_share(500, source)
        took.append(time.process_time() - start)
    assert min(took) < 1e-2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "above 0"),
        ({"epsilon": 1e-5}, "from 0.0008 to 500"),
        ({"epsilon": 1e4}, "Use Gaussian"),
        ({"delta": 1.0}, "under 1"),
        ({"delta": 1e-30}, "Raise delta"),
        ({"shares": 0}, "at least 1"),
        ({"coordinates": 0}, "at least 1"),
        ({"epsilon": 0.1, "coordinates": 402}, "from 0.1608 to"),
        ({"shares": 2**40}, "at most"),
        ({"law": "x"}, "There is no noise"),
    ],
)
def test_bad_input_says_what_to_do(settings: dict[str, Any], words: str) -> None:
    on, asked = {"shares": 5}, {"epsilon": 1.0, "delta": 1e-6, "law": "laplace"}
    for name, value in settings.items():
        (on if name in ("shares", "coordinates") else asked)[name] = value
    with pytest.raises(InvalidInputError, match=words):
        calibrate(SharedCounts(**on), **asked)  # type: ignore[call-overload]
