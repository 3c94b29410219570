"""The population stability index: KL in both directions."""

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence.f_divergence import Divergence, register
from fedprikl.divergence.kl import KL
from fedprikl.divergence.reverse_kl import REVERSE_KL


class PopulationStabilityIndex(Divergence):
    """PSI = D(Pi || P') + D(P' || Pi) = sum_x (P'(x) - Pi(x)) ln v(x), in nats.

        f(v) = (v - 1) ln v

    Also known as Jeffreys' divergence. Where credit scores are watched, below 0.1 counts as stable
    and above 0.25 as a shift. f''(v) = 1/v + 1/v^2, so f is convex. Needs the most noise of all: an
    empty cell costs what it costs KL, a rare one what it costs reverse KL. Recommended skew: 0.01.

    >>> PSI.f(np.array([0.01, 0.5, 1.0, 2.0])).round(3).tolist()
    [4.559, 0.347, 0.0, 0.693]
    >>> PSI.target("0.01 Pi + 0.99 P")
    'PSI(Pi, 0.01 Pi + 0.99 P)'
    """

    __slots__ = ()
    name, unit, symbol, curvature = "psi", "nats", "PSI", 2.0
    proved, symmetric = True, True

    def f(self, v: Floats) -> Floats:
        """(v - 1) ln v; infinite at 0."""
        with np.errstate(divide="ignore"):
            return np.asarray((v - 1) * np.log(v))

    def slope(self, v: Floats) -> Floats:
        """ln v + 1 - 1/v."""
        return np.asarray(np.log(v) + 1 - 1 / v)

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        """The corrections of KL and reverse KL together: a sum of convex scores is convex."""
        tangents = v - 1  # f is -ln v and v ln v - v + 1, and v - 1
        return KL.corrected(v, variance) + REVERSE_KL.corrected(v, variance) + tangents

    def size(self, least: Floats, most: Floats, spread: Floats) -> Floats:
        """Those of both parts, and of v - 1."""
        parts = KL.size(least, most, spread) + REVERSE_KL.size(least, most, spread)
        return np.asarray(parts + 2 * most)

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """f itself; near v = 1 from v - 1."""
        near = np.abs(excess) < 0.5
        with np.errstate(divide="ignore"):
            logs = np.where(near, np.log1p(np.where(near, excess, 0.0)), np.log(v))
        return np.asarray(excess * logs)


PSI = register(PopulationStabilityIndex())
