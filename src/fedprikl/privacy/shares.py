"""Noise in shares: every client adds a little integer noise, and only the sum is seen.

Shares of dropped or colluding clients are not counted (`SharedCounts`). More honest shares are
independent of the records and of the others, so adding them is post-processing, and the guarantee
stays. The failure of the secure sum, a probability that does not depend on the records, is part of
delta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import (
    SEARCH,
    SMALLEST_DELTA,
    WIDE,
    check_accounted_delta,
    client_counts_delta,
    client_gaussian_delta,
    concentration_of,
    integer_gaussian_delta,
    many_counts_delta,
    smallest_epsilon,
    two_counts_delta,
)
from fedprikl.privacy.charges import (
    AccountedRelease,
    Charge,
    ComposedCharge,
    ConcentratedRelease,
)
from fedprikl.privacy.laws import (
    ROUNDING,
    GaussianMechanism,
    Numbers,
    SharedCounts,
    client_sigma,
    laplace_variance,
    register_law,
)
from fedprikl.privacy.noise import MOST_SHARES, SCALES, NoiseSource, polya_reach
from fedprikl.search import bisect_ratio

SAMPLER_DELTA = 2.0**-60  # above what the sampler's distance from the true distribution can cost
TABLED = 100.0  # sigma up to which probabilities are tabulated for a variance
SHAPE = 1e-36  # more than a sum of wide noises departs from the shape of one, for each noise
LARGEST_TOTAL = 60.0  # epsilon of all releases together: beyond, nothing is hidden
GAUSSIAN_ROUNDING = 1 + 1e-9  # of rho


@register_law("laplace", on=SharedCounts)
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLaplaceMechanism:
    """Shares that add up to discrete Laplace noise.

        P(noise = k)  proportional to  exp(-|k| / scale),    epsilon = C / scale

    with C = coordinates contribution: no probability changes by more than exp(1 / scale) in each
    count that changes by 1. Pure privacy.

    What is drawn is off by less than 2^(1-B) in total variation per Polya variable, with
    B = 100 + epsilon / ln 2 + log2(C / 2) (`noise.tail_bits`). So many counts of `shares` shares of
    two variables each are then off by tau < 2 C shares 2^(1-B), which costs a delta of at most
    (1 + e^epsilon) tau < 2^-96 shares <= 2^-64. The other counts look the same in both worlds and
    cost nothing.

    Goryczka and Xiong (2017) compare such shares; here they are accounted to the last bit.

    >>> mechanism = SharedLaplaceMechanism.calibrated(SharedCounts(100), epsilon=1.0, delta=1e-6)
    >>> print(mechanism)
    discrete Laplace noise in shares, of standard deviation 2.799 or more on each count
    >>> mechanism.proved_delta(1e-6) == SAMPLER_DELTA
    True
    """

    on: SharedCounts
    scale: float  # b of the summed noise

    def __post_init__(self) -> None:
        (low, high), changes = SCALES, self.on.changes
        if not low <= self.scale <= high:
            raise InvalidInputError(
                f"Laplace noise in shares is for epsilon from {changes / high:g} to "
                f"{changes / low:g}, got {changes / self.scale:g}. Use Gaussian noise."
            )
        if self.on.shares > MOST_SHARES:
            raise InvalidInputError(f"Noise is split into at most {MOST_SHARES:,} shares.")

    @classmethod
    def calibrated(cls, on: SharedCounts, *, epsilon: float, delta: float) -> Self:
        """Of scale C / epsilon, with a delta of 2^-60 + failure."""
        usable = on.usable(delta)
        if delta < SAMPLER_DELTA + on.failure:
            raise InvalidInputError(
                f"Laplace noise in shares is drawn to a delta of {SAMPLER_DELTA:.2g}, more than "
                f"the {usable:g} allowed. Raise delta, or use Gaussian noise."
            )
        return cls(on=on, scale=on.changes * ROUNDING / epsilon)

    @classmethod
    def deviation(cls, on: SharedCounts, *, epsilon: float, delta: float) -> float:
        """Does not depend on `shares`, so all cohorts of a round carry noise of one law."""
        low, high = SCALES
        drawn = on.changes / high <= epsilon <= on.changes / low
        if not drawn or on.usable(delta) < SAMPLER_DELTA:
            return math.inf
        return math.sqrt(laplace_variance(on.changes / epsilon))

    @property
    def standard_deviation(self) -> float:
        """Of the noise of `shares` shares on each count: a little under sqrt(2) b."""
        return math.sqrt(laplace_variance(self.scale))

    @property
    def share_variance(self) -> float:
        """Of one client's noise on each count."""
        return laplace_variance(self.scale) / self.on.shares

    @property
    def sensitivity(self) -> float:
        """L1, over all counts."""
        return float(self.on.changes)

    def epsilon(self, delta: float) -> float:
        """C / b for every delta of at least 2^-60 + failure; infinite below."""
        if check_delta(delta) < self.proved_delta(delta):
            return math.inf
        return math.nextafter(self.on.changes / self.scale, math.inf)

    def proved_delta(self, delta: float) -> float:  # noqa: ARG002  it needs no more than its own
        """Of the sampler and of the secure sum; the noise itself needs none."""
        return SAMPLER_DELTA + self.on.failure

    def charge(self, delta: float) -> AccountedRelease:
        """What one release costs: its epsilon, and 2^-60 + failure of the allowed delta."""
        return AccountedRelease(
            proved_epsilon=self.epsilon(delta), proved_delta=self.proved_delta(delta)
        )

    @property
    def laplace_scale(self) -> float:
        """Of the summed noise, which is discrete Laplace noise."""
        return self.scale

    @property
    def reach(self) -> int:
        """A share is never beyond this; what it cuts off is in the delta of 2^-60."""
        return polya_reach(self.scale, self.on.changes)

    def draw_share(self, entries: int, source: NoiseSource) -> Ints:
        """One client's noise for so many counts. SECRET until summed."""
        share = source.laplace_share(
            entries, scale=self.scale, shares=self.on.shares, coordinates=self.on.changes
        )
        return np.clip(share, -self.reach, self.reach)

    def __str__(self) -> str:
        return (
            "discrete Laplace noise in shares, of standard deviation "
            f"{self.standard_deviation:.4g} or more on each count"
        )


