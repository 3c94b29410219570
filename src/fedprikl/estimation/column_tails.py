"""A common scale for statistics of different columns: smooth upper tails without drift.

Many columns share one false-alarm rate, so each may exceed its threshold in a population of ten
thousand only: further out than a simulation of a few thousand populations reaches. A smooth law
fitted to them reaches that far. It decides how fairly columns and witnesses share the rate. Whether
the rate is kept is looked at afterwards, on other populations (`column_verdict.py`).
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedprikl.checks import Floats
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism

__all__ = ["GammaLike", "NoisyTail", "SmoothTail", "Tail", "gamma_like_deviate", "tail_of"]

SKEWS = (1e-3, 6.0)  # a chi-square variable of 2/9 degrees of freedom has a skewness of 6
KNEE = 0.1  # the share of populations beyond which the tail's decay is fitted once more
TIE = 1e-9  # of depths: populations at the knee differ by rounding, and none of them is beyond it
PRIOR = 50.0  # populations beyond the knee that would agree with the Gamma law
NODES, GRID, FURTHEST = 96, 192, 45.0  # exp(-45): no threshold lies further out


class Tail(Protocol):
    """A statistic's law without drift, by its upper tail."""

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about; increasing in `depth`."""
        ...


def gamma_like_deviate(normal: Floats, skew: Floats | float) -> Floats:
    """Of mean 0, sd 1 and some skewness, from standard normal ones: a shifted Gamma law.

        x = (2 / s) [ max(0, 1 - s^2 / 36 + s z / 6)^3 - 1 ]        Wilson and Hilferty (1931)

    >>> gamma_like_deviate(np.array([3.0]), 1.0).round(2).tolist()  # exactly: 4.34
    [4.38]
    """
    s = np.where(np.abs(skew) < SKEWS[0], SKEWS[0], skew)
    root = np.maximum(1 - s**2 / 36 + s * normal / 6, 0.0)
    return np.asarray(2 / s * (root**3 - 1))


@dataclass(frozen=True, slots=True)
class GammaLike:
    """A shifted Gamma law with the mean, deviation and skewness of a sample."""

    mean: float
    sd: float
    skew: float

    @classmethod
    def of(cls, values: Floats) -> "GammaLike":
        """With the first three moments of these values."""
        mean, sd = float(values.mean()), float(values.std())
        least = 1e-12 * (1 + abs(mean))  # values that never differ
        skew = float(np.mean((values - mean) ** 3)) / max(sd, least) ** 3
        return cls(mean, max(sd, least), min(max(skew, SKEWS[0]), SKEWS[1]))

    def at(self, depth: Floats) -> Floats:
        """What is exceeded with probability exp(-depth)."""
        normal = -scipy.special.ndtri_exp(-depth)
        return np.asarray(self.mean + self.sd * gamma_like_deviate(normal, self.skew))

    def depth(self, values: Floats) -> Floats:
        """-ln P(more than this)."""
        s = self.skew
        root = np.cbrt(np.maximum(1 + s * (values - self.mean) / (2 * self.sd), 0.0))
        return np.asarray(-scipy.special.log_ndtr(-(root - 1 + s**2 / 36) * 6 / s))


@dataclass(frozen=True, slots=True)
class SmoothTail:
    """A Gamma law whose upper tenth decays as fast as that of the sample.

    On the scale of depths, -ln P, the law is stretched beyond its knee: sums of squares of Laplace
    noise, or counts of few clients, have heavier tails than a Gamma law of the same moments.
    """

    law: GammaLike
    knee: float  # depth by the law, where the sample's is ln 10
    stretch: float  # depth by the law, per depth beyond it

    @classmethod
    def of(cls, values: Floats) -> "SmoothTail":
        """Fitted to values of populations without drift."""
        law = GammaLike.of(values)
        depths = law.depth(values)
        knee = float(np.quantile(depths, 1 - KNEE))
        beyond = depths[depths > knee + TIE] - knee
        return cls(law, max(knee, 0.1), (beyond.sum() + PRIOR) / (len(beyond) + PRIOR))

    def at(self, depth: Floats) -> Floats:
        """What is exceeded with probability exp(-depth)."""
        ordinary = -math.log(KNEE)
        inner = depth * (self.knee / ordinary)
        outer = self.knee + (depth - ordinary) * self.stretch
        return self.law.at(np.where(depth <= ordinary, inner, outer))

    def depth(self, values: Floats) -> Floats:
        """-ln P(more than this), about: the inverse of `at`."""
        ordinary, found = -math.log(KNEE), self.law.depth(values)
        beyond = ordinary + (found - self.knee) / self.stretch
        return np.where(found <= self.knee, found * (ordinary / self.knee), beyond)

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about."""
        return float(self.at(np.array(depth)))


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTail:
    """A smooth law plus noise of a known law."""

    values: Floats  # increasing
    depths: Floats  # of each, increasing

    @classmethod
    def of(cls, before: SmoothTail, mechanism: Mechanism) -> "NoisyTail":
        """P(more than x) is a mean of the noise's survival function over the law before noise."""
        nodes, weights = _nodes(before)
        reach = mechanism.standard_deviation
        while mechanism.survival(np.array([reach]))[0] > math.exp(-FURTHEST):
            reach *= 1.5
        # Values of high probability stand close together, far ones apart.
        ends = np.geomspace(1, 1 + (nodes[-1] - nodes[0] + 2 * reach) / reach * 8, GRID) - 1
        values = nodes[0] - reach + ends * reach / 8
        above = mechanism.survival(values[:, None] - nodes) @ weights
        depths = -np.log(np.clip(above, math.exp(-2 * FURTHEST), 1.0))
        kept = np.concatenate([[True], np.diff(np.maximum.accumulate(depths)) > 0])
        return cls(values[kept], depths[kept])

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about; straight on beyond the grid."""
        if depth > self.depths[-1]:
            slope = (self.values[-1] - self.values[-2]) / (self.depths[-1] - self.depths[-2])
            return float(self.values[-1] + (depth - self.depths[-1]) * slope)
        return float(np.interp(depth, self.depths, self.values))


def tail_of(values: Floats, mechanism: Mechanism | None) -> Tail:
    """The smooth law of a statistic: values without drift, plus the mechanism's noise."""
    before = SmoothTail.of(values)
    return before if mechanism is None else NoisyTail.of(before, mechanism)


def _nodes(law: SmoothTail) -> tuple[Floats, Floats]:
    """Points of a law, increasing, and the probability each stands for; fine in the upper tail."""
    upper = np.linspace(math.log(2), FURTHEST, NODES)
    lower = -np.log1p(-np.geomspace(1e-9, 0.5, NODES // 2))
    edges = np.concatenate([[0.0], lower[:-1], upper, [math.inf]])
    chances = np.exp(-edges)
    weights = chances[:-1] - chances[1:]
    middle = -np.log((chances[:-1] + chances[1:]) / 2)
    return np.sort(law.at(middle)), weights
