"""Noise on counts that one client moves by several records: all shifts of small worlds."""

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Floats
from fedprikl.privacy import (
    AccountedRelease,
    Charge,
    Counts,
    InsecureSeededNoise,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    InverseSensitivityMechanism,
    LaplaceMechanism,
    Numbers,
    SecureNoise,
    SharedCounts,
    calibrate,
    total_epsilon,
)
from fedprikl.privacy.accounting import (
    LOG_ROUND_OFF,
    client_counts_delta,
    concentrated_epsilon,
    concentration_of,
)
from fedprikl.privacy.charges import ConcentratedRelease, charge_from_dict, charge_to_dict
from fedprikl.privacy.noise import tail_bits
from fedprikl.privacy.shares import (
    SharedGaussianMechanism,
    SharedLaplaceMechanism,
    sum_probabilities,
)
from tests.brute_force import Histogram, histograms
from tests.privacy.basic import basic_epsilon

pytestmark = pytest.mark.slow

DELTA = 1e-6


def shifts(cells: int, moved: int) -> set[Histogram]:
    """How one client can move the counts of all cells, up to the order and sign of the cells."""
    held = list(histograms(cells, moved))
    differences = {
        tuple(b - a for a, b in zip(one, other, strict=True)) for one in held for other in held
    }
    return {max(tuple(sorted(d)), tuple(sorted(-x for x in d))) for d in differences}


def masses(mechanism: Any, reach: int) -> Floats:
    """P(noise = x) for x from -reach to reach, from the mechanism's own survival function."""
    x = np.arange(-reach, reach + 1)
    return np.asarray(mechanism.survival(x - 1.0) - mechanism.survival(x.astype(float)))


def true_delta(noise: Floats, shift: Histogram, epsilon: float) -> float:
    """delta of independent noise on each count by its definition: the sum over all outcomes.

    Counts that do not move look the same in both worlds.
    """
    mine, other = np.ones(1), np.ones(1)
    for m in filter(None, map(abs, shift)):
        pad = np.zeros(m)
        mine = np.multiply.outer(mine, np.concatenate([noise, pad])).ravel()
        other = np.multiply.outer(other, np.concatenate([pad, noise])).ravel()
    return float(np.maximum(mine - math.exp(epsilon) * other, 0.0).sum())


def largest_delta(noise: Floats, cells: int, moved: int, epsilon: float) -> float:
    return max(true_delta(noise, shift, epsilon) for shift in shifts(cells, moved))


@pytest.mark.parametrize("moved", [2, 3, 4])
def test_one_client_moves_the_counts_of_all_columns_by_what_is_assumed(moved: int) -> None:
    """Two columns of two cells, all pairs of clients: L1, L2 and the largest move, attained."""
    table = np.array([[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1]])  # cell: its counts
    found = [
        table.T @ (np.array(one) - np.array(other))
        for one, other in itertools.product(histograms(4, moved), repeat=2)
    ]
    assert max(np.abs(m).sum() for m in found) == 4 * moved
    assert max(m @ m for m in found) == 4 * moved**2
    assert max(np.abs(m).max() for m in found) == moved


@pytest.mark.parametrize("moved", [1, 2, 3, 4])
def test_laplace_noise_hides_a_client(moved: int) -> None:
    """No outcome of three cells is e^epsilon times as likely; half the noise would not do."""
    noise = IntegerLaplaceMechanism.calibrated(Counts(contribution=moved), epsilon=0.8, delta=0.0)
    logs = np.log(masses(noise, 30))
    worst = 0.0
    for shift in shifts(3, moved):
        losses = [np.max(logs[abs(m) :] - logs[: len(logs) - abs(m)]) for m in shift]
        worst = max(worst, sum(losses))
    assert worst == pytest.approx(0.8, rel=1e-6)
    assert noise.sensitivity == 2 * moved
    half = IntegerLaplaceMechanism(scale=noise.scale / 2, coordinates=2, contribution=moved)
    assert half.epsilon(0.0) == pytest.approx(1.6)


