"""Discrete Laplace and Gaussian noise on counts."""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import (
    SMALLEST_DELTA,
    check_accounted_delta,
    concentration_of,
    gaussian_sigma,
    integer_gaussian_epsilon,
)
from fedprikl.privacy.calibrated import NoiseKind
from fedprikl.privacy.losses import ConcentratedLoss, IntegerGaussianLoss, PureLoss, repeat
from fedprikl.privacy.mechanism import LATER, AdditiveMechanism, check_noise, register_mechanism
from fedprikl.privacy.noise import NoiseSource

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


@dataclass(frozen=True)
class IntegerLaplaceLoss(PureLoss):
    """Each of `coordinates` counts loses epsilon / coordinates or gains as much: independently."""

    coordinates: int = 1

    def distribution(self, step: float) -> Any:
        """dp-accounting's privacy loss distribution on a grid of this step, rounded up."""
        return repeat(
            PureLoss(self.epsilon / self.coordinates).distribution(step), self.coordinates
        )


@register_mechanism("integer_laplace")
@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerLaplaceMechanism(AdditiveMechanism):
    """Counts plus discrete Laplace noise; one record moves `coordinates` of them by 1 each.

    A protected client has `moved` records: coordinates moved in L1, whichever counts they move.

        P(noise = k)  proportional to  exp(-|k| / scale)

    Pure: delta is 0. Ghosh, Roughgarden and Sundararajan (2009). OpenDP's sampler is exact.

    >>> mechanism = calibrate_integer_laplace(epsilon=1.0)
    >>> print(mechanism)
    discrete Laplace noise of scale 2 on each count
    >>> round(mechanism.standard_deviation, 3)
    2.799
    """

    scale: float  # b
    coordinates: int  # 2 if two asked cells can change, 1 if only one is asked
    moved: int = field(default=1, metadata=LATER)  # records of whoever is protected

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count: a little under sqrt(2) b."""
        return math.sqrt(laplace_variance(self.scale))

    @property
    def sensitivity(self) -> float:
        """L1, over all counts."""
        return float(self.coordinates * self.moved)

    def epsilon(self, delta: float = 0.0) -> float:  # noqa: ARG002  holds for every delta
        """coordinates moved / b, for every delta."""
        return math.nextafter(self.coordinates * self.moved / self.scale, math.inf)

    def proved_delta(self, delta: float) -> float:  # noqa: ARG002  pure
        """0: the guarantee is pure."""
        return 0.0

    @property
    def loss(self) -> PureLoss:
        """What the accountant composes. Many records may move one count: no more than pure."""
        if self.moved > 1:
            return PureLoss(self.epsilon())
        return IntegerLaplaceLoss(self.epsilon(), self.coordinates)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.scale, "scale")
        check_positive_int(self.coordinates, "coordinates")
        check_positive_int(self.moved, "moved")

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each count with independent noise; whole numbers, as floats."""
        return source.integer_laplace(values, scale=self.scale).astype(np.float64)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x) = p^k / (1 + p) for k = floor(x) + 1 >= 1, with p = exp(-1 / scale)."""
        k = np.floor(x) + 1
        tail = np.exp(-np.where(k >= 1, k, 1 - k) / self.scale) / (1 + math.exp(-1 / self.scale))
        return np.where(k >= 1, tail, 1 - tail)

    def __str__(self) -> str:
        return f"discrete Laplace noise of scale {self.scale:.4g} on each count"


def calibrate_integer_laplace(
    *, epsilon: float, coordinates: int = 2, moved: int = 1
) -> IntegerLaplaceMechanism:
    """Discrete Laplace noise of scale coordinates moved / epsilon: (epsilon, 0)-DP."""
    changes = check_positive_int(coordinates, "coordinates") * check_positive_int(moved, "moved")
    return IntegerLaplaceMechanism(
        scale=changes * ROUNDING / check_epsilon(epsilon), coordinates=coordinates, moved=moved
    )


def calibrate_integer(
    *,
    epsilon: float,
    delta: float,
    coordinates: int = 2,
    kind: NoiseKind = "auto",
    moved: int = 1,
) -> IntegerLaplaceMechanism | IntegerGaussianMechanism:
    """The least integer noise on counts: Laplace or Gaussian, whichever is smaller ("auto").

    `coordinates`: how many counts one record can move, by 1 each. `moved`: the records of whoever
    is protected; 1, or those of a client.

    >>> print(calibrate_integer(epsilon=1.0, delta=1e-6, moved=20))
    discrete Laplace noise of scale 40 on each count
    """
    if kind not in ("auto", "laplace", "gaussian"):
        raise InvalidInputError(f"Noise must be 'auto', 'laplace' or 'gaussian', got {kind!r}.")
    laplace = calibrate_integer_laplace(epsilon=epsilon, coordinates=coordinates, moved=moved)
    if kind == "laplace":
        return laplace
    gaussian = calibrate_integer_gaussian(
        epsilon=epsilon, delta=delta, coordinates=coordinates, moved=moved
    )
    if kind == "gaussian" or gaussian.standard_deviation < laplace.standard_deviation:
        return gaussian
    return laplace


def laplace_variance(scale: float) -> float:
    """Of the discrete Laplace distribution: 2 p / (1 - p)^2 with p = exp(-1 / scale)."""
    p = math.exp(-1 / scale)
    return 2 * p / math.expm1(-1 / scale) ** 2
