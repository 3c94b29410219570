"""Deltas down to the smallest accepted one, against a brute force in 60 digits."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.privacy import (
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    LaplaceMechanism,
    Numbers,
    SharedCounts,
    calibrate,
    total_epsilon,
)
from fedprikl.privacy.accounting import SMALLEST_DELTA
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource
from fedprikl.privacy.shares import SAMPLER_DELTA, SharedGaussianMechanism, SharedLaplaceMechanism

pytestmark = pytest.mark.slow

DELTAS = [1e-6, 1e-12, 1e-16, 1e-20, SMALLEST_DELTA]
GRAPH_FAILURE = 2.0**-40
mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def digits() -> Any:
    with mpmath.workdps(60):
        yield


@cache
def one_noise(sigma: float) -> Mapping[int, Any]:
    reach = math.ceil(14 * sigma) + 3
    weights = {x: mpmath.exp(-mpf(x * x) / (2 * mpf(sigma) ** 2)) for x in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}


@cache
def summed(sigma: float, shares: int, cut: int | None = None) -> Mapping[int, Any]:
    """The law of a sum of shares, each cut off at +-`cut`."""
    one: dict[int, Any] = {}
    for x, mass in one_noise(sigma).items():
        place = x if cut is None else max(-cut, min(cut, x))
        one[place] = one.get(place, mpf(0)) + mass
    law: dict[int, Any] = {0: mpf(1)}
    for _ in range(shares):
        more: dict[int, Any] = {}
        for x, mass in law.items():
            for y, other in one.items():
                more[x + y] = more.get(x + y, mpf(0)) + mass * other
        law = {x: mass for x, mass in more.items() if mass > mpf("1e-50")}
    return law


def true_delta(law: Mapping[int, Any], coordinates: int, epsilon: Any) -> Any:
    """The definition: max(0, P - e^epsilon Q) over all outcomes; every count is moved by 1."""
    growth = mpmath.exp(mpf(epsilon))
    ones = [(mass, growth * law.get(x + 1, mpf(0))) for x, mass in law.items()]
    if coordinates == 1:
        return mpmath.fsum(p - q for p, q in ones if p > q)
    others = [(mass, law.get(y + 1, mpf(0))) for y, mass in law.items()]
    total = mpf(0)
    for p, q in ones:
        for r, s in others:
            if p * r > q * s:
                total += p * r - q * s
    return total


def is_right(law: Mapping[int, Any], coordinates: int, epsilon: float, delta: float) -> bool:
    """Not below the truth, and at most a millionth above it."""
    enough = true_delta(law, coordinates, epsilon) <= mpf(delta)
    wasteful = true_delta(law, coordinates, mpf(epsilon) * (1 - mpf("1e-6"))) <= mpf(delta)
    return bool(enough and not wasteful)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(
    ("sigma", "coordinates"), [(0.3, 1), (0.4, 2), (1.3, 2), (2.0, 2), (4.0, 2), (30.0, 1)]
)
def test_integer_noise(sigma: float, coordinates: int, delta: float) -> None:
    found = IntegerGaussianMechanism(sigma=sigma, coordinates=coordinates).epsilon(delta)
    assert is_right(one_noise(sigma), coordinates, found, delta)


def test_the_check_sees_what_an_fft_gives() -> None:
    """5.877 comes from losses convolved by FFT, where 6.593 is true."""
    law = one_noise(2.0)
    assert IntegerGaussianMechanism(sigma=2.0, coordinates=2).epsilon(1e-20) == pytest.approx(
        6.5926864, abs=1e-6
    )
    assert not is_right(law, 2, 5.877, 1e-20)
    assert not is_right(law, 2, 6.5927, 1e-20)  # nor may it be wasteful


@pytest.mark.parametrize("sigma", [0.5, 1.1, 4.0])
@pytest.mark.parametrize("coordinates", [3, 5])
def test_more_counts_than_two(sigma: float, coordinates: int) -> None:
    """The loss is linear in the sum of the noises, so their convolved law is enough."""
    found = IntegerGaussianMechanism(sigma=sigma, coordinates=coordinates).epsilon(1e-25)
    law = summed(sigma, coordinates)

    def delta_of(epsilon: Any) -> Any:
        losses = ((mass, (x + mpf(coordinates) / 2) / mpf(sigma) ** 2) for x, mass in law.items())
        return mpmath.fsum(
            mass * (1 - mpmath.exp(epsilon - loss)) for mass, loss in losses if loss > epsilon
        )

    assert delta_of(mpf(found)) <= mpf(1e-25) < delta_of(mpf(found) * (1 - mpf("1e-6")))


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("sigma", "shares"), [(0.3, 5), (0.5, 12), (1.0, 3)])
def test_noise_in_shares(sigma: float, shares: int, delta: float) -> None:
    found = SharedGaussianMechanism(on=SharedCounts(shares=shares), sigma=sigma).epsilon(delta)
    assert is_right(summed(sigma, shares), 2, found, delta)


@pytest.mark.parametrize("delta", [1e-16, SMALLEST_DELTA])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_calibrated_noise_gives_what_was_asked_for(epsilon: float, delta: float) -> None:
    integer = IntegerGaussianMechanism.calibrated(Counts(), epsilon=epsilon, delta=delta)
    shared = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=9), epsilon=epsilon, delta=delta
    )
    assert epsilon * 0.9 < integer.epsilon(delta) <= epsilon
    assert epsilon * 0.999 < shared.epsilon(delta) <= epsilon
    assert not shared.epsilon(delta * 0.99) <= epsilon * 0.999


def gaussian_profile(mu: Any, epsilon: Any) -> Any:
    """Of Balle and Wang 2018."""
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
        -mu / 2 - epsilon / mu
    )


@pytest.mark.parametrize("delta", [1e-12, 1e-16, 1e-20, 1e-30])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 40.0, 1e4, 1e6, 1e8])
def test_the_analytic_gaussian(sigma: float, delta: float) -> None:
    """Its two tails nearly cancel where sigma is large; alone, calibrated and composed."""
    mu = (1 + mpf(GRID_SLACK)) / mpf(sigma)
    found = GaussianMechanism(sigma=sigma, sensitivity=1.0).epsilon(delta)
    nearly = mpf(found) * (1 - mpf("1e-6" if sigma <= 1e6 else "1e-4"))
    assert gaussian_profile(mu, mpf(found)) <= mpf(delta) < gaussian_profile(mu, nearly)
    four = total_epsilon([GaussianMechanism(sigma=2 * sigma, sensitivity=1.0)] * 4, delta=delta)
    assert gaussian_profile(mu, mpf(four)) <= mpf(delta)
    noise = GaussianMechanism.calibrated(Numbers(), epsilon=found, delta=delta).sigma
    assert gaussian_profile((1 + mpf(GRID_SLACK)) / mpf(noise), mpf(found)) <= mpf(delta)


def test_gaussian_noise_is_not_accounted_for_below_the_smallest_delta() -> None:
    assert GaussianMechanism(sigma=2.0, sensitivity=1.0).epsilon(1e-31) == math.inf
    with pytest.raises(InvalidInputError, match="Raise delta, or use Laplace noise"):
        GaussianMechanism.calibrated(Numbers(), epsilon=1.0, delta=1e-31)
    auto = calibrate(Numbers(), epsilon=1.0, delta=1e-31)
    assert isinstance(auto, LaplaceMechanism)


@pytest.mark.parametrize("delta", [1e-9, 1e-11, 5e-12, 1e-12, 1e-20])
def test_composed_integer_noise_is_never_below_the_truth(delta: float) -> None:
    """Losses are convolved by FFT there; where delta cannot pay for its error, it says infinite."""
    release = IntegerGaussianMechanism(sigma=2.0, coordinates=2)
    total = total_epsilon([release] * 3, delta=delta)
    assert total >= IntegerGaussianMechanism(sigma=2.0, coordinates=6).epsilon(delta)
    assert (total == math.inf) == (delta <= 1e-12)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_cutting_off_the_shares_is_paid_for(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 3 sigma instead of 16, so that it costs something: what is drawn is cut off, and what is
    stated covers it, but what the uncut noise would give does not.
    """
    uncut = SharedGaussianMechanism(on=SharedCounts(shares=2), sigma=sigma)
    uncut_epsilon = uncut.epsilon(0.1)
    monkeypatch.setattr("fedprikl.privacy.shares._reach", lambda sigma: math.ceil(3 * sigma))
    cut = SharedGaussianMechanism(
        on=SharedCounts(shares=2), sigma=sigma * (1 + 1e-12)
    )  # not in any cache
    law = summed(sigma, 2, cut.reach)
    assert cut.epsilon(0.1) > uncut_epsilon
    assert true_delta(law, 2, cut.epsilon(0.1)) <= 0.1


