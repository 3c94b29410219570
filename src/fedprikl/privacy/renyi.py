"""From Renyi divergences to epsilon and delta."""

import math
from functools import cache, lru_cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.gaussian_account import SAFETY

__all__ = ["concentrated_epsilon", "concentration_of", "orders", "renyi_delta"]

LEAST = 1e-18  # of all rho that are looked for


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The epsilon at `delta` of whatever is rho-zCDP.

        epsilon = min over alpha > 1 of  alpha rho + ln(1 - 1/alpha) + ln(1/(alpha delta))/(alpha-1)

    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy". Each alpha
    gives a valid bound. They are the same for every rho, so that more never costs less.

    >>> round(concentrated_epsilon(52 * 0.1**2 / 8, delta=1e-6), 3)
    1.696
    """
    if delta <= 0:
        return math.inf
    alpha = orders()
    bounds = alpha * rho + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1)
    return max(0.0, float(bounds.min()) * SAFETY)


@lru_cache(maxsize=256)
def concentration_of(epsilon: float, delta: float) -> float:
    """The largest rho, but for rounding, of which `concentrated_epsilon` is at most epsilon.

    >>> concentrated_epsilon(concentration_of(1.0, 1e-6), 1e-6) <= 1.0
    True
    """
    low, high = LEAST, LEAST
    while concentrated_epsilon(high, delta) <= epsilon:
        low, high = high, 4 * high
    if low == high:
        raise InvalidInputError(
            f"No Gaussian noise within reach gives epsilon {epsilon:g}, delta {delta:g} to a whole "
            "client. Raise them, or use Laplace noise."
        )
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        fits = concentrated_epsilon(middle, delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    return low


def renyi_delta(divergence: Floats, alpha: Floats, epsilon: float) -> float:
    """The least delta at `epsilon` that Renyi divergences of these orders prove: the same bound.

        delta = e^((alpha - 1) (D - epsilon)) (1 - 1/alpha)^(alpha - 1) / alpha

    >>> epsilon = concentrated_epsilon(0.01, delta=1e-6)
    >>> 0.99e-6 < renyi_delta(orders() * 0.01, orders(), epsilon) < 1e-6
    True
    """
    logs = (alpha - 1) * (divergence - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)
    return math.exp(min(float(logs.min()), 0.0))


@cache
def orders() -> Floats:
    """The alpha > 1 that are looked at."""
    return 1 + np.geomspace(1e-3, 1e7, 4001)
