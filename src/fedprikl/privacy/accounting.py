"""Exact accounts of one law of noise: Gaussian, integer on few or many counts, and by Renyi
divergences.

Losses of many counts are put on a grid and convolved. An FFT is off by about 1e-16 of the largest
probability, which would swamp a small delta; so probabilities are tilted first, to be largest where
the loss is about epsilon. Then the error is a small part of delta, whatever its size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints, check_delta
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import scipy
from fedprikl.search import bisect, bisect_ratio

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

# Of the account of many counts.
POINTS = 2**14  # of the grid
REACH = 20  # standard deviations of the summed loss, on either side of epsilon
FFT_ERROR = 1e-13  # of each tilted probability; they add up to 1. Seen: 1e-16
PER_OCTAVE = 4  # orders alpha - 1 = 2^(j / 4), of which those near the best one are looked at
NEAR = 2
LOG_ROUND_OFF = 1e-11  # of the logarithm of a probability; tested to be below a fifth of it


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
    low, high = 0.0, normal_tail(variance, delta)
    while delta_at(high) > delta:
        low, high = high, 2 * high
        if high > LARGEST:
            return math.inf
    while high - low > (SEARCH - 1) * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def normal_tail(variance: float, delta: float) -> float:
    """About the epsilon of a normal loss of this variance."""
    return math.sqrt(2 * variance * math.log(1 / delta)) + variance / 2


def integer_gaussian_delta(sigma: float, coordinates: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of discrete Gaussian noise on so many counts changed by 1.

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
    """The epsilon of discrete Gaussian noise on so many counts changed by 1, rounded up.

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
    """delta as a function of epsilon, of independent noise on two counts changed by 1 each.

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
    sigma = min(ratio, LARGEST_RATIO)
    log_delta = float(np.log(_usable(delta, sigma)))

    def over(epsilon: float) -> float:
        return _log_delta(sigma, epsilon) - log_delta

    with np.errstate(divide="ignore"):  # of a logarithm of 0 where the noise is huge
        return 0.0 if over(0.0) < 0 else _root(over, 0.0, 1.0, xtol=1e-18)


def _sigma(epsilon: float, delta: float) -> float:
    log_delta = float(np.log(delta))

    def over(sigma: float) -> float:
        return _log_delta(sigma, epsilon) - log_delta

    low, high = 0.1, 1.0
    while over(low) < 0:
        low, high = low / 10, low
    return _root(over, low, high, xtol=1e-12)


def _root(falling: Callable[[float], float], low: float, high: float, *, xtol: float) -> float:
    """Where a falling function, not below 0 at `low`, is 0."""
    while falling(high) > 0:
        low, high = high, high * 10
    return float(scipy.optimize.brentq(falling, low, high, xtol=xtol))


def _log_delta(sigma: float, epsilon: float) -> float:
    """The logarithm of delta of noise of this sd at this epsilon, for a sensitivity of 1.

    delta = Phi(1/(2 sigma) - epsilon sigma) - e^epsilon Phi(-1/(2 sigma) - epsilon sigma)
    """
    far = epsilon * sigma + 1 / (2 * sigma)
    first = scipy.special.log_ndtr(1 / sigma - far)
    second = epsilon + scipy.special.log_ndtr(-far)
    if second > first:
        return -math.inf
    return float(first + np.log1p(-np.exp(second - first)))


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
    return bisect_ratio(
        lambda rho: concentrated_epsilon(rho, delta) <= epsilon, low, high, ratio=1 + 1e-9
    )[0]


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


def many_counts_delta(probabilities: Floats, coordinates: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise on so many counts changed by 1 each.

    `probabilities` are those of the noise on one count, centred and symmetric, so that it makes no
    difference which counts rise and which fall. Never below the truth:

    - An outcome of loss l between two points a < b of the grid is split into two outcomes of loss a
      and b, with both of its probabilities (with and without the record) kept. The noise itself is
      what remains if nobody can tell the two apart, so it is no less private.
    - What the sum does beyond the grid counts as a certain loss (Chernoff's bound), and so do
      outcomes of less than 1e-45.
    - The error of the FFT is added.
    """
    kept = probabilities[probabilities > NEGLIGIBLE]
    cut = coordinates * (float(kept[-1]) + len(probabilities) * NEGLIGIBLE)
    one = _Outcomes(np.log(kept[:-1]), np.log(kept[:-1]) - np.log(kept[1:]))

    return lambda epsilon: (_summed_delta(one, coordinates, epsilon) + cut) * SAFETY


@dataclass(frozen=True, slots=True, eq=False)
class _Outcomes:
    """Of the noise on one count: log probability, and loss if the count is changed by 1."""

    log_mass: Floats
    loss: Floats

    def cumulant(self, tilt: float) -> float:
        """ln E e^(tilt loss)."""
        exponent = self.log_mass + tilt * self.loss
        top = float(exponent.max())
        return top + math.log(float(np.exp(exponent - top).sum()))

    def tilted(self, tilt: float) -> Floats:
        """Probabilities in proportion to e^(tilt loss) P(outcome)."""
        exponent = self.log_mass + tilt * self.loss
        weights = np.exp(exponent - exponent.max())
        probabilities: Floats = weights / weights.sum()
        return probabilities

    def mean(self, tilt: float) -> float:
        return float(self.tilted(tilt) @ self.loss)

    def variance(self, tilt: float) -> float:
        return float(self.tilted(tilt) @ (self.loss - self.mean(tilt)) ** 2)


