"""Laplace and Gaussian noise on numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon
from fedprikl.libraries import scipy
from fedprikl.privacy.accounting import (
    SAFETY,
    check_accounted_delta,
    gaussian_epsilon,
    gaussian_sigma,
)
from fedprikl.privacy.losses import GaussianLoss, LaplaceLoss
from fedprikl.privacy.mechanism import (
    AdditiveMechanism,
    check_noise,
    check_sensitivity,
    register_mechanism,
)
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource


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


@register_mechanism("gaussian")
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism(AdditiveMechanism):
    """Numbers plus Gaussian noise of equal sd on each.

        delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu),    mu = Delta / sigma

    The exact profile of Balle and Wang (2018), not the classic bound sqrt(2 ln(1.25/delta)).
    It composes better than Laplace noise, and is smaller for many releases.

    >>> mechanism = calibrate_gaussian(epsilon=0.5, delta=1e-6, sensitivity=0.1)
    >>> print(mechanism)
    Gaussian noise of standard deviation 0.8058
    >>> round(mechanism.epsilon(1e-6), 6)
    0.5
    """

    sigma: float
    sensitivity: float  # Delta, L2 over all released numbers

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, sensitivity: float) -> "GaussianMechanism":
        """The least noise that gives (epsilon, delta)."""
        return calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=sensitivity)

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """The exact Gaussian profile (Balle and Wang 2018), not the classic bound."""
        if self.sigma == 0:
            return math.inf
        return gaussian_epsilon(self.sigma / (self.sensitivity + GRID_SLACK), check_delta(delta))

    def proved_delta(self, delta: float) -> float:
        """delta: Gaussian noise needs all of it."""
        return delta

    @property
    def loss(self) -> GaussianLoss:
        """What the accountant composes."""
        return GaussianLoss((self.sensitivity + GRID_SLACK) / self.sigma)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_noise(self.sigma, "sigma")
        check_sensitivity(self.sensitivity)

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.gaussian(values, sigma=self.sigma)

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        return np.asarray(scipy.special.ndtr(-x / self.sigma))

    def quantile(self, probability: float, *, error_sd: float = 0.0) -> float:
        """Quantile of the noise plus an independent normal error of this sd."""
        return float(scipy.special.ndtri(probability) * math.hypot(self.sigma, error_sd))

    def per_unit(self) -> str:
        """In words, relative to the sensitivity where there is one: what a ledger knows."""
        if self.sensitivity <= 0:
            return str(self)
        words = "Gaussian noise of standard deviation"
        return f"{words} {self.sigma / self.sensitivity:.4g} per unit of sensitivity"

    def __str__(self) -> str:
        return f"Gaussian noise of standard deviation {self.sigma:.4g}"


def calibrate_gaussian(*, epsilon: float, delta: float, sensitivity: float) -> GaussianMechanism:
    """The least Gaussian noise that gives (epsilon, delta), for every epsilon > 0.

    >>> calibrate_gaussian(epsilon=0.5, delta=1e-6, sensitivity=0.1).epsilon(1e-6) <= 0.5
    True
    """
    sigma = gaussian_sigma(check_epsilon(epsilon), check_accounted_delta(delta))
    reach = (check_sensitivity(sensitivity) + GRID_SLACK) * SAFETY
    return GaussianMechanism(sigma=sigma * reach, sensitivity=sensitivity)