def test_shares_are_cut_off_where_even_the_smallest_delta_can_pay() -> None:
    mechanism = SharedGaussianMechanism.calibrated(
        SharedCounts(shares=5000), epsilon=1.0, delta=SMALLEST_DELTA
    )
    assert mechanism.reach == 16
    one = SharedGaussianMechanism(on=SharedCounts(shares=1), sigma=3.0)
    assert one.reach == 48
    tail = 2 * mpmath.fsum(mpmath.exp(-mpf(x * x) / 18) for x in range(49, 100))
    assert 5000 * tail < SMALLEST_DELTA / 1e15

    class Far(NoiseSource):
        def integer_gaussian(self, values: Any, *, sigma: float) -> Any:  # noqa: ARG002
            return np.full(len(values), 10**6)

    assert one.draw_share(2, Far()).tolist() == [48, 48]  # type: ignore[abstract]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_failure_of_a_sparse_graph_is_part_of_delta(kind: Any) -> None:
    plain = calibrate(SharedCounts(shares=10), epsilon=1.0, delta=1e-6, law=kind)
    sparse = calibrate(
        SharedCounts(shares=10, failure=GRAPH_FAILURE), epsilon=1.0, delta=1e-6, law=kind
    )
    assert plain.on.failure == 0
    assert sparse.on.failure == GRAPH_FAILURE
    assert sparse.epsilon(1e-6) <= 1.0
    assert sparse.epsilon(GRAPH_FAILURE) == math.inf
    assert sparse.proved_delta(1e-6) >= GRAPH_FAILURE
    assert plain.epsilon(GRAPH_FAILURE) < math.inf


