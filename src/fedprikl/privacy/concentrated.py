"""Composition by concentration: several losses of bounded range cost less than pure ones."""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.privacy.gaussian_account import SAFETY
from fedprikl.privacy.losses import (
    BoundedRangeLoss,
    GaussianLoss,
    IntegerGaussianLoss,
    Loss,
    PureLoss,
)

__all__ = ["bounded_range_epsilon", "concentrated_epsilon"]

SHARES = (0.1, 0.5, 0.9)  # of delta, for the losses of bounded range beside others


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
    alpha = _orders()
    bounds = alpha * rho + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1)
    return max(0.0, float(bounds.min()) * SAFETY)


def bounded_range_epsilon(
    losses: Sequence[Loss], delta: float, others: Callable[[tuple[Loss, ...], float], float]
) -> float:
    """The epsilon at `delta` of losses of which some have a bounded range; infinite if none has.

    The smaller of: all of them as zCDP; or these as zCDP with a share of delta, and the `others` on
    their own with the rest (basic composition of the two). Both hold for adaptive choices. Never
    less than the others alone, whose own bound may be a looser one.
    """
    bounded = [loss for loss in losses if isinstance(loss, BoundedRangeLoss)]
    rest = tuple(loss for loss in losses if not isinstance(loss, BoundedRangeLoss))
    if not bounded or delta <= 0:
        return math.inf
    rho = math.fsum(loss.concentrated for loss in bounded)
    together = concentrated_epsilon(rho + math.fsum(map(_concentration, rest)), delta)
    if not rest:
        return together
    apart = (
        concentrated_epsilon(rho, share * delta) + others(rest, (1 - share) * delta)
        for share in SHARES
    )
    return max(min(together, *apart), others(rest, delta))


def _concentration(loss: Loss) -> float:
    """rho of a loss; Bun and Steinke (2016), "Concentrated differential privacy"."""
    match loss:
        case BoundedRangeLoss():
            return loss.concentrated
        case PureLoss(epsilon):
            return epsilon * epsilon / 2
        case GaussianLoss(mu):
            return mu * mu / 2  # a product becomes infinite, a power raises
        case IntegerGaussianLoss(sigma, coordinates):
            return coordinates * (1 / sigma) * (1 / sigma) / 2 if sigma > 0 else math.inf
        case _:
            return math.inf


@cache
def _orders() -> Floats:
    return 1 + np.geomspace(1e-3, 1e7, 4001)
