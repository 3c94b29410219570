"""Discrete Laplace noise on counts: pure privacy.

One record moves at most two counts by 1 each: 2 in L1, sqrt(2) in L2. With so small a difference
Laplace noise is smaller than Gaussian noise, however many counts are released.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_epsilon, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.calibrated import NoiseKind
from fedprikl.privacy.integer_gaussian import IntegerGaussianMechanism, calibrate_integer_gaussian
from fedprikl.privacy.losses import PureLoss, repeat
from fedprikl.privacy.mechanism import (
    LATER,
    AdditiveMechanism,
    check_noise,
    register_mechanism,
)
from fedprikl.privacy.noise import NoiseSource

__all__ = [
    "IntegerLaplaceLoss",
    "IntegerLaplaceMechanism",
    "calibrate_integer",
    "calibrate_integer_laplace",
    "laplace_variance",
]

ROUNDING = 1 + 1e-12  # of the divisions between scale and epsilon


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
