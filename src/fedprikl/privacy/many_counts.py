"""The account of independent noise on many counts, each moved by 1.

Losses of single counts are put on a grid and convolved. An FFT is off by about 1e-16 of the largest
probability, which would swamp a small delta; so probabilities are tilted first, to be largest where
the loss is about epsilon. Then the error is a small part of delta, whatever its size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.privacy.accounting import NEGLIGIBLE, SAFETY, orders, renyi_delta
from fedprikl.privacy.accounting import SAFETY as SUMS

POINTS = 2**14  # of the grid
REACH = 20  # standard deviations of the summed loss, on either side of epsilon
FFT_ERROR = 1e-13  # of each tilted probability; they add up to 1. Seen: 1e-16
PER_OCTAVE = 4  # orders alpha - 1 = 2^(j / 4), of which those near the best one are looked at
NEAR = 2
ROUND_OFF = 1e-11  # of the logarithm of a probability; tested to be below a fifth of it


def many_counts_delta(probabilities: Floats, coordinates: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise on so many counts moved by 1 each.

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

    def delta_at(epsilon: float) -> float:
        tilt = _tilt(one, epsilon / coordinates)
        spread = math.sqrt(coordinates * max(one.variance(tilt), one.variance(0.0)))
        summed = _Sum.of(one, coordinates, epsilon=epsilon, tilt=tilt, spread=spread)
        return (summed.delta(epsilon) + summed.beyond + cut) * SAFETY

    return delta_at


@dataclass(frozen=True, slots=True, eq=False)
class _Outcomes:
    """Of the noise on one count: log probability, and loss if the count is moved by 1."""

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
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if one.mean(middle) < mean else (low, middle)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """The tilted law of the summed loss on the grid, from `first` steps on."""

    tilt: float
    cumulant: float  # of the summed loss
    first: int
    step: float
    masses: Floats
    beyond: float  # a bound on the probability of losses above the grid

    @classmethod
    def of(
        cls, one: _Outcomes, coordinates: int, *, epsilon: float, tilt: float, spread: float
    ) -> "_Sum":
        step = 2 * REACH * spread / POINTS
        places, split = _on_grid(one, step)
        single = np.bincount(places % POINTS, split.tilted(tilt), minlength=POINTS)
        masses = np.fft.irfft(np.fft.rfft(single) ** coordinates, POINTS)
        first = math.floor(epsilon / step) - POINTS // 2
        further = tilt + REACH / (2 * spread)
        beyond = coordinates * split.cumulant(further) - further * step * (first + POINTS)
        return cls(
            tilt=tilt,
            cumulant=coordinates * split.cumulant(tilt),
            first=first,
            step=step,
            masses=np.roll(np.maximum(masses, 0.0), -(first % POINTS)),
            beyond=math.exp(min(beyond, 0.0)),
        )

    def delta(self, epsilon: float) -> float:
        """Sum over losses above epsilon of P(loss) (1 - e^(epsilon - loss)), untilted."""
        loss = self.step * np.arange(self.first, self.first + POINTS)
        more = loss[loss > epsilon] - epsilon
        weights = np.exp(-self.tilt * more) * -np.expm1(-more)
        tilted = float((self.masses[loss > epsilon] + FFT_ERROR) @ weights)
        return math.exp(min(self.cumulant - self.tilt * epsilon, 700.0)) * tilted


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


def moved_gaussian_delta(variance: float, coordinates: int, moved: int) -> Callable[[float], float]:
    """delta as a function of epsilon, of discrete Gaussian noise with this sigma^2 on each count.

    rho = coordinates moved^2 / (2 sigma^2): a shift by m has a divergence of at most
    alpha m^2 / (2 sigma^2), for every whole m (Canonne, Kamath and Steinke 2020).
    """
    rho = coordinates * moved * moved / (2 * variance)
    return lambda epsilon: renyi_delta(orders() * rho, orders(), epsilon) * SUMS


def moved_counts_delta(
    probabilities: Floats, coordinates: int, moved: int
) -> Callable[[float], float]:
    """delta as a function of epsilon, of independent noise with these (centred, symmetric)
    probabilities on each count, where one record moves `coordinates` counts by 1 each.

    With D_alpha(m) the divergence of the noise from the noise shifted by m,

        c_alpha = max over m = 1 .. k of D_alpha(m) / m^2,    D_alpha <= c_alpha coordinates k^2

    for all shifts that k records can make: no count moves by more than k, and the squares add up to
    at most coordinates k^2. Outcomes of less than 1e-45, with and without the shift, count as a
    certain loss; at most coordinates k counts move at all.
    """
    kept = probabilities[probabilities > NEGLIGIBLE]
    reach = len(kept) // 2
    if moved >= reach:
        return lambda _: 1.0
    beyond = float(kept[reach + (reach - moved) + 1 :].sum()) + len(probabilities) * NEGLIGIBLE
    certain = 2 * coordinates * moved * beyond
    log_p = np.log(kept)
    squares = coordinates * moved * moved
    spread = float(np.arange(-reach, reach + 1) ** 2 @ kept)

    @cache
    def divergence(place: int) -> float:
        alpha = 1 + 2.0 ** (place / PER_OCTAVE)
        return _largest_per_square(log_p, alpha, moved) * squares

    def delta_at(epsilon: float) -> float:
        # Of Gaussian noise with this variance, alpha - 1/2 = epsilon V / squares would be best.
        best = max(epsilon * spread / squares - 0.5, 2.0**-10)
        middle = round(PER_OCTAVE * math.log2(best))
        places = range(middle - NEAR, middle + NEAR + 1)
        alpha = np.array([1 + 2.0 ** (place / PER_OCTAVE) for place in places])
        found = np.array([divergence(place) for place in places])
        return (renyi_delta(found, alpha, epsilon) + certain) * SUMS

    return delta_at


def _largest_per_square(log_p: Floats, alpha: float, moved: int) -> float:
    """c_alpha, over the outcomes that are kept with and without the shift."""
    found = 0.0
    for m in range(1, moved + 1):
        exponents = alpha * log_p[:-m] + (1 - alpha) * log_p[m:]
        top = float(exponents.max())
        summed = top + math.log(float(np.exp(exponents - top).sum()))
        rounding = (2 * alpha - 1) * ROUND_OFF
        found = max(found, (summed + rounding) / ((alpha - 1) * m * m))
    return found * SUMS