@pytest.mark.parametrize("moved", [2, 3, 4])
def test_gaussian_noise_hides_a_client(moved: int) -> None:
    """All shifts of three cells, by summing all outcomes. Half the noise would not do."""
    epsilon, delta = 3.0, 1e-2
    noise = IntegerGaussianMechanism.calibrated(
        Counts(contribution=moved), epsilon=epsilon, delta=delta
    )
    assert isinstance(noise, IntegerGaussianMechanism)
    found = largest_delta(masses(noise, round(6 * noise.sigma)), 3, moved, epsilon)
    assert 0.2 * delta < found <= delta
    assert noise.epsilon(delta) <= epsilon
    half = IntegerGaussianMechanism(sigma=noise.sigma / 2, coordinates=2, contribution=moved)
    assert largest_delta(masses(half, round(8 * half.sigma)), 3, moved, epsilon) > 3 * delta
    assert half.epsilon(delta) > 2 * epsilon


@pytest.mark.parametrize("shares", [2, 9, 60])
@pytest.mark.parametrize("moved", [2, 3, 4])
def test_gaussian_noise_in_shares_hides_a_client(moved: int, shares: int) -> None:
    """All shifts of three cells under the summed noise. Half the noise would not do."""
    epsilon, delta = 3.0, 1e-2
    noise = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=shares, contribution=moved), epsilon=epsilon, delta=delta
    )
    reach = round(6 * noise.standard_deviation)
    found = largest_delta(centre(sum_probabilities(noise.sigma, shares), reach), 3, moved, epsilon)
    assert 0.15 * delta < found <= delta
    assert noise.epsilon(delta) <= epsilon
    fewer = SharedGaussianMechanism(
        on=SharedCounts(shares=max(1, shares // 4), contribution=moved), sigma=noise.sigma
    )
    few = centre(sum_probabilities(fewer.sigma, fewer.on.shares), reach)
    assert largest_delta(few, 3, moved, epsilon) > delta
    assert fewer.epsilon(delta) > epsilon


def centre(probabilities: Floats, reach: int) -> Floats:
    middle = len(probabilities) // 2
    return probabilities[max(0, middle - reach) : middle + reach + 1]


def cut_short(reach: int) -> Floats:
    """Noise that ends: the last outcomes happen in one of two worlds only."""
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / 2.0)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("moved", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, 4.0, 50.0])
def test_outcomes_of_one_world_only_are_a_certain_loss(moved: int, epsilon: float) -> None:
    """delta is never below that of any shift, nor below what gives a world away for certain."""
    noise = cut_short(12)
    found = client_counts_delta(noise, 2, moved)(epsilon)
    assert found >= largest_delta(noise, 3, moved, epsilon) > 0


@pytest.mark.parametrize(("coordinates", "moved"), [(2, 2), (2, 5), (6, 3)])
def test_beyond_all_losses_what_is_cut_is_left(coordinates: int, moved: int) -> None:
    """At most coordinates k counts move, each by at most k, with and without the shift."""
    noise = cut_short(12)
    expected = 2 * coordinates * moved * noise[-moved:].sum()
    found = client_counts_delta(noise, coordinates, moved)(1e4)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("sigma", "shares"), [(0.25, 400), (0.4, 60), (1.0, 9), (2.9, 2)])
def test_renyi_divergences_of_all_shifts_are_bounded(sigma: float, shares: int) -> None:
    """Shares that are mostly 0 add up to no Gaussian: the delta is above that of each shift."""
    noise = sum_probabilities(sigma, shares)
    for moved in (2, 4):
        delta_at = client_counts_delta(noise, 2, moved)
        for epsilon in (0.5, 2.0, 5.0):
            kept = centre(noise, 70)
            assert largest_delta(kept, 3, moved, epsilon) <= delta_at(epsilon)


