"""Adaptive noise on one number: the inverse sensitivity mechanism. Pure privacy.

Asi and Duchi (2020), "Instance-optimality in differential privacy via approximate inverse
sensitivity mechanisms". docs/decisions/0013-adaptive-noise.md has the proofs.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from fedprikl.checks import Floats, check_epsilon, check_open_unit
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.losses import BoundedRangeLoss
from fedprikl.privacy.mechanism import Written, register_mechanism
from fedprikl.privacy.noise import SECURE_NOISE, NoiseSource
from fedprikl.privacy.reachable import Ranges

REACH = 80.0  # the weight falls to e^-40 before it stays the same
FEWEST_STEPS, MOST_STEPS = 8, 2**14
WEIGHT_BITS = 64  # of the least weight, and of the ratio of two


@register_mechanism("adaptive")
@dataclass(frozen=True, slots=True, kw_only=True)
class InverseSensitivityMechanism(Written):
    """One number, drawn with a probability that falls with its distance in records.

        P(t) ~ e^(-epsilon len(t) / 2),    len(t) = min {k >= 1 : t in I_k(x)}

    where I_k(x) is what k substituted records can make of the number (`Ranges`). A substitution
    changes len by at most 1, so the loss never exceeds epsilon, and its range is at most epsilon.
    The noise fits the population: it is small where no record matters much. How large it was is
    private.

    >>> print(InverseSensitivityMechanism(epsilon=1.0))
    adaptive noise (inverse sensitivity mechanism), epsilon 1
    """

    epsilon: float

    @property
    def loss(self) -> BoundedRangeLoss:
        """What the accountant composes."""
        return BoundedRangeLoss(self.epsilon)

    @property
    def steps(self) -> int:
        """The largest len, the same for every data set: about 80 / epsilon."""
        wanted = math.ceil(REACH / check_epsilon(self.epsilon))
        return min(max(wanted, FEWEST_STEPS), MOST_STEPS)

    def check(self) -> None:
        """Raises `InvalidInputError` unless the privacy can be computed."""
        check_epsilon(self.epsilon)

    def __str__(self) -> str:
        return f"adaptive noise (inverse sensitivity mechanism), epsilon {self.epsilon:.4g}"


def adaptive_release(
    ranges: Ranges, *, epsilon: float, source: NoiseSource = SECURE_NOISE
) -> float:
    """A number on the grid of the ranges, epsilon-private. Exact: whole numbers only.

    Each point of the grid from one outer end to the other can be drawn, whatever the data.
    """
    mechanism = InverseSensitivityMechanism(epsilon=epsilon)
    if ranges.steps != mechanism.steps:
        raise InvalidInputError(
            f"Epsilon {epsilon:g} needs ranges of {mechanism.steps} steps, got {ranges.steps}; "
            "compute them with `InverseSensitivityMechanism(epsilon=...).steps`."
        )
    return float(_draw(ranges, ring_weights(epsilon), source)) * ranges.grid


def _draw(ranges: Ranges, weights: tuple[int, ...], source: NoiseSource) -> int:
    """A whole number t of the outer range, with probability weights[len(t) - 1] / their sum."""
    sizes = ring_sizes(ranges)
    cumulative = list(accumulate(n * w for n, w in zip(sizes, weights, strict=True)))
    drawn = source.below(cumulative[-1])
    ring = next(k for k, end in enumerate(cumulative) if drawn < end)
    place = (drawn - (cumulative[ring] - sizes[ring] * weights[ring])) // weights[ring]
    lows: list[int] = [*ranges.lows.tolist(), ranges.outer[0]]
    if ring == 0:  # counted from the value on, so that a source without noise gives the value
        return lows[0] + (place + ranges.value - lows[0]) % sizes[0]
    below = lows[ring - 1] - lows[ring]  # points of the ring on the lower side
    if place < below:
        return lows[ring] + place
    return int(ranges.highs[ring - 1]) + 1 + place - below


def ring_sizes(ranges: Ranges) -> list[int]:
    """How many points of the grid have len 1, 2, ..., steps."""
    lows: list[int] = [*ranges.lows.tolist(), ranges.outer[0]]
    highs: list[int] = [*ranges.highs.tolist(), ranges.outer[1]]
    points = [high - low + 1 for low, high in zip(lows, highs, strict=True)]
    return [points[0], *(b - a for a, b in pairwise(points))]


@lru_cache(maxsize=64)
def ring_weights(epsilon: float) -> tuple[int, ...]:
    """The weight of len = 1, 2, ..., steps, as whole numbers.

    Rounded down from the last one up, so that none exceeds e^(epsilon/2) times the next.
    """
    steps = InverseSensitivityMechanism(epsilon=epsilon).steps
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(epsilon) / 2).exp() * (1 - Decimal("1e-50"))
        factor = max(int(ratio * 2**WEIGHT_BITS), 2**WEIGHT_BITS)
    weights = [2**WEIGHT_BITS]
    for _ in range(steps - 1):
        weights.append(weights[-1] * factor >> WEIGHT_BITS)
    return tuple(reversed(weights))


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
