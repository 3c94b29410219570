"""Composition: what several releases about the same people give together.

Never less than the truth: exact where a closed form is known, rounded up (pessimistic) elsewhere.
The noise of every release must have been chosen without looking at the results of earlier ones
(what is asked may depend on them); see docs/ledger.md.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fedprikl.checks import check_epsilon
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.calibration import (
    GRID_SLACK,
    SAFETY,
    GaussianMechanism,
    IntegerGaussianMechanism,
    LaplaceMechanism,
    Mechanism,
    calibrate_gaussian,
    calibrate_laplace,
    gaussian_epsilon,
)
from fedprikl.privacy.charges import AccountedRelease, Charge, check_charge, check_zero_or_delta
from fedprikl.privacy.libraries import loss_distributions

__all__ = ["basic_epsilon", "largest_fitting_epsilon", "total_epsilon"]

GRID_POINTS = 8192  # of the discretised privacy loss, over the range of the expected total
LARGEST = 500.0  # beyond, e^epsilon nears the end of the floats: no privacy left to account for
FFT_ERROR = 1e-12  # of delta, per convolution; observed below 1e-14


def total_epsilon(charges: Iterable[Charge], *, delta: float) -> float:
    """The epsilon at `delta` of all charges together, against the same record.

    Gaussian only: exact, mu^2 = sum (Delta/sigma)^2. With Laplace or integer noise: the smaller of
    the convolved privacy loss distributions (dp-accounting, pessimistic) and basic composition.
    An `AccountedRelease` adds its epsilon, and takes its delta from what the rest may use.
    Infinite if no finite epsilon holds at this delta.
    """
    checked = [check_charge(charge) for charge in charges]
    accounted = [charge for charge in checked if isinstance(charge, AccountedRelease)]
    known = [charge for charge in checked if not isinstance(charge, AccountedRelease)]
    left = check_zero_or_delta(delta) - math.fsum(charge.proved_delta for charge in accounted)
    if left < -1e-12 * delta:  # more than rounding
        return math.inf
    spent = math.fsum(charge.proved_epsilon for charge in accounted)
    return spent + _known_epsilon(tuple(sorted(known, key=repr)), max(left, 0.0))


def basic_epsilon(charges: Iterable[Charge], *, delta: float) -> float:
    """The sum of all epsilons, delta shared out equally among those that need one.

    Looser than `total_epsilon`; kept as an independent bound that a reader can check by hand.
    """
    checked = [check_charge(charge) for charge in charges]
    pure = [c.epsilon() for c in checked if isinstance(c, LaplaceMechanism)]
    accounted = [c for c in checked if isinstance(c, AccountedRelease)]
    left = check_zero_or_delta(delta) - math.fsum(c.proved_delta for c in accounted)
    noisy = [c for c in checked if isinstance(c, GaussianMechanism | IntegerGaussianMechanism)]
    if left < 0 or (noisy and left == 0):
        return math.inf
    shares = [total_epsilon([c], delta=left / len(noisy)) for c in noisy]
    return math.fsum([*pure, *(c.proved_epsilon for c in accounted), *shares])


def largest_fitting_epsilon(
    charges: Sequence[Charge],
    *,
    epsilon: float,
    delta: float,
    kind: Literal["laplace", "gaussian"],
) -> float:
    """The largest epsilon (at `delta`) of one more release that keeps the total within `epsilon`.

    Rounded down to three digits, so that it can be typed in and fits; 0 if nothing does.
    """
    check_epsilon(epsilon)

    def fits(candidate: float) -> bool:
        more = _release(kind, epsilon=candidate, delta=delta)
        return total_epsilon([*charges, more], delta=delta) <= epsilon

    if kind == "gaussian" and delta == 0:
        return 0.0
    low, high = 0.0, epsilon
    if fits(high):
        return high
    while high - low > 1e-3 * high and high > 1e-6 * epsilon:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    typed = _round_down(low)
    return typed if typed > 0 and fits(typed) else 0.0


def _release(kind: str, *, epsilon: float, delta: float) -> Mechanism:
    if kind == "laplace":
        return calibrate_laplace(epsilon=epsilon, sensitivity=1.0)
    if kind == "gaussian":
        return calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=1.0)
    raise InvalidInputError(f"`kind` must be 'laplace' or 'gaussian', got {kind!r}.")


def _round_down(value: float, digits: int = 3) -> float:
    if value <= 0:
        return 0.0
    unit = digits - 1 - math.floor(math.log10(value))
    return float(f"{math.floor(value * 10.0**unit)}e{-unit}")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Releases by kind. All Gaussian ones are one: a Gaussian release of ratio mu."""

    laplace: Counter[float]  # epsilon: how many
    mu: float
    integer: Counter[float]  # sigma: how many counts moved by 1

    @classmethod
    def of(cls, mechanisms: Iterable[Mechanism]) -> "_Parts":
        laplace: Counter[float] = Counter()
        integer: Counter[float] = Counter()
        ratios = []
        for mechanism in mechanisms:
            if isinstance(mechanism, LaplaceMechanism):
                laplace[mechanism.epsilon()] += 1
            elif isinstance(mechanism, GaussianMechanism):
                ratios.append((mechanism.sensitivity + GRID_SLACK) / mechanism.sigma)
            else:
                integer[mechanism.sigma] += mechanism.coordinates
        return cls(laplace, math.hypot(*ratios), integer)

    @property
    def laplace_sum(self) -> float:
        return math.fsum(self.laplace.elements())

    def expected_total(self, delta: float) -> float:
        """A rough size of the total, to scale the grid: as if every loss were normal."""
        integer = math.fsum(count / sigma**2 for sigma, count in self.integer.items())
        gaussian = self.mu * self.mu + integer
        laplace = math.fsum(count * epsilon * epsilon for epsilon, count in self.laplace.items())
        return min(
            _normal_tail(gaussian + laplace, delta),
            _normal_tail(gaussian, delta) + self.laplace_sum,
        )


