"""Composition by concentration: several losses of bounded range cost less than pure ones."""

import math
from collections.abc import Callable, Sequence

from fedprikl.privacy.losses import (
    BoundedRangeLoss,
    ConcentratedLoss,
    GaussianLoss,
    IntegerGaussianLoss,
    Loss,
    PureLoss,
)
from fedprikl.privacy.renyi import concentrated_epsilon

__all__ = ["bounded_range_epsilon", "known_by_rho_epsilon"]

SHARES = (0.1, 0.5, 0.9)  # of delta, for the losses of bounded range beside others


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


def known_by_rho_epsilon(
    losses: Sequence[Loss], delta: float, others: Callable[[tuple[Loss, ...], float], float]
) -> float:
    """The epsilon at `delta` of losses of which some are known by their rho only.

    The smaller of: all of them as zCDP; these with a share of delta and the `others` with the rest;
    or these with all of delta, if the others need none. Never less than the others alone.
    """
    known = [loss for loss in losses if isinstance(loss, ConcentratedLoss)]
    rest = tuple(loss for loss in losses if not isinstance(loss, ConcentratedLoss))
    if delta <= 0:
        return math.inf
    rho = math.fsum(loss.rho for loss in known)
    if not rest:
        return concentrated_epsilon(rho, delta)
    together = concentrated_epsilon(rho + math.fsum(map(_concentration, rest)), delta)
    apart = (
        concentrated_epsilon(rho, share * delta) + others(rest, (1 - share) * delta)
        for share in SHARES
    )
    without = concentrated_epsilon(rho, delta) + others(rest, 0.0)
    return max(min(together, without, *apart), others(rest, delta))


def _concentration(loss: Loss) -> float:
    """rho of a loss; Bun and Steinke (2016), "Concentrated differential privacy"."""
    match loss:
        case BoundedRangeLoss():
            return loss.concentrated
        case ConcentratedLoss(rho):
            return rho
        case PureLoss(epsilon):
            return epsilon * epsilon / 2
        case GaussianLoss(mu):
            return mu * mu / 2  # a product becomes infinite, a power raises
        case IntegerGaussianLoss(sigma, coordinates):
            return coordinates * (1 / sigma) * (1 / sigma) / 2 if sigma > 0 else math.inf
        case _:
            return math.inf
