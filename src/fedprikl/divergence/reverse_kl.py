"""The reverse Kullback-Leibler divergence D(P || Pi)."""

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence.f_divergence import TINY, Divergence, register
from fedprikl.divergence.phi import bregman_gap


class ReverseKullbackLeibler(Divergence):
    """D(P' || Pi) = sum_x P'(x) ln v(x), in nats: f(v) = v ln v - v + 1.

    Sees cells that grew, above all rare ones; a cell that vanished counts little. f''(v) = 1/v, so
    f is convex. f rises without end, whatever multiple of v - 1 is added: a record in the rarest
    cell moves the value by about ln(1 / min Pi) / N. Mass in cells that Pi does not have would make
    it infinite; here it counts 1 nat per unit of mass. Recommended skew: 0.01.

    >>> REVERSE_KL.f(np.array([0.0, 0.5, 1.0, 2.0])).round(3).tolist()
    [1.0, 0.153, 0.0, 0.386]
    >>> REVERSE_KL.target("0.01 Pi + 0.99 P")
    'D(0.01 Pi + 0.99 P || Pi)'
    """

    __slots__ = ()
    name, unit, curvature = "reverse_kl", "nats", 1.0
    proved = True

    def f(self, v: Floats) -> Floats:
        """v ln v - v + 1; 1 at 0."""
        return np.asarray(v * np.log(np.maximum(v, TINY)) - v + 1)

    def slope(self, v: Floats) -> Floats:
        """ln v."""
        return np.asarray(np.log(v))

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        """f(v) - Var(v) / (2v): without a skew, the correction of Miller and Madow for entropies.

        Convex in the count: with v = o + a h and Var(v) = c a^2 h, what is subtracted is
        (c a / 2) (1 - o / v), which is concave; without an offset it is one number for all h > 0.
        """
        return np.asarray(self.f(v) - variance / (2 * np.maximum(v, TINY)))

    def size(self, least: Floats, most: Floats, spread: Floats) -> Floats:
        """2 max |v ln v| + max v + 2, and what the correction can be."""
        del least
        return np.asarray(2 * most * np.abs(np.log(most)) + most + 3 + spread)

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """f itself, without cancellation near v = 1: v (1/v - 1 + ln v)."""
        near = np.abs(excess) < 0.5
        inner = np.where(near, v, 1.0)
        close = inner * bregman_gap(1 / inner, np.where(near, -excess, 0.0) / inner)
        return np.where(near, close, self.f(v))

    def target(self, effective: str) -> str:
        """The other direction: P' comes first."""
        return f"{self.symbol}({effective} || Pi)"


REVERSE_KL = register(ReverseKullbackLeibler())