def _tilt(one: _Outcomes, mean: float) -> float:
    """A tilt, of at least 0, with about this mean of the loss; any tilt gives a valid account."""
    low, high = 0.0, 1.0
    while one.mean(high) < mean and high < 2**20:
        low, high = high, 2 * high
    return bisect(lambda tilt: one.mean(tilt) < mean, low, high, halvings=20)[1]


def _summed_delta(one: _Outcomes, coordinates: int, epsilon: float) -> float:
    """Sum over losses l above epsilon of P(l) (1 - e^(epsilon - l)), from their tilted law."""
    tilt = _tilt(one, epsilon / coordinates)
    spread = math.sqrt(coordinates * max(one.variance(tilt), one.variance(0.0)))
    step = 2 * REACH * spread / POINTS
    places, split = _on_grid(one, step)
    single = np.bincount(places % POINTS, split.tilted(tilt), minlength=POINTS)
    summed = np.maximum(np.fft.irfft(np.fft.rfft(single) ** coordinates, POINTS), 0.0)
    first = math.floor(epsilon / step) - POINTS // 2  # of the grid, in steps
    masses = np.roll(summed, -(first % POINTS))
    loss = step * np.arange(first, first + POINTS)
    more = loss[loss > epsilon] - epsilon
    weights = np.exp(-tilt * more) * -np.expm1(-more)
    tilted = float((masses[loss > epsilon] + FFT_ERROR) @ weights)
    further = tilt + REACH / (2 * spread)
    beyond = coordinates * split.cumulant(further) - further * step * (first + POINTS)
    untilted = math.exp(min(coordinates * split.cumulant(tilt) - tilt * epsilon, 700.0)) * tilted
    return untilted + math.exp(min(beyond, 0.0))


def _on_grid(one: _Outcomes, step: float) -> tuple[Ints, _Outcomes]:
    """Each outcome in two, on the grid, and their places there.

    Both probabilities are kept: p = u + v and p e^-l = u e^-a + v e^-b.
    """
    below = np.floor(one.loss / step)
    upper = np.clip(np.expm1(below * step - one.loss) / math.expm1(-step), 0.0, 1.0)
    places = np.concatenate([below, below + 1])
    with np.errstate(divide="ignore"):  # an outcome on the grid has one part only
        parts = np.log(np.concatenate([1 - upper, upper]))
    return places.astype(np.int64), _Outcomes(np.tile(one.log_mass, 2) + parts, places * step)


def client_gaussian_delta(
    variance: float, coordinates: int, contribution: int
) -> Callable[[float], float]:
    """delta as a function of epsilon, of discrete Gaussian noise with this sigma^2 on each count.

    rho = coordinates k^2 / (2 sigma^2): a shift by m has a divergence of at most
    alpha m^2 / (2 sigma^2), for every whole m (Canonne, Kamath and Steinke 2020).
    """
    rho = coordinates * contribution * contribution / (2 * variance)
    return lambda epsilon: renyi_delta(orders() * rho, orders(), epsilon) * SAFETY


def client_counts_delta(
    probabilities: Floats, coordinates: int, contribution: int
) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise with these (centred, symmetric)
    probabilities on each count, where one record changes `coordinates` counts by 1 each.

    With D_alpha(m) the divergence of the noise from the noise shifted by m,

        c_alpha = max over m = 1 .. k of D_alpha(m) / m^2,    D_alpha <= c_alpha coordinates k^2

    for all shifts that k records can make: no count changes by more than k, and the squares add up
    to at most coordinates k^2. Outcomes of less than 1e-45, with and without the shift, count as a
    certain loss; at most coordinates k counts change at all.
    """
    kept = probabilities[probabilities > NEGLIGIBLE]
    reach = len(kept) // 2
    if contribution >= reach:
        return lambda _: 1.0
    beyond = (
        float(kept[reach + (reach - contribution) + 1 :].sum()) + len(probabilities) * NEGLIGIBLE
    )
    certain = 2 * coordinates * contribution * beyond
    log_p = np.log(kept)
    squares = coordinates * contribution * contribution
    spread = float(np.arange(-reach, reach + 1) ** 2 @ kept)

    @cache
    def divergence(place: int) -> float:
        alpha = 1 + 2.0 ** (place / PER_OCTAVE)
        return _largest_per_square(log_p, alpha, contribution) * squares

    def delta_at(epsilon: float) -> float:
        # Of Gaussian noise with this variance, alpha - 1/2 = epsilon V / squares would be best.
        best = max(epsilon * spread / squares - 0.5, 2.0**-10)
        middle = round(PER_OCTAVE * math.log2(best))
        places = range(middle - NEAR, middle + NEAR + 1)
        alpha = np.array([1 + 2.0 ** (place / PER_OCTAVE) for place in places])
        found = np.array([divergence(place) for place in places])
        return (renyi_delta(found, alpha, epsilon) + certain) * SAFETY

    return delta_at


def _largest_per_square(log_p: Floats, alpha: float, contribution: int) -> float:
    """c_alpha, over the outcomes that are kept with and without the shift."""
    found = 0.0
    for m in range(1, contribution + 1):
        exponents = alpha * log_p[:-m] + (1 - alpha) * log_p[m:]
        top = float(exponents.max())
        summed = top + math.log(float(np.exp(exponents - top).sum()))
        rounding = (2 * alpha - 1) * LOG_ROUND_OFF
        found = max(found, (summed + rounding) / ((alpha - 1) * m * m))
    return found * SAFETY