def test_a_bound_from_the_largest_shift_alone_would_fail() -> None:
    """Noise on even numbers hides 2 records, not 1: every shift up to k must be looked at."""
    even = np.zeros(61)
    even[::2] = np.exp(-(np.arange(-30, 31, 2) ** 2) / 50)
    noise = np.maximum(even / even.sum(), 1e-12)
    assert client_counts_delta(noise, 2, 2)(1.0) > 0.9
    assert true_delta(noise, (2, -2), 1.0) < 0.1


def test_more_records_than_the_noise_reaches_are_not_hidden() -> None:
    noise = sum_probabilities(0.5, 3)
    assert client_counts_delta(noise, 2, 500)(5.0) == 1.0
    assert (
        SharedGaussianMechanism(on=SharedCounts(3, contribution=500), sigma=0.5).epsilon(DELTA)
        == math.inf
    )


def test_probabilities_of_sums_are_as_precise_as_assumed() -> None:
    """Against 40 digits: 128 shares, every outcome of more than 1e-45."""
    sigma = 0.6
    with mpmath.workdps(40):
        one = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * mpmath.mpf(sigma) ** 2)) for x in range(13)]
        total = one[0] + 2 * sum(one[1:])
        power = np.array([*one[:0:-1], *one], dtype=object) / total
        for _ in range(7):
            power = np.convolve(power, power)
            middle = len(power) // 2
            power = power[max(0, middle - 140) : middle + 141]
        found = sum_probabilities(sigma, 128)
        exact = power[len(power) // 2 - 110 : len(power) // 2 + 111]
        mine = found[len(found) // 2 - 110 : len(found) // 2 + 111]
        errors = [
            abs(mpmath.log(mpmath.mpf(float(a)) / b))
            for a, b in zip(mine, exact, strict=True)
            if b > 1e-45
        ]
    assert len(errors) > 180
    assert max(errors) < LOG_ROUND_OFF / 5


@pytest.mark.parametrize("coordinates", [2, 12])
@pytest.mark.parametrize("moved", [1, 7])
def test_laplace_noise_in_shares_counts_every_record(coordinates: int, moved: int) -> None:
    """L1 of coordinates times moved; and the sampler is as fine as for so many counts."""
    noise = SharedLaplaceMechanism.calibrated(
        SharedCounts(shares=50, coordinates=coordinates, contribution=moved),
        epsilon=0.9,
        delta=DELTA,
    )
    assert isinstance(noise, SharedLaplaceMechanism)
    assert noise.scale == pytest.approx(coordinates * moved / 0.9)
    assert noise.epsilon(DELTA) == pytest.approx(0.9)
    assert noise.sensitivity == coordinates * moved
    bits, epsilon = tail_bits(noise.scale, coordinates * moved), 0.9
    off = 2 * coordinates * moved * 50 * 2.0 ** (1 - bits)
    assert (1 + math.exp(epsilon)) * off < noise.proved_delta(DELTA)
    assert len(noise.draw_share(5, SecureNoise())) == 5


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("coordinates", [2, 40])
def test_one_record_is_a_client_of_one(kind: Any, coordinates: int) -> None:
    asked: dict[str, Any] = {"epsilon": 0.7, "delta": DELTA, "law": kind}
    one = Counts(coordinates, contribution=1)
    assert calibrate(one, **asked) == calibrate(Counts(coordinates), **asked)
    share = SharedCounts(30, coordinates, contribution=1)
    assert calibrate(share, **asked) == calibrate(SharedCounts(30, coordinates), **asked)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("moved", [2, 20])
def test_noise_grows_with_the_records_of_a_client(epsilon: float, moved: int) -> None:
    """Laplace: exactly. Gaussian: up to 9% more than k times, for not knowing the worst case."""
    one = IntegerLaplaceMechanism.calibrated(Counts(), epsilon=epsilon, delta=DELTA)
    many = IntegerLaplaceMechanism.calibrated(
        Counts(contribution=moved), epsilon=epsilon, delta=DELTA
    )
    assert isinstance(one, IntegerLaplaceMechanism)
    assert isinstance(many, IntegerLaplaceMechanism)
    assert many.scale == pytest.approx(moved * one.scale)
    one_normal = IntegerGaussianMechanism.calibrated(Counts(), epsilon=epsilon, delta=DELTA)
    normal = IntegerGaussianMechanism.calibrated(
        Counts(contribution=moved), epsilon=epsilon, delta=DELTA
    )
    assert 1.0 < normal.sigma / (moved * one_normal.sigma) < 1.09
    shared = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=200, contribution=moved), epsilon=epsilon, delta=DELTA
    )
    assert 0.99 < shared.standard_deviation / normal.sigma < 1.01
    assert shared.epsilon(DELTA) <= epsilon


