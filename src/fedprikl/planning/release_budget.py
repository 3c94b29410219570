"""The budget of several planned releases: what each may spend, and with which noise."""

import math
from dataclasses import dataclass
from typing import Literal

from fedprikl.checks import check_delta, check_epsilon, check_positive_int
from fedprikl.privacy import (
    GaussianMechanism,
    LaplaceMechanism,
    calibrate_gaussian,
    calibrate_laplace,
    total_epsilon,
)

__all__ = ["ReleaseBudget", "split_budget"]

STEPS = 12  # of the bisection: four digits


@dataclass(frozen=True, slots=True)
class ReleaseBudget:
    """What one of several equal releases may spend."""

    noise: Literal["laplace", "gaussian"]
    epsilon: float  # of one release
    noise_per_sensitivity: float  # standard deviation of its noise per unit of sensitivity


def split_budget(*, epsilon: float, delta: float, releases: int = 1) -> ReleaseBudget:
    """The noise with the smallest deviation of which `releases` fit into (epsilon, delta).

    One Laplace release has a third of the Gaussian's deviation at (1, 1e-6); Gaussian noise
    composes better, and wins for many releases. Totals are those that the ledger will charge.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_positive_int(releases, "releases")
    options = [_largest("laplace", epsilon, delta, releases)]
    options.append(_largest("gaussian", epsilon, delta, releases))
    return min(options, key=lambda budget: budget.noise_per_sensitivity)


def _largest(
    kind: Literal["laplace", "gaussian"], epsilon: float, delta: float, releases: int
) -> ReleaseBudget:
    """The largest equal share; epsilon / releases always fits."""

    def fits(share: float) -> bool:
        one = _mechanism(kind, share, delta)
        return total_epsilon([one] * releases, delta=delta) <= epsilon

    low, high = epsilon / releases * (1 - 1e-9), epsilon
    if releases == 1 or fits(high):
        low = high
    elif kind == "gaussian" and not fits(low):
        low = low / 2  # each release spends delta too, so an equal share of epsilon is too much
        while not fits(low):
            low /= 2
    if low < high:
        for _ in range(STEPS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if fits(middle) else (low, middle)
    return ReleaseBudget(kind, low, _mechanism(kind, low, delta).standard_deviation)


def _mechanism(kind: str, epsilon: float, delta: float) -> LaplaceMechanism | GaussianMechanism:
    if kind == "laplace":
        return calibrate_laplace(epsilon=epsilon, sensitivity=1.0)
    return calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=1.0)
