"""Bisection: where a condition stops to hold, on the way from a place where it does.

All searches begin `inside`, where the condition holds, and `outside`, where it does not; either may
be the larger. Roots of smooth functions are found by `scipy.optimize.brentq` instead.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints


def bisect(
    holds: Callable[[float], bool], inside: float, outside: float, *, halvings: int
) -> tuple[float, float]:
    """The last place where the condition holds, and the first where it does not.

    >>> bisect(lambda x: x**2 <= 2, 0.0, 2.0, halvings=4)
    (1.375, 1.5)
    """
    for _ in range(halvings):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside, outside


def bisect_ratio(
    holds: Callable[[float], bool], inside: float, outside: float, *, ratio: float
) -> tuple[float, float]:
    """The same for positive numbers, until one is at most `ratio` times the other.

    >>> bisect_ratio(lambda x: x**2 <= 8, 1.0, 16.0, ratio=2.0)
    (2.0, 4.0)
    """
    while max(inside, outside) / min(inside, outside) > ratio:
        middle = math.sqrt(inside * outside)
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside, outside


def bisect_each(
    holds: Callable[[Floats], npt.NDArray[np.bool_]],
    inside: Floats,
    outside: Floats,
    *,
    halvings: int,
) -> tuple[Floats, Floats]:
    """`bisect` for every entry of an array at once.

    >>> most = np.array([2.0, 3.0])
    >>> [end.tolist() for end in bisect_each(lambda x: x**2 <= most, 0 * most, most, halvings=2)]
    [[1.0, 1.5], [1.5, 2.25]]
    """
    for _ in range(halvings):
        middle = (inside + outside) / 2
        fits = holds(middle)
        inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
    return inside, outside


def bisect_whole(
    holds: Callable[[Ints], npt.NDArray[np.bool_]], inside: Ints, outside: Ints
) -> Ints:
    """The last whole numbers at which the condition holds, entry by entry.

    `outside` itself is never tried.

    >>> most = np.array([10, 20])
    >>> bisect_whole(lambda x: x**2 <= most, np.array([0, 0]), most).tolist()
    [3, 4]
    """
    while np.any(np.abs(gap := outside - inside) > 1):
        middle = inside + np.sign(gap) * (np.abs(gap) // 2)
        fits = holds(middle)
        inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
    return inside
