"""The exact account of Gaussian noise (Balle and Wang 2018), for every epsilon."""

import math
from functools import lru_cache

import numpy as np

from fedprikl.privacy.integer_account import SMALLEST_DELTA
from fedprikl.privacy.libraries import dp_accounting

__all__ = ["SAFETY", "gaussian_epsilon", "gaussian_sigma"]

SAFETY = 1 + 1e-9  # covers the root finding of the analytic calibration
# Of delta: the analytic profile is a difference of two tails that come close where the noise is
# many times the sensitivity; at a million times 1e-7 of delta is lost, at 1e8 times 3e-6.
CANCELLATION = 5e-7
LARGEST_RATIO = 1e10  # of noise to sensitivity; beyond, less noise is accounted for


@lru_cache(maxsize=1024)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation for (epsilon, delta) at a sensitivity of 1."""
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


def _usable(delta: float, ratio: float) -> float:
    """What is left of delta after the cancellation of two tails, for noise of this ratio."""
    return delta * (1 - CANCELLATION * max(1.0, ratio / 1e6))