def test_laplace_shares_prove_the_sampler_and_the_failure() -> None:
    sparse = calibrate(SharedCounts(shares=10, failure=GRAPH_FAILURE), epsilon=1.0, delta=1e-6)
    assert isinstance(sparse, SharedLaplaceMechanism)
    assert sparse.charge(1e-6).proved_delta == SAMPLER_DELTA + GRAPH_FAILURE
    just = SAMPLER_DELTA + GRAPH_FAILURE
    assert sparse.epsilon(just) == pytest.approx(1.0)
    assert sparse.epsilon(just * (1 - 1e-15)) == math.inf


def test_gaussian_shares_carry_more_noise_for_it() -> None:
    """With a delta of twice the failure, only half of it is left for the noise."""
    make, on = SharedGaussianMechanism.calibrated, SharedCounts(shares=10)
    failing = SharedCounts(shares=10, failure=GRAPH_FAILURE)
    sparse = make(failing, epsilon=1.0, delta=2 * GRAPH_FAILURE)
    half = make(on, epsilon=1.0, delta=GRAPH_FAILURE)
    assert sparse.sigma == half.sigma
    assert sparse.epsilon(2 * GRAPH_FAILURE) == half.epsilon(GRAPH_FAILURE)
    assert half.sigma > make(on, epsilon=1.0, delta=2 * GRAPH_FAILURE).sigma


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: calibrate(Counts(), epsilon=1, delta=9e-31, law="gaussian"),
            "down to a delta of 1e-30",
        ),
        (
            lambda: calibrate(SharedCounts(shares=3), epsilon=1, delta=9e-31, law="gaussian"),
            "down to a delta of 1e-30",
        ),
        (
            lambda: calibrate(
                SharedCounts(shares=3, failure=GRAPH_FAILURE), epsilon=1, delta=1e-13
            ),
            "less than its cohort",
        ),
        (
            lambda: calibrate(SharedCounts(shares=3, failure=-1e-9), epsilon=1, delta=1e-6),
            "failure must be",
        ),
        (
            lambda: SharedLaplaceMechanism(on=SharedCounts(shares=3, failure=1.0), scale=2.0),
            "failure must be",
        ),
        (
            lambda: SharedGaussianMechanism(on=SharedCounts(shares=3, failure=1.0), sigma=2.0),
            "failure must be",
        ),
    ],
)
def test_what_cannot_be_accounted_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()


def test_below_the_smallest_delta_nothing_is_claimed() -> None:
    assert IntegerGaussianMechanism(sigma=2.0, coordinates=2).epsilon(9e-31) == math.inf
    assert SharedGaussianMechanism(on=SharedCounts(shares=2), sigma=2.0).epsilon(9e-31) == math.inf