@pytest.mark.parametrize("coordinates", [2, 4, 20, 80])
def test_the_smaller_noise_is_taken(coordinates: int) -> None:
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA}
    on, shared_on = Counts(coordinates, 20), SharedCounts(100, coordinates, 20)
    kinds = [calibrate(on, law=kind, **asked) for kind in ("laplace", "gaussian")]
    found = calibrate(on, **asked)
    assert found.standard_deviation == min(kind.standard_deviation for kind in kinds)
    shared = calibrate(shared_on, **asked)
    assert type(shared).__name__.removeprefix("Shared") == type(found).__name__.removeprefix(
        "Integer"
    )


CLIENT = IntegerGaussianMechanism.calibrated(Counts(contribution=20), epsilon=0.5, delta=DELTA)
OTHERS: list[Charge] = [
    LaplaceMechanism.calibrated(Numbers(), epsilon=0.2, delta=0.0),
    InverseSensitivityMechanism(epsilon=0.3),
    IntegerGaussianMechanism(sigma=40.0, coordinates=2),
    IntegerLaplaceMechanism.calibrated(Counts(contribution=20), epsilon=0.4, delta=0.0),
    IntegerGaussianMechanism.calibrated(
        Counts(coordinates=40, contribution=3), epsilon=0.1, delta=DELTA
    ),
]


def test_losses_known_by_rho_add_up() -> None:
    assert isinstance(CLIENT.loss, ConcentratedRelease)
    expected = concentrated_epsilon(10 * CLIENT.loss.rho, DELTA)
    assert total_epsilon([CLIENT] * 10, delta=DELTA) == pytest.approx(expected, rel=1e-9)
    assert total_epsilon([CLIENT], delta=DELTA) <= 0.5
    assert total_epsilon([CLIENT], delta=0.0) == math.inf
    assert 1.6 < total_epsilon([CLIENT] * 10, delta=DELTA) < 5.0


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_they_compose_with_every_other_loss(size: int) -> None:
    """At most the sum of all, at least each and at least all without one; in any order."""
    for chosen in itertools.combinations(OTHERS, size):
        charges = [CLIENT, *chosen]
        total = total_epsilon(charges, delta=DELTA)
        assert total == total_epsilon(charges[::-1], delta=DELTA)
        assert total <= basic_epsilon(charges, delta=DELTA) * (1 + 1e-9)
        for place in range(len(charges)):
            fewer = charges[:place] + charges[place + 1 :]
            assert total >= total_epsilon(fewer, delta=DELTA) * (1 - 1e-9)


def test_two_releases_cost_no_less_than_all_outcomes_say() -> None:
    """Two releases of one count that one client moves by 3: delta by definition."""
    one = IntegerGaussianMechanism(sigma=6.0, coordinates=1, contribution=3)
    epsilon = total_epsilon([one, one], delta=1e-3)
    noise = masses(one, 60)
    assert true_delta(noise, (3, 3), epsilon) <= 1e-3
    assert true_delta(noise, (3, 3), epsilon / 2) > 1e-3


