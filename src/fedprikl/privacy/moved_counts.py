"""The account of independent noise on counts that one client moves, each by several records.

The worst case of k records is not known: they may move two counts by k, or many by 1. So all of
them are bounded at once, by Renyi divergences. docs/decisions/0021-whole-clients.md has the proof.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.privacy.integer_account import NEGLIGIBLE
from fedprikl.privacy.integer_account import SAFETY as SUMS
from fedprikl.privacy.renyi import orders, renyi_delta

__all__ = ["moved_counts_delta", "moved_gaussian_delta"]

PER_OCTAVE = 4  # orders alpha - 1 = 2^(j / 4), of which those near the best one are looked at
NEAR = 2
ROUND_OFF = 1e-11  # of the logarithm of a probability; tested to be below a fifth of it


def moved_gaussian_delta(variance: float, coordinates: int, moved: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of discrete Gaussian noise with this sigma^2 on each count.

    rho = coordinates moved^2 / (2 sigma^2): a shift by m has a divergence of at most
    alpha m^2 / (2 sigma^2), for every whole m (Canonne, Kamath and Steinke 2020).
    """
    rho = coordinates * moved * moved / (2 * variance)
    return lambda epsilon: renyi_delta(orders() * rho, orders(), epsilon) * SUMS


def moved_counts_delta(
    probabilities: Floats, coordinates: int, moved: int
) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise with these (centred, symmetric)
    probabilities on each count, where one record moves `coordinates` counts by 1 each.

    With D_alpha(m) the divergence of the noise from the noise shifted by m,

        c_alpha = max over m = 1 .. k of D_alpha(m) / m^2,    D_alpha <= c_alpha coordinates k^2

    for all shifts that k records can make: no count moves by more than k, and the squares add up to
    at most coordinates k^2. Outcomes of less than 1e-45, with and without the shift, count as a
    certain loss; at most coordinates k counts move at all.
    """
    kept = probabilities[probabilities > NEGLIGIBLE]
    reach = len(kept) // 2
    if moved >= reach:
        return lambda _: 1.0
    beyond = float(kept[reach + (reach - moved) + 1 :].sum()) + len(probabilities) * NEGLIGIBLE
    certain = 2 * coordinates * moved * beyond
    log_p = np.log(kept)
    squares = coordinates * moved * moved
    spread = float(np.arange(-reach, reach + 1) ** 2 @ kept)

    @cache
    def divergence(place: int) -> float:
        alpha = 1 + 2.0 ** (place / PER_OCTAVE)
        return _largest_per_square(log_p, alpha, moved) * squares

    def delta_at(epsilon: float) -> float:
        # Of Gaussian noise with this variance, alpha - 1/2 = epsilon V / squares would be best.
        best = max(epsilon * spread / squares - 0.5, 2.0**-10)
        middle = round(PER_OCTAVE * math.log2(best))
        places = range(middle - NEAR, middle + NEAR + 1)
        alpha = np.array([1 + 2.0 ** (place / PER_OCTAVE) for place in places])
        found = np.array([divergence(place) for place in places])
        return (renyi_delta(found, alpha, epsilon) + certain) * SUMS

    return delta_at


def _largest_per_square(log_p: Floats, alpha: float, moved: int) -> float:
    """c_alpha, over the outcomes that are kept with and without the shift."""
    found = 0.0
    for m in range(1, moved + 1):
        exponents = alpha * log_p[:-m] + (1 - alpha) * log_p[m:]
        top = float(exponents.max())
        summed = top + math.log(float(np.exp(exponents - top).sum()))
        rounding = (2 * alpha - 1) * ROUND_OFF
        found = max(found, (summed + rounding) / ((alpha - 1) * m * m))
    return found * SUMS
