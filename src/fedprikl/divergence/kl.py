"""The Kullback-Leibler divergence D(Pi || P)."""

import math

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence.f_divergence import Divergence, register
from fedprikl.divergence.phi import bregman_gap


class KullbackLeibler(Divergence):
    """D(Pi || P') = -sum_x Pi(x) ln v(x), in nats: f(v) = -ln v              [def:KLDiv].

    >>> KL.largest(0.01, highest=1000.0) == math.log(100)
    True
    >>> KL.f(np.array([0.01, 0.5, 2.0])).round(3).tolist()
    [4.605, 0.693, -0.693]
    """

    __slots__ = ()
    name, unit, curvature = "kl", "nats", 1.0
    proved = True

    def f(self, v: Floats) -> Floats:
        """-ln v; infinite at 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(v))

    def slope(self, v: Floats) -> Floats:
        """-1 / v."""
        return -1 / v

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        """-ln(v + Var(v) / (2v)).

        E[-ln v] exceeds -ln E[v] by about Var(v) / (2 v^2). Inside the logarithm the correction
        keeps the score convex.

        >>> KL.corrected(np.array([0.5]), np.array([0.1])).round(4).tolist()
        [0.5108]
        """
        return self.f(v + variance / (2 * v))

    def size(self, least: Floats, most: Floats, spread: Floats) -> Floats:
        """max |ln v| + 1: the rounding of v reaches ln v undiminished, as v f'(v) = -1.

        The correction adds at most `spread` / 2 to v.
        """
        with np.errstate(divide="ignore"):
            size = np.maximum(np.abs(np.log(least)), np.abs(np.log(most + spread / 2)))
            size = np.maximum(size, np.abs(np.log(most)))
        return np.asarray(size + 1)

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """(v - 1) - ln v, without cancellation near v = 1."""
        return bregman_gap(v, excess)

    def largest(self, skew: float, highest: float) -> float:
        """ln(1 / skew), if P' = skew Pi wherever Pi has mass; the same for every `highest`."""
        del highest
        return math.log(1 / skew)

    def square_ratio(self, skew: float, highest: float) -> float:
        """(ln skew)^2 / (skew - 1 - ln skew): attained by cells that vanished; 5.9 for 0.01."""
        del highest
        return math.log(skew) ** 2 / (skew - 1 - math.log(skew))

    def drifts(self, skew: float) -> tuple[float, ...]:
        """0, 0.1, 0.5 and 1 nats."""
        del skew
        return (0.0, 0.1, 0.5, 1.0)


KL = register(KullbackLeibler())
