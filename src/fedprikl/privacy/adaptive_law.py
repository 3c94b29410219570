"""The law of adaptive noise for one population: for forecasts and tests, never for a release."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, check_open_unit
from fedprikl.privacy.inverse_sensitivity import ring_weights
from fedprikl.privacy.reachable import Ranges

__all__ = ["NoiseLaw"]


@dataclass(frozen=True, slots=True, eq=False)
class NoiseLaw:
    """Of what `adaptive_release` adds to f(x): a density that is constant between `edges`.

    SECRET for a real population, as the ranges are. In floats: a release is drawn from the whole
    numbers instead.

    >>> ranges = Ranges(
    ...     value=0, lows=np.arange(-1, -80, -1), highs=np.arange(1, 80), outer=(-90, 90), grid=0.5
    ... )
    >>> law = NoiseLaw.of(ranges, epsilon=1.0)
    >>> round(law.standard_deviation, 2), round(law.mean_absolute, 2), round(law.quantile(0.9), 2)
    (1.48, 1.08, 1.69)
    """

    edges: Floats  # increasing
    below: Floats  # P(noise <= edge), from 0 to 1

    @classmethod
    def of(cls, ranges: Ranges, *, epsilon: float) -> "NoiseLaw":
        """The law for these ranges; each point of the grid stands for the step around it."""
        falling = _densities(epsilon)
        lows = np.append(ranges.lows, ranges.outer[0]) - ranges.value - 0.5
        highs = np.append(ranges.highs, ranges.outer[1]) - ranges.value + 0.5
        edges = np.concatenate([lows[::-1], highs])
        density = np.concatenate([falling[:0:-1], falling])
        masses = density * np.diff(edges)
        below = np.concatenate([[0.0], np.cumsum(masses)])
        return cls(edges * ranges.grid, below / below[-1])

    def survival(self, x: Floats) -> Floats:
        """P(noise > x)."""
        return np.asarray(1 - np.interp(x, self.edges, self.below), dtype=np.float64)

    def quantile(self, probability: float) -> float:
        """The x with P(noise <= x) = probability."""
        check_open_unit(probability, "probability", "Use 0.95 for the 95% quantile.")
        return float(np.interp(probability, self.below, self.edges))

    @property
    def mean(self) -> float:
        """Of the noise: above 0 where removing records moves the sum further than adding them."""
        return float(self._masses @ (self.edges[1:] + self.edges[:-1]) / 2)

    @property
    def standard_deviation(self) -> float:
        """Of the noise, around its mean."""
        left, right = self.edges[:-1], self.edges[1:]
        squares = float(self._masses @ (left * left + left * right + right * right)) / 3
        return float(np.sqrt(max(squares - self.mean**2, 0.0)))

    @property
    def mean_absolute(self) -> float:
        """E|noise|."""
        left, right = self.edges[:-1], self.edges[1:]
        split = (left < 0) & (right > 0)
        width = np.where(split, right - left, 1.0)
        across = (left * left + right * right) / (2 * width)
        return float(self._masses @ np.where(split, across, np.abs(left + right) / 2))

    def simulate(self, rng: np.random.Generator, size: int) -> Floats:
        """Draws for FORECASTS: floats of a generator that is not secure. Never release them."""
        return np.interp(rng.random(size), self.below, self.edges)

    @property
    def _masses(self) -> Floats:
        return np.diff(self.below)

    def __repr__(self) -> str:  # secret
        return f"NoiseLaw({len(self.edges) - 1} pieces)"


@lru_cache(maxsize=16)  # forecasts ask for the laws of many populations
def _densities(epsilon: float) -> Floats:
    """Of the rings, from the innermost one's, which is 1."""
    weights = ring_weights(epsilon)
    found = np.array([float(weight / weights[0]) for weight in weights])
    found.flags.writeable = False
    return found
