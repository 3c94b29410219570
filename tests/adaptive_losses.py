"""The exact loss of adaptive noise between two data sets: from whole numbers, for every outcome."""

from fractions import Fraction

import mpmath
import numpy as np

from fedprikl.checks import Floats
from fedprikl.privacy import NoiseLaw, Ranges
from fedprikl.privacy.adaptive import ring_sizes


def survival(law: NoiseLaw, x: Floats) -> Floats:
    """P(noise > x)."""
    return np.asarray(1 - np.interp(x, law.edges, law.below))


def lengths(ranges: Ranges, at: list[int]) -> list[int]:
    """len(t) at these points of the grid, by looking at every range."""
    ends = list(zip(ranges.lows.tolist(), ranges.highs.tolist(), strict=True))
    return [
        next((k for k, (low, high) in enumerate(ends) if low <= t <= high), len(ends)) for t in at
    ]


def ratios(left: Ranges, right: Ranges, weights: tuple[int, ...]) -> list[Fraction]:
    """Every value of P(t | left) / P(t | right)."""
    return [ratio for _, ratio in outcomes(left, right, weights)]


def outcomes(
    left: Ranges, right: Ranges, weights: tuple[int, ...], more: set[int] | None = None
) -> list[tuple[int, Fraction]]:
    """P(t | left) / P(t | right) wherever it changes, at the ends of ranges only, and at some more
    points of the grid.
    """
    assert left.outer == right.outer
    assert left.grid == right.grid
    ends = {*left.lows.tolist(), *left.highs.tolist(), *right.lows.tolist(), *right.highs.tolist()}
    lowest, highest = left.outer
    at = sorted(
        t
        for end in ends | {*left.outer} | (more or set())
        for t in (end - 1, end, end + 1)
        if lowest <= t <= highest
    )
    totals = [
        sum(n * w for n, w in zip(ring_sizes(r), weights, strict=True)) for r in (left, right)
    ]
    return [
        (t, Fraction(weights[a] * totals[1], weights[b] * totals[0]))
        for t, a, b in zip(at, lengths(left, at), lengths(right, at), strict=True)
    ]


def log(ratio: Fraction) -> float:
    with mpmath.workdps(60):
        return float(mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator))
