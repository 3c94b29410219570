"""Discrete Laplace noise in shares: every client adds a little, and the sum is exactly Laplace.

The discrete Laplace distribution is infinitely divisible: it is the difference of two geometric
variables, and a geometric variable is the sum of n Polya variables of shape 1/n.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Ints, check_delta, check_epsilon, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.charges import AccountedRelease, check_zero_or_delta
from fedprikl.privacy.integer_laplace import ROUNDING, laplace_variance
from fedprikl.privacy.noise import NoiseSource
from fedprikl.privacy.polya import MOST_SHARES, SCALES, polya_reach

__all__ = ["SAMPLER_DELTA", "SharedLaplaceMechanism", "calibrate_shared_laplace"]

SAMPLER_DELTA = 2.0**-60  # above what the sampler's distance from the true distribution can cost


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLaplaceMechanism:
    """Counts under the summed noise of at least `shares` honest clients.

        P(noise = k)  proportional to  exp(-|k| / scale),    epsilon = coordinates moved / scale

    One record moves at most `coordinates` of the summed counts, by 1 each (two in every table of
    counts: it leaves one cell and enters another), and no probability changes by more than
    exp(1 / scale) in each: pure privacy. Whoever is protected has `moved` records; they move at
    most coordinates moved counts. Shares of dropped or colluding clients are not
    counted. More honest shares than `shares` are independent of the records and of the others, so
    adding them is post-processing, and the guarantee stays.

    What is drawn is off by less than 2^(1-B) in total variation per Polya variable, with
    B = 100 + epsilon / ln 2 + log2(C / 2) (`polya.tail_bits`), C = coordinates moved. So many
    counts of `shares` shares of two variables each are then off by tau < 2 C shares 2^(1-B), which
    costs a
    delta of at most (1 + e^epsilon) tau < 2^-96 shares <= 2^-64. The other counts look the
    same in both worlds and cost nothing. The `failure` of the secure sum, a probability that does
    not depend on the records, comes on top.

    Goryczka and Xiong (2017) compare such shares; here they are accounted to the last bit.

    >>> mechanism = calibrate_shared_laplace(epsilon=1.0, shares=100)
    >>> print(mechanism)
    discrete Laplace noise in shares, of standard deviation 2.799 or more on each count
    >>> mechanism.proved_delta(1e-6) == SAMPLER_DELTA
    True
    """

    scale: float  # b of the summed noise
    shares: int  # honest shares that are in every sum that can be opened
    failure: float = 0.0  # probability that a sum opens to less than its cohort
    coordinates: int = 2  # counts that one record can move
    moved: int = 1  # records of whoever is protected

    def __post_init__(self) -> None:
        check_zero_or_delta(self.failure, "failure")
        check_positive_int(self.coordinates, "coordinates")
        check_positive_int(self.moved, "moved")
        low, high = SCALES
        if not low <= self.scale <= high:
            raise InvalidInputError(
                f"Laplace noise in shares is for epsilon from {self._changes / high:g} to "
                f"{self._changes / low:g}, got {self._changes / self.scale:g}. Use Gaussian noise."
            )
        if check_positive_int(self.shares, "shares") > MOST_SHARES:
            raise InvalidInputError(f"Noise is split into at most {MOST_SHARES:,} shares.")

    @property
    def standard_deviation(self) -> float:
        """Of the noise of `shares` shares on each count: a little under sqrt(2) b."""
        return math.sqrt(laplace_variance(self.scale))

    @property
    def share_variance(self) -> float:
        """Of one client's noise on each count."""
        return laplace_variance(self.scale) / self.shares

    @property
    def sensitivity(self) -> float:
        """L1, over all counts."""
        return float(self._changes)

    def epsilon(self, delta: float) -> float:
        """coordinates moved / b for every delta of at least 2^-60 + failure; infinite below."""
        if check_delta(delta) < self._used_delta:
            return math.inf
        return math.nextafter(self._changes / self.scale, math.inf)

    def charge(self, delta: float) -> AccountedRelease:
        """What one release costs: its epsilon, and 2^-60 + failure of the allowed delta."""
        return AccountedRelease(
            proved_epsilon=self.epsilon(delta), proved_delta=self.proved_delta(delta)
        )

    def proved_delta(self, delta: float) -> float:  # noqa: ARG002  it needs no more than its own
        """Of the sampler and of the secure sum; the noise itself needs none."""
        return self._used_delta

    @property
    def _changes(self) -> int:
        """C: counts that can change, each by 1; fewer by more in L1."""
        return self.coordinates * self.moved

    @property
    def _used_delta(self) -> float:
        return SAMPLER_DELTA + self.failure

    @property
    def laplace_scale(self) -> float:
        """Of the summed noise, which is discrete Laplace noise."""
        return self.scale

    @property
    def reach(self) -> int:
        """A share is never beyond this; what it cuts off is in the delta of 2^-60."""
        return polya_reach(self.scale, self._changes)

    def draw_share(self, entries: int, source: NoiseSource) -> Ints:
        """One client's noise for so many counts. SECRET until summed."""
        share = source.laplace_share(
            entries, scale=self.scale, shares=self.shares, coordinates=self._changes
        )
        return np.clip(share, -self.reach, self.reach)

    def __str__(self) -> str:
        return (
            "discrete Laplace noise in shares, of standard deviation "
            f"{self.standard_deviation:.4g} or more on each count"
        )


def calibrate_shared_laplace(
    *, epsilon: float, shares: int, failure: float = 0.0, coordinates: int = 2, moved: int = 1
) -> SharedLaplaceMechanism:
    """Shares of noise whose sum, of scale coordinates moved / epsilon, has a delta of
    2^-60 + failure.
    """
    changes = check_positive_int(coordinates, "coordinates") * check_positive_int(moved, "moved")
    scale = changes * ROUNDING / check_epsilon(epsilon)
    check_positive_int(shares, "shares")
    return SharedLaplaceMechanism(
        scale=scale, shares=shares, failure=failure, coordinates=coordinates, moved=moved
    )