@register_law("gaussian", on=SharedCounts)
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGaussianMechanism:
    """Shares of discrete Gaussian noise.

    What delta pays for: the noise itself; that a share is cut off at its `reach`, which moves each
    of C shares draws, C = coordinates contribution, with probability tail and so costs
    (1 + e^epsilon) C shares tail; and the `failure` of the secure sum.

    >>> mechanism = SharedGaussianMechanism.calibrated(SharedCounts(100), epsilon=1.0, delta=1e-6)
    >>> print(mechanism)
    integer Gaussian noise in shares, of standard deviation 5.959 or more on each count
    """

    on: SharedCounts
    sigma: float  # parameter of each client's discrete Gaussian

    @classmethod
    def calibrated(cls, on: SharedCounts, *, epsilon: float, delta: float) -> Self:
        """The least share of noise for which the sum of `shares` of them gives (epsilon, delta)."""
        usable = check_accounted_delta(on.usable(delta))
        return cls(on=on, sigma=_share_sigma(on, epsilon, usable))

    @classmethod
    def deviation(cls, on: SharedCounts, *, epsilon: float, delta: float) -> float:
        """By the continuous formula, because the exact account takes longer: within a few percent.

        Where the two laws are as close, either will do. Does not depend on `shares`.
        """
        usable = check_accounted_delta(on.usable(delta))
        if on.contribution > 1:
            return client_sigma(on, epsilon, usable)
        length = Numbers(sensitivity=math.sqrt(on.coordinates))
        return GaussianMechanism.calibrated(length, epsilon=epsilon, delta=usable).sigma

    @property
    def standard_deviation(self) -> float:
        """Of the noise of `shares` shares on each count."""
        return math.sqrt(self.on.shares * self.share_variance)

    @property
    def share_variance(self) -> float:
        """Of one client's noise on each count."""
        return _share_variance(self.sigma)

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return self.on.contribution * math.sqrt(self.on.coordinates)

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the summed noise, rounded up (pessimistic).

        Infinite where less than 1e-30 of delta is left after the failure of the sum.
        """
        return _shared_epsilon(self.sigma, self.on, check_delta(delta) - self.on.failure)

    def proved_delta(self, delta: float) -> float:
        """delta: Gaussian noise needs all of it."""
        return delta

    def charge(self, delta: float) -> Charge:
        """What one release costs.

        Wide shares on the counts of whole clients add up to discrete Gaussian noise, so rho is
        known, and many releases compose by it. Beside it a tiny epsilon pays for the shape of the
        sum, which is off by a factor, and delta for failures and cut tails: a distance tau costs
        (1 + e^epsilon) tau, here for totals up to 60.
        """
        if self.on.contribution == 1 or self.sigma < WIDE:
            return AccountedRelease(proved_epsilon=self.epsilon(delta), proved_delta=delta)
        rho = self.on.coordinates * self.on.contribution**2 / (2 * self.on.shares * self.sigma**2)
        draws = self.on.changes * self.on.shares
        cut = draws * math.exp(log_beyond_reach(self.sigma) + LARGEST_TOTAL) * 2
        return ComposedCharge(
            (
                ConcentratedRelease(rho=rho * GAUSSIAN_ROUNDING),
                AccountedRelease(
                    proved_epsilon=2 * draws * SHAPE, proved_delta=self.on.failure + cut
                ),
            )
        )

    @property
    def laplace_scale(self) -> None:
        """None: the summed noise is about normal."""
        return None

    @property
    def reach(self) -> int:
        """A share is never beyond this; what it cuts off is in the account."""
        return _reach(self.sigma)

    def draw_share(self, entries: int, source: NoiseSource) -> Ints:
        """One client's noise for so many counts. SECRET until summed."""
        share = source.integer_gaussian(np.zeros(entries), sigma=self.sigma)
        return np.clip(share, -self.reach, self.reach)

    def __str__(self) -> str:
        return (
            "integer Gaussian noise in shares, of standard deviation "
            f"{self.standard_deviation:.4g} or more on each count"
        )


