"""Discrete Gaussian noise on counts."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.gaussian_account import gaussian_sigma
from fedprikl.privacy.integer_account import check_accounted_delta, integer_gaussian_epsilon
from fedprikl.privacy.losses import IntegerGaussianLoss
from fedprikl.privacy.mechanism import AdditiveMechanism, register_mechanism
from fedprikl.privacy.noise import NoiseSource

__all__ = ["IntegerGaussianMechanism", "calibrate_integer_gaussian"]

# The exact account of integer noise sums over its values: 24 sigma of them.
SIGMA_RANGE = (0.1, 2e4)


@register_mechanism("integer_gaussian")
@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGaussianMechanism(AdditiveMechanism):
    """Counts plus discrete Gaussian noise; one record moves `coordinates` of them by 1 each.

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

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return math.sqrt(self.coordinates)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count (the discrete Gaussian's parameter, to many digits)."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the discrete noise, rounded up (pessimistic).

        Infinite for a delta below 1e-30, where nothing is accounted.
        """
        return integer_gaussian_epsilon(self.sigma, self.coordinates, check_delta(delta))

    def proved_delta(self, delta: float) -> float:
        """delta: Gaussian noise needs all of it."""
        return delta

    @property
    def loss(self) -> IntegerGaussianLoss:
        """What the accountant composes."""
        return IntegerGaussianLoss(self.sigma, self.coordinates)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        low, high = SIGMA_RANGE
        if not low <= check_finite(self.sigma, "sigma") <= high:
            raise InvalidInputError(
                f"Integer noise is accounted for a sigma from {low:g} to {high:g}, got "
                f"{self.sigma:g}. Below there is no privacy; above, use Gaussian noise."
            )
        check_positive_int(self.coordinates, "coordinates")

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
    *, epsilon: float, delta: float, coordinates: int = 2
) -> IntegerGaussianMechanism:
    """Integer noise on counts that gives (epsilon, delta).

    Starts at the continuous Gaussian and grows until the exact account holds: at once, unless
    sigma is below 1, where whole numbers are coarse.
    """
    check_positive_int(coordinates, "coordinates")
    check_epsilon(epsilon)
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