@pytest.mark.parametrize("charge", [CLIENT, OTHERS[3]])
def test_a_ledger_writes_and_reads_it(charge: Charge) -> None:
    document = charge_to_dict(charge)
    assert document["contribution"] == 20
    assert charge_from_dict(document) == charge
    one_record = {name: value for name, value in document.items() if name != "contribution"}
    one = charge_from_dict(one_record)
    assert one.contribution == 1  # type: ignore[attr-defined]
    assert charge_to_dict(one) == one_record
    assert charge_from_dict(one_record | {"moved": 20}) == charge  # as it was called once


def test_draws_are_those_of_the_noise() -> None:
    drawn = CLIENT.add_to(np.zeros(4000), InsecureSeededNoise(1))
    assert np.std(drawn) == pytest.approx(CLIENT.sigma, rel=0.05)


@pytest.mark.parametrize(
    "make",
    [
        lambda: calibrate(Counts(contribution=0), epsilon=1.0, delta=DELTA),
        lambda: calibrate(Counts(contribution=1.5), epsilon=1.0, delta=DELTA, law="gaussian"),  # type: ignore[arg-type]
        lambda: calibrate(SharedCounts(shares=5, contribution=0), epsilon=1.0, delta=DELTA),
        lambda: calibrate(
            SharedCounts(shares=5, contribution=-1), epsilon=1.0, delta=DELTA, law="gaussian"
        ),
        lambda: SharedGaussianMechanism(on=SharedCounts(5, contribution=0), sigma=1.0),
        lambda: SharedLaplaceMechanism(on=SharedCounts(5, contribution=0), scale=1.0),
        lambda: charge_to_dict(IntegerGaussianMechanism(sigma=2.0, coordinates=2, contribution=0)),
        lambda: charge_to_dict(IntegerLaplaceMechanism(scale=2.0, coordinates=2, contribution=0)),
    ],
)
def test_bad_input_says_what_to_do(make: Any) -> None:
    with pytest.raises(InvalidInputError, match="contribution must be"):
        make()


def test_what_no_rho_gives_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="No Gaussian noise"):
        concentration_of(1e-9, 1e-30)
    assert (
        IntegerGaussianMechanism(sigma=50.0, coordinates=2, contribution=3).epsilon(1e-31)
        == math.inf
    )


@pytest.mark.parametrize("releases", [1, 2, 52])
def test_wide_shares_of_clients_compose_by_their_concentration(releases: int) -> None:
    """A year costs far less than the sum, and never less than its exact rho says."""
    share = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=50, contribution=20, failure=2.0**-40), epsilon=0.5, delta=1e-6
    )
    assert isinstance(share, SharedGaussianMechanism)
    charge = share.charge(1e-6)
    assert charge_from_dict(charge_to_dict(charge)) == charge
    total = total_epsilon([charge] * releases, delta=1e-6)
    variance = share.on.shares * share.sigma**2
    rho = releases * 2 * 20**2 / (2 * variance)
    assert total >= concentrated_epsilon(rho, 1e-6 - releases * 2.0**-40)
    assert total <= 1.001 * 0.5 * math.sqrt(releases) * (1.0 if releases == 1 else 1.3)
    if releases > 2:
        assert total < 0.3 * releases * 0.5


def test_a_total_beyond_all_delta_is_refused() -> None:
    """Failures add up: a million of them leave nothing of delta."""
    share = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=50, contribution=20, failure=1e-7), epsilon=0.5, delta=1e-6
    )
    assert total_epsilon([share.charge(1e-6)] * 11, delta=1e-6) == math.inf


def test_narrow_shares_are_charged_by_epsilon_and_delta() -> None:
    share = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=5000, contribution=2), epsilon=1.0, delta=1e-6
    )
    assert isinstance(share, SharedGaussianMechanism)
    assert share.sigma < 3
    assert isinstance(share.charge(1e-6), AccountedRelease)
