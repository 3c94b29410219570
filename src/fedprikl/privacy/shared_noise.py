"""Noise in shares: every client adds a little integer noise, and only the sum is seen."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta, check_epsilon, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.accounting import (
    SEARCH,
    SMALLEST_DELTA,
    WIDE,
    check_accounted_delta,
    concentration_of,
    integer_gaussian_delta,
    smallest_epsilon,
    two_counts_delta,
)
from fedprikl.privacy.calibrated import NoiseKind
from fedprikl.privacy.integer_noise import ROUNDING, laplace_variance
from fedprikl.privacy.many_counts import many_counts_delta, moved_counts_delta, moved_gaussian_delta
from fedprikl.privacy.mechanism import (
    AccountedRelease,
    Charge,
    ConcentratedRelease,
    Together,
    check_zero_or_delta,
)
from fedprikl.privacy.noise import MOST_SHARES, SCALES, NoiseSource, polya_reach
from fedprikl.privacy.real_noise import calibrate_gaussian

SAMPLER_DELTA = 2.0**-60  # above what the sampler's distance from the true distribution can cost
SHAPE = 1e-36  # more than a sum of wide noises departs from the shape of one, for each noise
LARGEST_TOTAL = 60.0  # epsilon of all releases together: beyond, nothing is hidden
GAUSSIAN_ROUNDING = 1 + 1e-9  # of rho


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGaussianMechanism:
    """Counts under the summed noise of at least `shares` honest clients.

    One record moves at most `coordinates` of the summed counts, by 1 each; whoever is protected has
    `moved` records. Shares of dropped or colluding clients are not counted: `shares` is what is
    left without them.

    What delta pays for: the noise itself; that a share is cut off at its `reach`, which moves each
    of C shares draws, C = coordinates moved, with probability tail and so costs
    (1 + e^epsilon) C shares tail; and the `failure` of the secure sum, a probability
    that does not depend on the records.

    >>> mechanism = calibrate_shared_gaussian(epsilon=1.0, delta=1e-6, shares=100)
    >>> print(mechanism)
    integer Gaussian noise in shares, of standard deviation 5.959 or more on each count
    """

    sigma: float  # parameter of each client's discrete Gaussian
    shares: int  # honest shares that are in every sum that can be opened
    failure: float = 0.0  # probability that a sum opens to less than its cohort
    coordinates: int = 2  # counts that one record can move
    moved: int = 1  # records of whoever is protected

    def __post_init__(self) -> None:
        check_zero_or_delta(self.failure, "failure")
        check_positive_int(self.coordinates, "coordinates")
        check_positive_int(self.moved, "moved")

    @property
    def standard_deviation(self) -> float:
        """Of the noise of `shares` shares on each count."""
        return math.sqrt(self.shares * self.share_variance)

    @property
    def share_variance(self) -> float:
        """Of one client's noise on each count."""
        return _share_variance(self.sigma)

    def epsilon(self, delta: float) -> float:
        """From the exact probabilities of the summed noise, rounded up (pessimistic).

        Infinite where less than 1e-30 of delta is left after the failure of the sum.
        """
        usable = check_delta(delta) - self.failure
        return _shared_epsilon(self.sigma, self.shares, self.coordinates, self.moved, usable)

    @property
    def sensitivity(self) -> float:
        """L2, over all counts."""
        return self.moved * math.sqrt(self.coordinates)

    def charge(self, delta: float) -> Charge:
        """What one release costs.

        Wide shares on the counts of whole clients add up to discrete Gaussian noise, so rho is
        known, and many releases compose by it. Beside it a tiny epsilon pays for the shape of the
        sum, which is off by a factor, and delta for failures and cut tails: a distance tau costs
        (1 + e^epsilon) tau, here for totals up to 60.
        """
        if self.moved == 1 or self.sigma < WIDE:
            return AccountedRelease(proved_epsilon=self.epsilon(delta), proved_delta=delta)
        rho = self.coordinates * self.moved**2 / (2 * self.shares * self.sigma**2)
        draws = self.coordinates * self.moved * self.shares
        cut = draws * math.exp(_log_beyond_reach(self.sigma) + LARGEST_TOTAL) * 2
        return Together(
            (
                ConcentratedRelease(rho=rho * GAUSSIAN_ROUNDING),
                AccountedRelease(proved_epsilon=2 * draws * SHAPE, proved_delta=self.failure + cut),
            )
        )

    def proved_delta(self, delta: float) -> float:
        """delta: Gaussian noise needs all of it."""
        return delta

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


