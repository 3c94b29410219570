"""Calibrations: how much noise buys which (epsilon, delta), and the other way round.

A mechanism is data: its noise and its sensitivity. `epsilon(delta)` is what it truly gives.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_delta, check_epsilon, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.integer_account import (
    SMALLEST_DELTA,
    check_accounted_delta,
    integer_gaussian_delta,
    smallest_epsilon,
)
from fedprikl.privacy.libraries import dp_accounting
from fedprikl.privacy.noise import GRID_EXPONENT, NoiseSource

__all__ = [
    "GaussianMechanism",
    "IntegerGaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "NoiseKind",
    "calibrate",
    "calibrate_gaussian",
    "calibrate_integer_gaussian",
    "calibrate_laplace",
    "classic_constant",
    "paper_noise_gain",
    "paper_true_epsilon",
]

NoiseKind = Literal["auto", "laplace", "gaussian"]

# Rounding two neighbouring values to the sampler's grid can move them apart by one step, and the
# discrete Gaussian's tail is off the continuous one by at most one more; four steps cover both.
GRID_SLACK = 4 * 2.0**GRID_EXPONENT
SAFETY = 1 + 1e-9  # covers the root finding of the analytic calibration
# Of delta: the analytic profile is a difference of two tails that come close where the noise is
# many times the sensitivity; at a million times 1e-7 of delta is lost, at 1e8 times 3e-6.
CANCELLATION = 5e-7
LARGEST_RATIO = 1e10  # of noise to sensitivity; beyond, less noise is accounted for


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceMechanism:
    """One number plus Laplace noise. Pure: delta is 0."""

    scale: float  # b
    sensitivity: float  # Delta, L1

    @property
    def standard_deviation(self) -> float:
        """Of the noise: sqrt(2) b."""
        return math.sqrt(2) * self.scale

    def epsilon(self, delta: float = 0.0) -> float:  # noqa: ARG002  holds for every delta
        """Delta / b, for every delta."""
        return (self.sensitivity + GRID_SLACK) / self.scale

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.laplace(values, scale=self.scale)

    def __str__(self) -> str:
        return f"Laplace noise of scale {self.scale:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism:
    """Numbers plus Gaussian noise of equal sd on each."""

    sigma: float
    sensitivity: float  # Delta, L2 over all released numbers

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """The exact Gaussian profile (Balle and Wang 2018), not the classic bound."""
        if self.sigma == 0:
            return math.inf
        return gaussian_epsilon(self.sigma / (self.sensitivity + GRID_SLACK), check_delta(delta))

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each value with independent noise."""
        return source.gaussian(values, sigma=self.sigma)

    def __str__(self) -> str:
        return f"Gaussian noise of standard deviation {self.sigma:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerGaussianMechanism:
    """Counts plus discrete Gaussian noise; one record moves `coordinates` of them by 1 each."""

    sigma: float
    coordinates: int  # 2 if two asked cells can change, 1 if only one is asked

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each count (the discrete Gaussian's parameter, to many digits)."""
        return self.sigma

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the discrete noise, rounded up (pessimistic).

        Infinite for a delta below 1e-30, where nothing is accounted.
        """
        return _integer_gaussian_epsilon(self.sigma, self.coordinates, check_delta(delta))

    def add_to(self, values: npt.ArrayLike, source: NoiseSource) -> Floats:
        """Each count with independent noise; whole numbers, as floats."""
        return source.integer_gaussian(values, sigma=self.sigma).astype(np.float64)

    def __str__(self) -> str:
        return f"integer Gaussian noise of standard deviation {self.sigma:.4g} on each count"


Mechanism = LaplaceMechanism | GaussianMechanism | IntegerGaussianMechanism


def calibrate(
    *, epsilon: float, delta: float, sensitivity: float, kind: NoiseKind = "auto"
) -> LaplaceMechanism | GaussianMechanism:
    """The least noise for one number: Laplace or Gaussian, whichever is smaller ("auto").

    At (1, 1e-6) Laplace has a third of the Gaussian's standard deviation.
    """
    options: dict[str, Callable[[], LaplaceMechanism | GaussianMechanism]] = {
        "laplace": lambda: calibrate_laplace(epsilon=epsilon, sensitivity=sensitivity),
        "gaussian": lambda: calibrate_gaussian(
            epsilon=epsilon, delta=delta, sensitivity=sensitivity
        ),
    }
    if kind == "auto":
        if check_delta(delta) < SMALLEST_DELTA:
            return options["laplace"]()
        return min((make() for make in options.values()), key=lambda m: m.standard_deviation)
    if kind not in options:
        raise InvalidInputError(f"Noise must be 'auto', 'laplace' or 'gaussian', got {kind!r}.")
    return options[kind]()


def calibrate_laplace(*, epsilon: float, sensitivity: float) -> LaplaceMechanism:
    """Laplace noise of scale Delta / epsilon: (epsilon, 0)-DP."""
    reach = (_check_sensitivity(sensitivity) + GRID_SLACK) * SAFETY
    return LaplaceMechanism(scale=reach / check_epsilon(epsilon), sensitivity=sensitivity)


def calibrate_gaussian(*, epsilon: float, delta: float, sensitivity: float) -> GaussianMechanism:
    """The least Gaussian noise that gives (epsilon, delta), for every epsilon > 0."""
    sigma = _gaussian_sigma(check_epsilon(epsilon), check_accounted_delta(delta))
    reach = (_check_sensitivity(sensitivity) + GRID_SLACK) * SAFETY
    return GaussianMechanism(sigma=sigma * reach, sensitivity=sensitivity)


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
    sigma = math.sqrt(coordinates) * _gaussian_sigma(epsilon, check_accounted_delta(delta))
    while True:
        mechanism = IntegerGaussianMechanism(sigma=sigma, coordinates=coordinates)
        reached = mechanism.epsilon(delta)
        if reached <= epsilon:
            return mechanism
        sigma *= max(reached / epsilon, 1 + 1e-6)


def classic_constant(delta: float) -> float:
    """c = sqrt(2 ln(1.25/delta)), the paper's calibration constant      [cor:GaussNoise].

    Proved for epsilon < 1 only.
    """
    return math.sqrt(2 * math.log(1.25 / check_delta(delta)))


def paper_noise_gain(*, epsilon: float, delta: float, batches: int) -> float:
    """g = (c / (epsilon T))^2: variance of the noise `alg:sys_tagg` prints, per squared kappa."""
    gain = classic_constant(delta) / (check_epsilon(epsilon) * check_positive_int(batches, "T"))
    return gain**2


def paper_true_epsilon(
    *,
    epsilon: float,
    delta: float,
    points: int,
    batches: int,
    released: Literal["terms", "mean"] = "terms",
    repeated: bool = False,
) -> float:
    """The epsilon that the paper's printed noise truly gives, on the paper's own premises.

    Its premise is that one record moves one term by at most kappa. `released="terms"` is
    `alg:sys_tagg` as printed, where the server sees all mT noisy terms; `"mean"` releases only
    their average. `repeated` is the worst case of i.i.d. draws: all m points of a batch are equal.
    """
    m, c = check_positive_int(points, "points"), classic_constant(delta)
    epsilon = check_epsilon(epsilon)
    moved = m if repeated else 1  # terms of the batch that change
    reach = epsilon * check_positive_int(batches, "batches") / c  # kappa / sd of one term's noise
    if released == "terms":
        ratio = math.sqrt(moved) * reach
    elif released == "mean":
        ratio = moved * reach / math.sqrt(m * batches)
    else:
        raise InvalidInputError(f"`released` must be 'terms' or 'mean', got {released!r}.")
    return gaussian_epsilon(1 / ratio, check_delta(delta))


def _check_sensitivity(value: float) -> float:
    if check_finite(value, "sensitivity") < 0:
        raise InvalidInputError(f"A sensitivity cannot be negative, got {value}.")
    return float(value)


def _usable(delta: float, ratio: float) -> float:
    """What is left of delta after the cancellation of two tails, for noise of this ratio."""
    return delta * (1 - CANCELLATION * max(1.0, ratio / 1e6))


@lru_cache(maxsize=1024)
def _gaussian_sigma(epsilon: float, delta: float) -> float:
    least = float(dp_accounting().get_sigma_gaussian(epsilon, _usable(delta, 1.0)))
    usable = _usable(delta, min(2 * least, LARGEST_RATIO))
    return float(dp_accounting().get_sigma_gaussian(epsilon, usable))


@lru_cache(maxsize=1024)
def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The epsilon of Gaussian noise whose sd is `ratio` times the sensitivity, rounded up."""
    if delta < SMALLEST_DELTA:
        return math.inf
    accounted = min(ratio, LARGEST_RATIO)
    usable = _usable(delta, accounted)
    with np.errstate(divide="ignore"):  # of a logarithm of 0 where the noise is huge
        return float(dp_accounting().get_epsilon_gaussian(accounted, usable, tol=1e-18))


@lru_cache(maxsize=256)
def _integer_gaussian_epsilon(sigma: float, coordinates: int, delta: float) -> float:
    if delta < SMALLEST_DELTA:
        return math.inf
    delta_at = integer_gaussian_delta(sigma, coordinates)
    return smallest_epsilon(delta_at, delta, variance=coordinates / sigma**2)
