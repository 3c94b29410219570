"""The exact account of Gaussian noise (Balle and Wang 2018), for every epsilon.

The same numbers as dp-accounting's, to the last digit, and tested against them. That library takes
seconds to load and many times as long for a number, and a plan asks for hundreds.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedprikl.libraries import scipy
from fedprikl.privacy.integer_account import SMALLEST_DELTA

__all__ = ["SAFETY", "gaussian_epsilon", "gaussian_sigma"]

SAFETY = 1 + 1e-9  # covers the root finding of the analytic calibration
# Of delta: the analytic profile is a difference of two tails that come close where the noise is
# many times the sensitivity; at a million times 1e-7 of delta is lost, at 1e8 times 3e-6.
CANCELLATION = 5e-7
LARGEST_RATIO = 1e10  # of noise to sensitivity; beyond, less noise is accounted for


@lru_cache(maxsize=1024)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation for (epsilon, delta) at a sensitivity of 1."""
    least = _sigma(epsilon, _usable(delta, 1.0))
    return _sigma(epsilon, _usable(delta, min(2 * least, LARGEST_RATIO)))


@lru_cache(maxsize=1024)
def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The epsilon of Gaussian noise whose sd is `ratio` times the sensitivity, rounded up."""
    if delta < SMALLEST_DELTA:
        return math.inf
    accounted = min(ratio, LARGEST_RATIO)
    log_delta = float(np.log(_usable(delta, accounted)))
    log_delta_at = _profile()
    with np.errstate(divide="ignore"):  # of a logarithm of 0 where the noise is huge
        if log_delta_at(accounted, 0.0) < log_delta:
            return 0.0
        low, high = 0.0, 1.0
        while log_delta_at(accounted, high) > log_delta:
            low, high = high, high * 10
        return _root(lambda at: log_delta_at(accounted, at) - log_delta, low, high, 1e-18)


def _sigma(epsilon: float, delta: float) -> float:
    log_delta, log_delta_at = float(np.log(delta)), _profile()
    low, high = 0.1, 1.0
    while log_delta_at(low, epsilon) < log_delta:
        low, high = low / 10, low
    while log_delta_at(high, epsilon) > log_delta:
        low, high = high, high * 10
    return _root(lambda at: log_delta_at(at, epsilon) - log_delta, low, high, 1e-12)


def _profile() -> Callable[[float, float], float]:
    """The logarithm of delta of noise of this sd at this epsilon, for a sensitivity of 1.

    delta = Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma)
    """

    def log_delta_at(sigma: float, epsilon: float) -> float:
        far = epsilon * sigma + 1 / (2 * sigma)
        first = scipy.special.log_ndtr(1 / sigma - far)
        second = epsilon + scipy.special.log_ndtr(-far)
        if second > first:
            return -math.inf
        return float(first + np.log1p(-np.exp(second - first)))

    return log_delta_at


def _root(missing: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    return float(scipy.optimize.brentq(missing, low, high, xtol=tolerance))


def _usable(delta: float, ratio: float) -> float:
    """What is left of delta after the cancellation of two tails, for noise of this ratio."""
    return delta * (1 - CANCELLATION * max(1.0, ratio / 1e6))
