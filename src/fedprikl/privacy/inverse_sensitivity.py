"""Adaptive noise on one number: the inverse sensitivity mechanism. Pure privacy.

Asi and Duchi (2020), "Instance-optimality in differential privacy via approximate inverse
sensitivity mechanisms". docs/decisions/0013-adaptive-noise.md has the proofs.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate, pairwise

from fedprikl.checks import check_epsilon
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.losses import BoundedRangeLoss
from fedprikl.privacy.mechanism import Written, register_mechanism
from fedprikl.privacy.noise import SECURE_NOISE, NoiseSource
from fedprikl.privacy.reachable import Ranges

__all__ = ["InverseSensitivityMechanism", "adaptive_release", "ring_sizes", "ring_weights"]

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
