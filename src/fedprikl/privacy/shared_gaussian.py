"""Gaussian noise in shares: every client adds a little integer noise, and only the sum is seen.

The sum of many small discrete Gaussians is not a discrete Gaussian (with thousands of clients each
share is almost always 0), so its privacy is accounted from the exact probabilities of the sum.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_delta, check_epsilon, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.charges import AccountedRelease
from fedprikl.privacy.libraries import loss_distributions
from fedprikl.privacy.noise import NoiseSource

__all__ = ["SharedGaussianMechanism", "calibrate_shared_gaussian", "sum_probabilities"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGaussianMechanism:
    """Counts under the summed noise of at least `shares` honest clients.

    One record moves at most two of the summed counts, by 1 each. Shares of dropped or colluding
    clients are not counted: `shares` is what is left without them.
    """

    sigma: float  # parameter of each client's discrete Gaussian
    shares: int  # honest shares that are in every sum that can be opened

    @property
    def standard_deviation(self) -> float:
        """Of the noise of `shares` shares on each count."""
        return math.sqrt(self.shares * self.share_variance)

    @property
    def share_variance(self) -> float:
        """Of one client's noise on each count."""
        return _share_variance(self.sigma)

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the summed noise, rounded against us."""
        return _shared_epsilon(self.sigma, self.shares, check_delta(delta))

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return math.sqrt(2)

    def charge(self, delta: float) -> AccountedRelease:
        """What one release costs."""
        return AccountedRelease(proved_epsilon=self.epsilon(delta), proved_delta=delta)

    @property
    def reach(self) -> int:
        """A share is never above this: beyond lies less than 2^-100 of its probability."""
        return math.ceil(12 * max(self.sigma, 1.0))

    def draw_share(self, entries: int, source: NoiseSource) -> Ints:
        """One client's noise for so many counts. SECRET until summed."""
        share = source.integer_gaussian(np.zeros(entries), sigma=self.sigma)
        return np.clip(share, -self.reach, self.reach)

    def __str__(self) -> str:
        return (
            "integer Gaussian noise in shares, of standard deviation "
            f"{self.standard_deviation:.4g} or more on each count"
        )


@lru_cache(maxsize=64)
def calibrate_shared_gaussian(
    *, epsilon: float, delta: float, shares: int
) -> SharedGaussianMechanism:
    """The least share of noise for which the sum of `shares` of them gives (epsilon, delta)."""
    check_epsilon(epsilon)
    check_delta(delta)
    check_positive_int(shares, "shares")
    low, high = 0.05, 1.0
    while _shared_epsilon(high, shares, delta) > epsilon:
        low, high = high, 2 * high
        if high > 1e6:
            raise InvalidInputError(
                f"No integer noise within reach gives epsilon {epsilon:g}, delta {delta:g}."
            )
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle) if _shared_epsilon(middle, shares, delta) <= epsilon else (middle, high)
        )
    return SharedGaussianMechanism(sigma=high, shares=shares)


@lru_cache(maxsize=1024)
def _share_variance(sigma: float) -> float:
    """Variance of the discrete Gaussian; far below sigma^2 for sigma < 1/2."""
    probabilities = _one_share(sigma)
    reach = len(probabilities) // 2
    return float(np.arange(-reach, reach + 1) ** 2 @ probabilities)


def sum_probabilities(sigma: float, shares: int) -> Floats:
    """Probabilities of the sum of `shares` discrete Gaussians, centred; every term is positive,
    so repeated convolution keeps the relative precision of the tails.
    """
    result, power, left = np.ones(1), _one_share(sigma), shares
    while left:
        if left & 1:
            result = _trim(np.convolve(result, power))
        left >>= 1
        power = _trim(np.convolve(power, power)) if left else power
    return result


def _one_share(sigma: float) -> Floats:
    reach = np.arange(-math.ceil(20 * sigma) - 2, math.ceil(20 * sigma) + 3)
    weights = np.exp(-(reach**2) / (2 * sigma**2))
    return _trim(weights / weights.sum())


def _trim(probabilities: Floats) -> Floats:
    """Without the tails below 1e-60, symmetrically."""
    keep = np.flatnonzero(probabilities > 1e-60)
    cut = min(int(keep[0]), len(probabilities) - 1 - int(keep[-1]))
    return probabilities[cut : len(probabilities) - cut]


@lru_cache(maxsize=1024)
def _shared_epsilon(sigma: float, shares: int, delta: float) -> float:
    probabilities = sum_probabilities(sigma, shares)
    if len(probabilities) == 1 or sigma < 0.06:
        return math.inf
    reach = len(probabilities) // 2
    lower = _log_masses(probabilities, -reach)
    upper = _log_masses(probabilities, 1 - reach)
    variance = shares * _share_variance(sigma)
    one = loss_distributions().from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=min(1e-3, 1e-3 / math.sqrt(variance + 1e-12))
    )
    both = one.self_compose(2, tail_mass_truncation=1e-9 * delta)
    return float(both.get_epsilon_for_delta(delta))


def _log_masses(probabilities: Floats, first: int) -> dict[int, float]:
    logs: npt.NDArray[np.float64] = np.log(probabilities)
    return dict(enumerate(logs.tolist(), start=first))
