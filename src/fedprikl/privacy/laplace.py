"""Laplace noise on one number: pure privacy."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_epsilon
from fedprikl.libraries import scipy
from fedprikl.privacy.gaussian_account import SAFETY
from fedprikl.privacy.losses import LaplaceLoss
from fedprikl.privacy.mechanism import (
    AdditiveMechanism,
    check_noise,
    check_sensitivity,
    register_mechanism,
)
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource

__all__ = ["LaplaceMechanism", "calibrate_laplace"]


@register_mechanism("laplace")
@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism(AdditiveMechanism):
    """One number plus Laplace noise. Pure: delta is 0.

        density(x) = exp(-|x| / b) / (2 b),    epsilon = Delta / b

    Dwork, McSherry, Nissim and Smith (2006). What is drawn lies on a grid of 2^-40, and epsilon
    leaves room for that.

    >>> mechanism = calibrate_laplace(epsilon=0.5, sensitivity=0.1)
    >>> print(mechanism)
    Laplace noise of scale 0.2
    >>> round(mechanism.quantile(0.975), 3)
    0.599
    """

    scale: float  # b
    sensitivity: float  # Delta, L1

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,  # noqa: ARG003  not needed
        sensitivity: float,
    ) -> "LaplaceMechanism":
        """The least noise that gives (epsilon, delta)."""
        return calibrate_laplace(epsilon=epsilon, sensitivity=sensitivity)

    @property
    def standard_deviation(self) -> float:
        """Of the noise: sqrt(2) b."""
        return math.sqrt(2) * self.scale

    def epsilon(self, delta: float = 0.0) -> float:  # noqa: ARG002  holds for every delta
        """Delta / b, for every delta."""
        return (self.sensitivity + GRID_SLACK) / self.scale

    def proved_delta(self, delta: float) -> float:  # noqa: ARG002  pure
        """0: the guarantee is pure."""
        return 0.0

    @property
    def loss(self) -> LaplaceLoss:
        """What the accountant composes."""
        return LaplaceLoss(self.epsilon())

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.scale, "scale")
        check_sensitivity(self.sensitivity)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.laplace(values, scale=self.scale)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        tail = np.exp(-np.abs(x) / self.scale) / 2
        return np.where(x > 0, tail, 1 - tail)

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """Quantile (above 1/2) of the noise plus an independent normal error of this sd."""
        if error_sd < 1e-9 * self.scale:
            return -self.scale * math.log(2 * (1 - probability))
        below = _laplace_normal_cdf(self.scale, error_sd)
        bound = 20 * (self.scale + error_sd) * max(1.0, -math.log(1 - probability))
        return float(scipy.optimize.brentq(lambda x: below(x) - probability, 0.0, bound))

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        if self.sensitivity <= 0:
            return str(self)
        return f"Laplace noise of scale {self.scale / self.sensitivity:.4g} per unit of sensitivity"

    def __str__(self) -> str:
        return f"Laplace noise of scale {self.scale:.4g}"


def calibrate_laplace(*, epsilon: float, sensitivity: float) -> LaplaceMechanism:
    """Laplace noise of scale Delta / epsilon: (epsilon, 0)-DP.

    >>> calibrate_laplace(epsilon=0.5, sensitivity=0.1).epsilon() <= 0.5
    True
    """
    reach = (check_sensitivity(sensitivity) + GRID_SLACK) * SAFETY
    return LaplaceMechanism(scale=reach / check_epsilon(epsilon), sensitivity=sensitivity)


def _laplace_normal_cdf(scale: float, sd: float) -> Callable[[float], float]:
    """P(Laplace(scale) + N(0, sd^2) <= x), in closed form, with products as sums of logarithms."""
    shift = sd / scale
    square = shift**2 / 2

    def below(x: float) -> float:
        rising = math.exp(square + x / scale + scipy.special.log_ndtr(-x / sd - shift))
        falling = math.exp(square - x / scale + scipy.special.log_ndtr(x / sd - shift))
        return float(scipy.special.ndtr(x / sd) + (rising - falling) / 2)

    return below