def _normal_tail(variance: float, delta: float) -> float:
    return math.sqrt(2 * variance * math.log(1 / delta)) + variance / 2


@lru_cache(maxsize=512)
def _known_epsilon(mechanisms: tuple[Mechanism, ...], delta: float) -> float:
    parts = _Parts.of(mechanisms)
    if len(mechanisms) == 1:
        return _single_epsilon(mechanisms[0], parts.mu, delta)
    basic = parts.laplace_sum + _without_laplace(parts, delta)
    if not parts.laplace:
        return basic
    # One Laplace release alone counts its whole epsilon (2 delta above the truth); more of them
    # must not count less.
    return min(basic, max(_pld_epsilon(parts, delta), *parts.laplace))


def _single_epsilon(mechanism: Mechanism, mu: float, delta: float) -> float:
    """What its own account says: a release calibrated to the whole budget fits into it."""
    if isinstance(mechanism, LaplaceMechanism):
        return mechanism.epsilon()
    if isinstance(mechanism, GaussianMechanism):
        return _gaussian_profile(mu, delta)
    return mechanism.epsilon(delta) if delta > 0 else math.inf


def _without_laplace(parts: _Parts, delta: float) -> float:
    if parts.integer:
        return _pld_epsilon(_Parts(Counter(), parts.mu, parts.integer), delta)
    if parts.mu == 0:
        return 0.0
    return _gaussian_profile(parts.mu, delta) * SAFETY + 1e-12  # the root finding's tolerance


def _gaussian_profile(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian release of ratio mu = Delta/sigma."""
    if mu <= delta * 2.5:  # delta(0) = 2 Phi(mu/2) - 1 < 0.4 mu
        return 0.0
    if delta == 0 or mu > 1e4:
        return math.inf
    return gaussian_epsilon(1 / mu, delta)


def _pld_epsilon(parts: _Parts, delta: float) -> float:
    """The epsilon from the convolved privacy loss distributions, rounded up (pessimistic).

    The grid is a power of 2, scaled to the expected total: a longer list of releases gets the same
    or a coarser grid inside it, so that the total does not fall. Laplace releases smaller than one
    step are added up instead.
    """
    pieces = len(parts.laplace) + len(parts.integer) + (parts.mu > 0)
    usable = delta - FFT_ERROR * 2 * pieces
    if usable <= delta / 2:
        return math.inf
    expected = parts.expected_total(delta)
    if not 1e-9 < expected < LARGEST:
        return math.inf
    step = 2.0 ** math.floor(math.log2(expected / GRID_POINTS))
    laplace: Counter[float] = Counter()
    for epsilon, count in parts.laplace.items():
        laplace[_round_up(epsilon)] += count
    tiny = {epsilon: count for epsilon, count in laplace.items() if epsilon < step}
    losses = [
        _repeat(_laplace_loss(epsilon, step), count)
        for epsilon, count in laplace.items()
        if epsilon >= step
    ]
    losses += [_repeat(_integer_loss(sigma, step), n) for sigma, n in parts.integer.items()]
    if parts.mu > 0:
        losses.append(_gaussian_loss(max(parts.mu, step / 1024), step))  # the library squares 1/mu
    added = math.fsum(count * epsilon for epsilon, count in tiny.items())
    return float(_compose_all(losses).get_epsilon_for_delta(usable)) * SAFETY + added


def _round_up(epsilon: float) -> float:
    """To 20 bits: rounds of one epsilon and different sensitivities differ in the last bit, and
    equal ones are convolved together.
    """
    mantissa, exponent = math.frexp(epsilon)
    return math.ldexp(math.ceil(mantissa * 2**20), exponent - 20)


def _repeat(loss: Any, count: int) -> Any:
    return loss if count == 1 else loss.self_compose(count)


def _compose_all(losses: list[Any]) -> Any:
    """In pairs of like size: the cost grows as n log n in the number of different releases."""
    while len(losses) > 1:
        pairs = zip(losses[::2], losses[1::2], strict=False)
        odd = losses[-1:] if len(losses) % 2 else []
        losses = [left.compose(right) for left, right in pairs] + odd
    return losses[0]


@lru_cache(maxsize=256)
def _laplace_loss(epsilon: float, step: float) -> Any:
    """Of continuous Laplace noise; GRID_SLACK, inside epsilon, covers the sampler's grid: shifted
    by k steps, its discrete noise loses no more than the continuous one shifted by k + 1.
    """
    return loss_distributions().from_laplace_mechanism(
        1 / epsilon, value_discretization_interval=step
    )


@lru_cache(maxsize=64)
def _gaussian_loss(mu: float, step: float) -> Any:
    return loss_distributions().from_gaussian_mechanism(1 / mu, value_discretization_interval=step)


@lru_cache(maxsize=64)
def _integer_loss(sigma: float, step: float) -> Any:
    return loss_distributions().from_discrete_gaussian_mechanism(
        sigma, value_discretization_interval=step
    )
