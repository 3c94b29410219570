"""Gaussian noise on one or several numbers."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon
from fedprikl.libraries import scipy
from fedprikl.privacy.gaussian_account import SAFETY, gaussian_epsilon, gaussian_sigma
from fedprikl.privacy.integer_account import check_accounted_delta
from fedprikl.privacy.losses import GaussianLoss
from fedprikl.privacy.mechanism import (
    AdditiveMechanism,
    check_noise,
    check_sensitivity,
    register_mechanism,
)
from fedprikl.privacy.noise import GRID_SLACK, NoiseSource

__all__ = ["GaussianMechanism", "calibrate_gaussian"]


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
