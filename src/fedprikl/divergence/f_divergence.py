"""f-divergences: what the rest of the library asks one, and the register of those it knows."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, check_finite
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import load_extensions

DRIFTS = (0.0, 0.02, 0.1, 0.2)  # shares of what an empty cell scores; a plan is judged at these
EDGES = np.linspace(0.0, 1.0, 33)
TINY = 1e-300  # stands for 0 where only its logarithm or inverse would be wrong
EXTENSIONS = "fedprikl.divergences"  # entry points of installed packages that register divergences
_known: dict[str, "Divergence"] = {}


class Divergence(ABC):
    """An f-divergence: how far P' is from Pi.

        D_f(Pi || P') = sum_x Pi(x) f(v(x)),    v(x) = P'(x) / Pi(x)

    where f is convex, f(1) = 0 and f'(1) <= 0. Adding a multiple of v - 1 to f changes nothing as
    long as P' has no mass outside the cells of Pi. Choose the multiple for which f stops rising
    (f' tends to 0), where there is one: then mass outside is counted as it should be.

    A divergence is one class: `name`, `unit`, `curvature`, `f` and `slope`, and a call of
    `register`. The other methods have defaults; replace one where a closed form is known.

    >>> from fedprikl.divergence import divergence_named
    >>> kl = divergence_named("kl")
    >>> kl.f(np.array([0.5, 2.0])).round(3).tolist(), kl.empty(0.0), kl.curvature, kl.unit
    ([0.693, -0.693], inf, 1.0, 'nats')
    >>> kl.target("P")
    'D(Pi || P)'
    """

    __slots__ = ()
    name: ClassVar[str]  # in plans
    unit: ClassVar[str]  # what stands behind a value; empty for a share
    symbol: ClassVar[str] = "D"  # of the target
    symmetric: ClassVar[bool] = False  # whether Pi and P' may change places
    proved: ClassVar[bool] = False  # whether scores are known to be convex, whatever the counts
    # f''(1): D is about f''(1)/2 sum (P' - Pi)^2 / Pi for a small drift. Infinite at a kink, where
    # D is of first order in P' - Pi.
    curvature: ClassVar[float]
    skew: ClassVar[float] = 0.01  # recommended; 0 only if f(0) is finite

    @abstractmethod
    def f(self, v: Floats) -> Floats:
        """The convex function, for v >= 0.

        Accurate to a few units in the last place of |f(v)| + |v f'(v)| + 1.
        """

    @abstractmethod
    def slope(self, v: Floats) -> Floats:
        """f'(v) for v > 0; one of the subgradients at a kink."""

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        """f(v), less the bias that v has because it comes from a sample with this variance.

        E[f(v)] exceeds f(E[v]) by about f''(v) Var(v) / 2. What is returned must be convex in the
        count: the sensitivity rests on it. The default corrects nothing.
        """
        del variance
        return self.f(v)

    @property
    def corrects(self) -> bool:
        """Whether it has a correction of its own."""
        return type(self).corrected is not Divergence.corrected

    def size(self, least: Floats, most: Floats, spread: Floats) -> Floats:
        """At least |f(v)| + |v f'(v)| + 1 for v from `least` to `most`; bounds rounding errors.

        `spread` bounds the variance given to `corrected`: it is at most `spread * v`. Replace this
        method with `corrected`. By convexity |f'| is largest at an edge of each interval.
        """
        del spread
        start = np.maximum(least, 1e-12 * most)
        shares = EDGES.reshape(-1, *[1] * np.ndim(start))
        edges = start * (most / start) ** shares
        steep = np.abs(self.slope(edges))
        sway = (edges[1:] * np.maximum(steep[1:], steep[:-1])).max(axis=0)
        values = np.maximum(np.abs(self.f(edges)).max(axis=0), np.abs(self.f(least)))
        return np.asarray(3 * values + 2 * sway + 1)

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """f(v) - f'(1) (v - 1) >= 0, given v and, precisely, v - 1 (`excess`).

        The distance of f from its tangent at 1. Its mean is the divergence.
        """
        return np.asarray(self.f(v) - self._slope_at_one * excess)

    def empty(self, skew: float) -> float:
        """f(skew), the score of a cell that vanished."""
        return float(self.f(np.array(skew)))

    def rise(self, skew: float, highest: float) -> float:
        """How far the divergence can exceed `empty`; 0 if f stops rising.

        All mass in one cell, of the least probability 1 / `highest`, is the extreme case.
        """
        share = (1 - skew) / (highest - skew) if highest > 1 else 0.0
        most = float(self.f(np.array(highest)))
        return max(0.0, share * (most - self.empty(skew)))

    def largest(self, skew: float, highest: float) -> float:
        """The largest divergence with this skew if no ratio v exceeds `highest`."""
        return self.empty(skew) + self.rise(skew, highest)

    def square_ratio(self, skew: float, highest: float) -> float:
        """R = max f(v)^2 / gap(v) over skew <= v <= highest.

        The mean square of the scores is at most R times the divergence, whatever the population.
        The default looks at 4,096 ratios; near v = 1 it is 2 f'(1)^2 / f''(1).
        """
        v = np.append(skew, np.geomspace(skew or 1e-12, max(highest, 1.0), 4096))
        v = v[np.abs(v - 1) > 1e-3]
        near = 2 * self._slope_at_one**2 / self.curvature
        return max(near, float(np.max(self.f(v) ** 2 / self.gap(v, v - 1), initial=0.0)))

    def drifts(self, skew: float) -> tuple[float, ...]:
        """The drifts at which a plan is judged, from none to a large one."""
        return tuple(share * self.empty(skew) for share in DRIFTS)

    def target(self, effective: str) -> str:
        """What is estimated, in words; `effective` describes P'."""
        return f"{self.symbol}(Pi{',' if self.symmetric else ' ||'} {effective})"

    @property
    def _slope_at_one(self) -> float:
        return float(self.slope(np.ones(1))[0])

    def __repr__(self) -> str:
        return f"<divergence {self.name}>"


def register(divergence: Divergence) -> Divergence:
    """Makes a divergence known by its name, so that plans can ask for it; returns it.

    It is refused if its name is taken, or if a number shows that it is not convex: noise would be
    too small for it.
    """
    if _known.setdefault(divergence.name, divergence) is not divergence:
        raise InvalidInputError(f"There is a divergence {divergence.name!r} already.")
    try:
        _check(divergence)
    except InvalidInputError:
        del _known[divergence.name]
        raise
    return divergence


def divergence_named(name: str) -> Divergence:
    """The divergence that a plan names; an installed extension is loaded for it.

    >>> divergence_named("kl")
    <divergence kl>
    """
    if name not in _known:
        load_extensions(EXTENSIONS)
    if name not in _known:
        raise InvalidInputError(
            f"There is no divergence {name!r:.40}. Known: {', '.join(sorted(_known))}. If it "
            "belongs to an extension, install it, or import the module that registers it."
        )
    return _known[name]


def _check(divergence: Divergence) -> None:
    """Refuses what is not a divergence, as far as some thousand numbers tell."""
    name = divergence.name
    if not name:
        raise InvalidInputError("A divergence needs a name.")
    at_one, tilt = float(divergence.f(np.ones(1))[0]), float(divergence.slope(np.ones(1))[0])
    if not math.isclose(at_one, 0.0, abs_tol=1e-12) or not tilt <= 0:
        raise InvalidInputError(
            f"f(1) of the divergence {name!r} must be 0 and f'(1) not above 0, got {at_one:g} and "
            f"{tilt:g}. Add a multiple of v - 1 to f."
        )
    v = np.geomspace(1e-6, 1e6, 2001)
    f, slope, step = divergence.f(v), divergence.slope(v), np.diff(v)
    slack = 1e-12 * (1 + np.abs(f[1:]) + np.abs(f[:-1]))
    above = slope[:-1] * step <= np.diff(f) + slack
    below = np.diff(f) <= slope[1:] * step + slack
    if not (np.all(above & below) and divergence.curvature > 0):
        raise InvalidInputError(
            f"f of the divergence {name!r} is not convex, or `slope` is not its derivative."
        )
    if not _correction_is_convex(divergence):
        raise InvalidInputError(
            f"`corrected` of the divergence {name!r} is not convex in the count, so the noise "
            "would be too small. Leave it out."
        )


def _correction_is_convex(divergence: Divergence) -> bool:
    """Whether the corrected score of counts 0 .. 199 is convex, for cells of all sizes."""
    h, offset = np.arange(200.0), np.array([1e-3, 1e-2, 0.1, 0.5])
    a = np.geomspace(1e-6, 10.0, 15)
    strength = np.array([0.3, 1.0, 4.0])
    v = offset[:, None, None, None] + a[:, None, None] * h
    variance = strength[:, None] * (a[:, None, None] ** 2 * h)
    scores = divergence.corrected(v + 0 * variance, variance + 0 * v)
    slack = 1e-12 * (1 + np.abs(scores).max(axis=-1, keepdims=True))
    return bool(np.all(np.diff(scores, n=2, axis=-1) >= -slack))


def check_skew(value: float) -> float:
    """A skew: at least 0 and below 1."""
    gamma = check_finite(value, "skew")
    if not 0 <= gamma < 1:
        raise InvalidInputError(
            f"The skew must be at least 0 and below 1, got {gamma}. It is the share of Pi mixed "
            "into P; try 0.01."
        )
    return gamma
