"""Discrete Gaussian noise on counts."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.gaussian_account import gaussian_sigma
from fedprikl.privacy.integer_account import (
    SMALLEST_DELTA,
    check_accounted_delta,
    integer_gaussian_epsilon,
)
from fedprikl.privacy.losses import ConcentratedLoss, IntegerGaussianLoss
from fedprikl.privacy.mechanism import LATER, AdditiveMechanism, register_mechanism
from fedprikl.privacy.noise import NoiseSource
from fedprikl.privacy.renyi import concentration_of

__all__ = ["IntegerGaussianMechanism", "calibrate_integer_gaussian"]

# The exact account of integer noise sums over its values: 24 sigma of them.
SIGMA_RANGE = (0.1, 2e4)  # per moved record
ROUNDING = 1 + 1e-12  # of the way from rho to sigma and back


@register_mechanism("integer_gaussian")
@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGaussianMechanism(AdditiveMechanism):
    """Counts plus discrete Gaussian noise; one record moves `coordinates` of them by 1 each.

    A protected client has `moved` records, which move the counts by at most moved sqrt(coordinates)
    in L2: zCDP of rho = coordinates moved^2 / (2 sigma^2), whichever counts they move.

        P(noise = k)  proportional to  exp(-k^2 / (2 sigma^2))

    Canonne, Kamath and Steinke (2020). OpenDP's sampler is exact.

    >>> mechanism = calibrate_integer_gaussian(epsilon=1.0, delta=1e-6)
    >>> print(mechanism)
    integer Gaussian noise of standard deviation 5.977 on each count
    >>> mechanism.epsilon(1e-6) <= 1.0
    True
    """

    sigma: float
    coordinates: int  # 2 if two asked cells can change, 1 if only one is asked
    moved: int = field(default=1, metadata=LATER)  # records of whoever is protected

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return self.moved * math.sqrt(self.coordinates)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count (the discrete Gaussian's parameter, to many digits)."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the discrete noise, rounded up (pessimistic).

        From its rho where several records move. Infinite for a delta below 1e-30, where nothing is
        accounted.
        """
        if self.moved > 1:
            return self.loss.alone(delta) if check_delta(delta) >= SMALLEST_DELTA else math.inf
        return integer_gaussian_epsilon(self.sigma, self.coordinates, check_delta(delta))

    def proved_delta(self, delta: float) -> float:
        """delta: Gaussian noise needs all of it."""
        return delta

    @property
    def loss(self) -> IntegerGaussianLoss | ConcentratedLoss:
        """What the accountant composes."""
        if self.moved > 1:
            return ConcentratedLoss((self.sensitivity / self.sigma) ** 2 / 2)
        return IntegerGaussianLoss(self.sigma, self.coordinates)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_positive_int(self.coordinates, "coordinates")
        low, high = (check_positive_int(self.moved, "moved") * end for end in SIGMA_RANGE)
        if not low <= check_finite(self.sigma, "sigma") <= high:
            raise InvalidInputError(
                f"Integer noise is accounted for a sigma from {low:g} to {high:g}, got "
                f"{self.sigma:g}. Below there is no privacy; above, use Gaussian noise."
            )

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each count with independent noise; whole numbers, as floats."""
        return source.integer_gaussian(values, sigma=self.sigma).astype(np.float64)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        above = _survival_table(self.sigma)
        reach = len(above) // 2
        place = np.clip(np.floor(x), -reach - 1, reach).astype(np.int64)
        return np.where(place < -reach, 1.0, above[place + reach])

    def __str__(self) -> str:
        return f"integer Gaussian noise of standard deviation {self.sigma:.4g} on each count"


@lru_cache(maxsize=256)
def calibrate_integer_gaussian(
    *, epsilon: float, delta: float, coordinates: int = 2, moved: int = 1
) -> IntegerGaussianMechanism:
    """Integer noise on counts that gives (epsilon, delta).

    Where several records move, by its rho. Else it starts at the continuous Gaussian and grows
    until the exact account holds: at once, unless sigma is below 1, where whole numbers are coarse.
    """
    check_positive_int(coordinates, "coordinates")
    check_epsilon(epsilon)
    if check_positive_int(moved, "moved") > 1:
        rho = concentration_of(epsilon, check_accounted_delta(delta))
        sigma = moved * math.sqrt(coordinates / (2 * rho)) * ROUNDING
        return IntegerGaussianMechanism(sigma=sigma, coordinates=coordinates, moved=moved)
    sigma = math.sqrt(coordinates) * gaussian_sigma(epsilon, check_accounted_delta(delta))
    while True:
        mechanism = IntegerGaussianMechanism(sigma=sigma, coordinates=coordinates)
        reached = mechanism.epsilon(delta)
        if reached <= epsilon:
            return mechanism
        sigma *= max(reached / epsilon, 1 + 1e-6)


@lru_cache(maxsize=64)
def _survival_table(sigma: float) -> Floats:
    """P(noise > k) for k from -reach to reach; e^-72 of the noise lies beyond 12 sigma."""
    reach = math.ceil(12 * sigma) + 1
    weights = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
    at_least = np.cumsum(weights[::-1])[::-1]
    above: Floats = np.append(at_least[1:], 0.0) / at_least[0]
    return above