SharedMechanism = SharedGaussianMechanism | SharedLaplaceMechanism


@lru_cache(maxsize=64)
def _share_sigma(on: SharedCounts, epsilon: float, usable: float) -> float:
    """The least sigma of a share for which the sum gives (epsilon, usable), to 1e-4."""
    target = epsilon / SEARCH**2  # so that the search for epsilon does not end above it

    def fits(sigma: float) -> bool:
        return _shared_delta(sigma, on)(target) <= usable

    low, high = (0.05, 1.0) if on.contribution == 1 else _near(on, epsilon, usable)
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise InvalidInputError(
                f"No integer noise within reach gives epsilon {epsilon:g}, delta {usable:g}."
            )
    return bisect_ratio(fits, high, low, ratio=1 + 1e-4)[0]


def _near(on: SharedCounts, epsilon: float, delta: float) -> tuple[float, float]:
    """Where to look for the share whose sum has the variance that a discrete Gaussian needs."""
    rho = concentration_of(epsilon, delta)
    wanted = on.contribution**2 * on.coordinates / (2 * rho * on.shares)
    found, _ = bisect_ratio(
        lambda sigma: _share_variance(sigma) >= wanted,
        max(1.0, 2 * math.sqrt(wanted)),
        0.05,
        ratio=1 + 1e-6,
    )
    return found * (1 - 1e-4), found * (1 + 1e-4)


@lru_cache(maxsize=1024)
def _share_variance(sigma: float) -> float:
    """Variance of the discrete Gaussian; far below sigma^2 for sigma < 1/2.

    It is sigma^2 up to e^(-2 (pi sigma)^2): no table of a large one is needed.
    """
    if sigma >= TABLED:
        return sigma**2
    probabilities = _one_share(sigma)
    reach = len(probabilities) // 2
    return float(np.arange(-reach, reach + 1) ** 2 @ probabilities)


def sum_probabilities(sigma: float, shares: int) -> Floats:
    """Probabilities of the sum of `shares` discrete Gaussians, centred; every term is positive,
    so repeated convolution keeps the relative precision of the tails. Wide ones add up to a
    discrete Gaussian again.
    """
    if sigma >= WIDE:
        return _one_share(math.sqrt(shares) * sigma)
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
    """Without the tails below 1e-75, symmetrically."""
    keep = np.flatnonzero(probabilities > 1e-75)
    cut = min(int(keep[0]), len(probabilities) - 1 - int(keep[-1]))
    return probabilities[cut : len(probabilities) - cut]


def _reach(sigma: float) -> int:
    """Beyond 16 sigma lies less than 1e-55 of the probability."""
    return math.ceil(16 * max(sigma, 1.0))


def log_beyond_reach(sigma: float) -> float:
    """Logarithm of (a bound on) the probability that a share is beyond its reach."""
    first = _reach(sigma) + 1
    # A geometric series from the first value that is cut off, on both sides.
    return math.log(2) - first**2 / (2 * sigma**2) - math.log(-math.expm1(-first / sigma**2))


def _shared_delta(sigma: float, on: SharedCounts) -> Callable[[float], float]:
    """delta as a function of epsilon, of what is drawn."""
    unclipped = _unclipped_delta(sigma, on)
    clipped = math.log(on.changes * on.shares) + log_beyond_reach(sigma)

    def delta_at(epsilon: float) -> float:
        clipping = math.exp(clipped) + math.exp(min(epsilon + clipped, 0.0))
        return unclipped(epsilon) + clipping

    return delta_at


def _unclipped_delta(sigma: float, on: SharedCounts) -> Callable[[float], float]:
    """By the exact sum over two counts, or over all where wide noises add up to one of their kind;
    else by the losses on a grid. Where several records change, by Renyi divergences.
    """
    k, shares = on.coordinates, on.shares
    if on.contribution > 1 and sigma >= WIDE:
        return client_gaussian_delta(shares * sigma**2, k, on.contribution)
    if on.contribution > 1:
        return client_counts_delta(sum_probabilities(sigma, shares), k, on.contribution)
    if k == 2:
        return two_counts_delta(sum_probabilities(sigma, shares))
    if sigma >= WIDE:
        return integer_gaussian_delta(math.sqrt(shares) * sigma, k)
    return many_counts_delta(sum_probabilities(sigma, shares), k)


@lru_cache(maxsize=1024)
def _shared_epsilon(sigma: float, on: SharedCounts, delta: float) -> float:
    variance = on.shares * _share_variance(sigma)
    if delta < SMALLEST_DELTA or variance == 0:
        return math.inf
    spread = on.coordinates * on.contribution**2 / variance
    return smallest_epsilon(_shared_delta(sigma, on), delta, variance=spread)
