"""The exact account of integer noise: delta summed over outcomes, all terms positive.

Convolving privacy losses by FFT is off by about 1e-16 whatever the size of delta; here the relative
precision is kept, so that a delta of 1e-30 means what it says.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, check_delta
from fedprikl.errors import InvalidInputError

__all__ = [
    "SEARCH",
    "SMALLEST_DELTA",
    "WIDE",
    "check_accounted_delta",
    "integer_gaussian_delta",
    "integer_gaussian_epsilon",
    "smallest_epsilon",
    "two_counts_delta",
]

SMALLEST_DELTA = 1e-30  # tested against mpmath down to here; nothing is claimed below
SAFETY = 1 + 1e-9  # on delta: covers the rounding of the sums below, which is under 1e-10
SEARCH = 1 + 1e-9  # how far above the smallest epsilon the search may stop
LARGEST = 1e6  # beyond, no epsilon is looked for
ROUND_OFF = 1e-13  # of each of two sums that are subtracted
NEGLIGIBLE = 1e-45  # outcomes less likely than this count as a certain loss
WIDE = 3.0  # from this sigma on, sums of noises keep the shape of one, to within 1e-37 per noise


def check_accounted_delta(delta: float) -> float:
    """A delta for which integer Gaussian noise can be accounted."""
    if check_delta(delta) < SMALLEST_DELTA:
        raise InvalidInputError(
            f"Gaussian noise is accounted down to a delta of {SMALLEST_DELTA:g}, "
            f"got {delta:g}. Raise delta, or use Laplace noise."
        )
    return delta


def smallest_epsilon(delta_at: Callable[[float], float], delta: float, *, variance: float) -> float:
    """The smallest epsilon with `delta_at(epsilon) <= delta`, at most `SEARCH` above it.

    `variance` of the privacy loss, roughly, says where to look first.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, math.sqrt(2 * variance * math.log(1 / delta)) + variance / 2
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > LARGEST:
            return math.inf
    while high - low > (SEARCH - 1) * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def integer_gaussian_delta(sigma: float, coordinates: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of discrete Gaussian noise on so many counts moved by 1.

    The privacy loss is linear in the sum s of k noises, and the law of s is known:

        loss = (s + k/2) / sigma^2,    P(s) = w(s mod k) exp(-s^2 / (2 k sigma^2))
    """
    k = coordinates
    weights = None if sigma >= WIDE else _coset_weights(sigma, coordinates)
    spread = math.sqrt(k) * sigma

    def masses(first: int, last: int) -> Floats:
        s = np.arange(first, last + 1)
        normal: Floats = np.exp(-((s / spread) ** 2) / 2)
        return normal if weights is None else weights[s % k] * normal

    reach = math.ceil(12 * spread) + 1  # e^-72 of the sum lies beyond
    total = masses(-reach, reach).sum()

    def delta_at(epsilon: float) -> float:
        first = max(math.floor(epsilon * sigma**2 - k / 2), -reach)
        if first / spread > 40:  # where P(s) underflows
            return 0.0
        last = max(first, 0) + reach
        loss = (np.arange(first, last + 1) + k / 2) / sigma**2
        kept = -np.expm1(np.minimum(epsilon - loss, 0.0))
        return float(masses(first, last) @ kept / total) * SAFETY

    return delta_at


@lru_cache(maxsize=256)
def integer_gaussian_epsilon(sigma: float, coordinates: int, delta: float) -> float:
    """The epsilon of discrete Gaussian noise on so many counts moved by 1, rounded up.

    Infinite for a delta below 1e-30, where nothing is accounted.
    """
    if delta < SMALLEST_DELTA:
        return math.inf
    delta_at = integer_gaussian_delta(sigma, coordinates)
    return smallest_epsilon(delta_at, delta, variance=coordinates / sigma**2)


@lru_cache(maxsize=256)
def _coset_weights(sigma: float, coordinates: int) -> Floats:
    """w, up to a factor: adding 1 to each of k whole numbers adds k to their sum s, so P(s) departs
    from a normal shape only by a factor that depends on s mod k. From j - 1 numbers to j:

        w_j(s) = sum over x of w_(j-1)(s - x) exp(-j/(j-1) (x - s/j)^2 / (2 sigma^2))
    """
    weights = np.ones(1)
    reach = math.ceil(12 * sigma) + 2
    for j in range(2, coordinates + 1):
        s, x = np.arange(j)[:, None], np.arange(-reach, reach + 1)
        bells = np.exp(-j / (j - 1) * ((x - s / j) / sigma) ** 2 / 2)
        weights = (bells * weights[(s - x) % (j - 1)]).sum(axis=1)
        weights /= weights.max()
    return weights


def two_counts_delta(probabilities: Floats) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise on two counts moved by 1 each.

    `probabilities` are centred, symmetric and log-concave, so that the loss of one count,
    L(x) = log p(x) / p(x + 1), grows with x:

        delta = sum over x of p(x) [ P(L > epsilon - L(x)) - e^(epsilon - L(x)) Q(same) ]
    """
    kept = probabilities[probabilities > NEGLIGIBLE]
    p, q = kept[:-1], kept[1:]
    cut = 2 * (float(kept[-1]) + len(probabilities) * NEGLIGIBLE)
    loss = np.maximum.accumulate(np.log(p) - np.log(q))
    above_p, above_q = _tails(p), _tails(q)

    def delta_at(epsilon: float) -> float:
        place = np.searchsorted(loss, epsilon - loss, side="right")
        some = place < len(loss)
        mine = p[some] * above_p[place[some]]
        other = p[some] * np.exp(epsilon - loss[some]) * above_q[place[some]]
        rounded = ROUND_OFF * float((mine + other).sum())
        return (float((mine - other).sum()) + rounded + cut) * SAFETY

    return delta_at


def _tails(masses: Floats) -> Floats:
    """Sum from each place on."""
    sums: Floats = np.cumsum(masses[::-1])[::-1]
    return sums