@lru_cache(maxsize=64)
def calibrate_shared_gaussian(
    *,
    epsilon: float,
    delta: float,
    shares: int,
    failure: float = 0.0,
    coordinates: int = 2,
    moved: int = 1,
) -> SharedGaussianMechanism:
    """The least share of noise for which the sum of `shares` of them gives (epsilon, delta)."""
    check_epsilon(epsilon)
    check_positive_int(shares, "shares")
    check_positive_int(coordinates, "coordinates")
    check_positive_int(moved, "moved")
    usable = delta_without_failure(delta, failure)
    check_accounted_delta(usable)
    target = epsilon / SEARCH**2  # so that the search for epsilon does not end above it

    def fits(sigma: float) -> bool:
        return _shared_delta(sigma, shares, coordinates, moved)(target) <= usable

    low, high = (0.05, 1.0) if moved == 1 else _near(epsilon, usable, shares, coordinates, moved)
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e6:
            raise InvalidInputError(
                f"No integer noise within reach gives epsilon {epsilon:g}, delta {delta:g}."
            )
    while high / low > 1 + 1e-4:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return SharedGaussianMechanism(
        sigma=high, shares=shares, failure=failure, coordinates=coordinates, moved=moved
    )


def _near(
    epsilon: float, delta: float, shares: int, coordinates: int, moved: int
) -> tuple[float, float]:
    """Where to look for the share whose sum has the variance that a discrete Gaussian needs."""
    rho = concentration_of(epsilon, delta)
    wanted = moved * moved * coordinates / (2 * rho * shares)
    low, high = 0.05, max(1.0, 2 * math.sqrt(wanted))
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _share_variance(middle) >= wanted else (middle, high)
    return high * (1 - 1e-4), high * (1 + 1e-4)


def delta_without_failure(delta: float, failure: float) -> float:
    """What a failure of the secure sum leaves of delta."""
    if check_delta(delta) <= check_zero_or_delta(failure, "failure"):
        raise InvalidInputError(
            f"A sum may open to less than its cohort with probability {failure:.2g}, which is not "
            f"below the delta of {delta:g}. Raise delta, or use smaller cohorts: they need no "
            "such allowance."
        )
    return delta - failure


@lru_cache(maxsize=1024)
def _share_variance(sigma: float) -> float:
    """Variance of the discrete Gaussian; far below sigma^2 for sigma < 1/2."""
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


def _log_beyond_reach(sigma: float) -> float:
    """Logarithm of (a bound on) the probability that a share is beyond its reach."""
    first = _reach(sigma) + 1
    # A geometric series from the first value that is cut off, on both sides.
    return math.log(2) - first**2 / (2 * sigma**2) - math.log(-math.expm1(-first / sigma**2))


def _shared_delta(
    sigma: float, shares: int, coordinates: int, moved: int
) -> Callable[[float], float]:
    """delta as a function of epsilon, of what is drawn."""
    unclipped = _unclipped_delta(sigma, shares, coordinates, moved)
    clipped = math.log(coordinates * moved * shares) + _log_beyond_reach(sigma)

    def delta_at(epsilon: float) -> float:
        clipping = math.exp(clipped) + math.exp(min(epsilon + clipped, 0.0))
        return unclipped(epsilon) + clipping

    return delta_at


