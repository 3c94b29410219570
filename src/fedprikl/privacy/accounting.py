"""Exact accounts of one law of noise: Gaussian, integer, and by Renyi divergences."""

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from fedprikl.checks import Floats, check_delta
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy

SMALLEST_DELTA = 1e-30  # tested against mpmath down to here; nothing is claimed below
SAFETY = 1 + 1e-9  # on delta: covers the rounding of the sums below, which is under 1e-10
SEARCH = 1 + 1e-9  # how far above the smallest epsilon the search may stop
LARGEST = 1e6  # beyond, no epsilon is looked for
ROUND_OFF = 1e-13  # of each of two sums that are subtracted
NEGLIGIBLE = 1e-45  # outcomes less likely than this count as a certain loss
WIDE = 3.0  # from this sigma on, sums of noises keep the shape of one, to within 1e-37 per noise
# Of delta: the analytic profile is a difference of two tails that come close where the noise is
# many times the sensitivity; at a million times 1e-7 of delta is lost, at 1e8 times 3e-6.
CANCELLATION = 5e-7
LARGEST_RATIO = 1e10  # of noise to sensitivity; beyond, less noise is accounted for
LEAST = 1e-18  # of all rho that are looked for


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


@lru_cache(maxsize=1024)
def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least standard deviation for (epsilon, delta) at a sensitivity of 1."""
    least = _sigma(epsilon, _usable(delta, 1.0))
    return _sigma(epsilon, _usable(delta, min(2 * least, LARGEST_RATIO)))


@lru_cache(maxsize=1024)
def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The epsilon of Gaussian noise whose sd is `ratio` times the sensitivity, rounded up."""
    if delta < SMALLEST_DELTA:
        return math.inf
    accounted = min(ratio, LARGEST_RATIO)
    log_delta = float(np.log(_usable(delta, accounted)))
    log_delta_at = _profile()
    with np.errstate(divide="ignore"):  # of a logarithm of 0 where the noise is huge
        if log_delta_at(accounted, 0.0) < log_delta:
            return 0.0
        low, high = 0.0, 1.0
        while log_delta_at(accounted, high) > log_delta:
            low, high = high, high * 10
        return _root(lambda at: log_delta_at(accounted, at) - log_delta, low, high, 1e-18)


def _sigma(epsilon: float, delta: float) -> float:
    log_delta, log_delta_at = float(np.log(delta)), _profile()
    low, high = 0.1, 1.0
    while log_delta_at(low, epsilon) < log_delta:
        low, high = low / 10, low
    while log_delta_at(high, epsilon) > log_delta:
        low, high = high, high * 10
    return _root(lambda at: log_delta_at(at, epsilon) - log_delta, low, high, 1e-12)


def _profile() -> Callable[[float, float], float]:
    """The logarithm of delta of noise of this sd at this epsilon, for a sensitivity of 1.

    delta = Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma)
    """

    def log_delta_at(sigma: float, epsilon: float) -> float:
        far = epsilon * sigma + 1 / (2 * sigma)
        first = scipy.special.log_ndtr(1 / sigma - far)
        second = epsilon + scipy.special.log_ndtr(-far)
        if second > first:
            return -math.inf
        return float(first + np.log1p(-np.exp(second - first)))

    return log_delta_at


def _root(missing: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    return float(scipy.optimize.brentq(missing, low, high, xtol=tolerance))


def _usable(delta: float, ratio: float) -> float:
    """What is left of delta after the cancellation of two tails, for noise of this ratio."""
    return delta * (1 - CANCELLATION * max(1.0, ratio / 1e6))


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
