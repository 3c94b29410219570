"""The total variation distance."""

import math

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence.f_divergence import Divergence, register


class TotalVariation(Divergence):
    """TV = sum_x |P'(x) - Pi(x)| / 2 = sum_x max(0, Pi(x) - P'(x)), from 0 to 1: the moved share.

        f(v) = max(0, 1 - v)

    which is |v - 1| / 2 less (v - 1) / 2, so that it stops rising. The larger of two lines is
    convex. One record moves it by 1 / N at most, which needs the least noise of all. Blind to
    drift in rare cells, whatever their ratio. Needs no skew: the recommended one is 0.

    f has a kink at 1, so its curvature there is infinite: TV grows with the size of a small drift,
    not with its square. N records have a TV of about sum_x sqrt(Pi(x) (1 - Pi(x)) / (2 pi N))
    without any drift, and no correction of it is known to be convex.

    >>> TV.f(np.array([0.0, 0.25, 1.0, 4.0])).tolist()
    [1.0, 0.75, 0.0, 0.0]
    >>> TV.target("P"), TV.skew
    ('TV(Pi, P)', 0.0)
    """

    __slots__ = ()
    name, unit, symbol, curvature = "tv", "", "TV", math.inf
    proved, symmetric, skew = True, True, 0.0

    def f(self, v: Floats) -> Floats:
        """max(0, 1 - v)."""
        return np.asarray(np.maximum(0.0, 1 - v))

    def slope(self, v: Floats) -> Floats:
        """-1 below 1, 0 above, and -1/2 at the kink."""
        return np.asarray(np.where(v < 1, -1.0, np.where(v > 1, 0.0, -0.5)))

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """|v - 1| / 2."""
        del v
        return np.asarray(np.abs(excess) / 2)

    def square_ratio(self, skew: float, highest: float) -> float:
        """2 (1 - skew): f^2 / gap is 2 (1 - v) below 1 and 0 above."""
        del highest
        return 2 * (1 - skew)


TV = register(TotalVariation())