def _unclipped_delta(
    sigma: float, shares: int, coordinates: int, moved: int
) -> Callable[[float], float]:
    """By the exact sum over two counts, or over all where wide noises add up to one of their kind;
    else by the losses on a grid. Where several records move, by Renyi divergences.
    """
    if moved > 1 and sigma >= WIDE:
        return moved_gaussian_delta(shares * sigma**2, coordinates, moved)
    if moved > 1:
        return moved_counts_delta(sum_probabilities(sigma, shares), coordinates, moved)
    if coordinates == 2:
        return two_counts_delta(sum_probabilities(sigma, shares))
    if sigma >= WIDE:
        return integer_gaussian_delta(math.sqrt(shares) * sigma, coordinates)
    return many_counts_delta(sum_probabilities(sigma, shares), coordinates)


@lru_cache(maxsize=1024)
def _shared_epsilon(sigma: float, shares: int, coordinates: int, moved: int, delta: float) -> float:
    if delta < SMALLEST_DELTA:
        return math.inf
    variance = shares * _share_variance(sigma)
    if variance == 0:
        return math.inf
    delta_at = _shared_delta(sigma, shares, coordinates, moved)
    return smallest_epsilon(delta_at, delta, variance=coordinates * moved**2 / variance)


SharedMechanism = SharedGaussianMechanism | SharedLaplaceMechanism


def calibrate_shared(
    *,
    epsilon: float,
    delta: float,
    shares: int,
    kind: NoiseKind = "auto",
    failure: float = 0.0,
    coordinates: int = 2,
    moved: int = 1,
) -> SharedMechanism:
    """The least noise in shares that gives (epsilon, delta).

    `coordinates`: how many counts one record can move, by 1 each; 2 in every table of counts.
    `moved`: the records of whoever is protected; 1, or those of a client.
    `failure`: the probability that a secure sum opens to less than its cohort; delta pays for it.
    "auto" does not depend on `shares`, so all cohorts of a round carry noise of one kind.
    """
    usable = delta_without_failure(delta, failure)
    if kind == "auto":
        kind = "laplace" if _laplace_is_smaller(epsilon, usable, coordinates, moved) else "gaussian"
    if kind == "laplace":
        if delta < SAMPLER_DELTA + failure:
            raise InvalidInputError(
                f"Laplace noise in shares is drawn to a delta of {SAMPLER_DELTA:.2g}, more than "
                f"the {usable:g} allowed. Raise delta, or use Gaussian noise."
            )
        return calibrate_shared_laplace(
            epsilon=epsilon,
            shares=shares,
            failure=failure,
            coordinates=coordinates,
            moved=moved,
        )
    if kind == "gaussian":
        return calibrate_shared_gaussian(
            epsilon=epsilon,
            delta=delta,
            shares=shares,
            failure=failure,
            coordinates=coordinates,
            moved=moved,
        )
    raise InvalidInputError(f"Noise must be 'auto', 'laplace' or 'gaussian', got {kind!r}.")


def _laplace_is_smaller(epsilon: float, delta: float, coordinates: int, moved: int) -> bool:
    """By standard deviation; the Gaussian's by its continuous formula, because the exact account
    takes longer. They differ by a few percent; where the two kinds are as close, either will do.
    """
    changes = check_positive_int(coordinates, "coordinates") * check_positive_int(moved, "moved")
    if moved > 1:
        sigma = moved * math.sqrt(coordinates / (2 * concentration_of(epsilon, delta)))
    else:
        length = math.sqrt(coordinates)
        sigma = calibrate_gaussian(epsilon=epsilon, delta=delta, sensitivity=length).sigma
    low, high = SCALES
    if delta < SAMPLER_DELTA or not changes / high <= epsilon <= changes / low:
        return False
    return math.sqrt(laplace_variance(changes / epsilon)) <= sigma
