"""f-divergences: what the library asks of one, the register, and those that plans can name.

Each is one class and one call of `register`; one of your own needs no more, in a file of its own
(`Divergence` is the contract). At the end: their exact values for two known distributions.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, check_finite, check_probabilities
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


# e - ln(1 + e) = e^2 (1/2 - e/3 + e^2/4 - ...); 16 terms reach double precision for |e| < 0.08.
_SERIES = [(-1) ** k / (k + 2) for k in range(16)][::-1]
_SERIES_RADIUS = 0.08


def bregman_gap(ratio: Floats, excess: Floats) -> Floats:
    """(r - 1) - ln r >= 0, given r and, precisely, r - 1; infinite at r = 0.

    The vertical distance between the logarithm and its tangent at 1 (the paper's section on Monte
    Carlo sampling). Relative error near machine precision for every r.
    """
    with np.errstate(divide="ignore", over="ignore"):
        gap = np.array(excess - np.log(ratio))
    near = np.abs(excess) < _SERIES_RADIUS
    if np.any(near):
        small = excess[near]
        gap[near] = small**2 * _series(small)
    return gap


def _series(x: Floats) -> Floats:
    """`np.polyval`, in place: this is called thousands of times for a plan."""
    found = np.full_like(x, _SERIES[0])
    for coefficient in _SERIES[1:]:
        found *= x
        found += coefficient
    return found


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


class JensenShannon(Divergence):
    """JS = (D(Pi || M) + D(P' || M)) / 2 with M = (Pi + P') / 2, in nats: at most ln 2.

        f(v) = ln 2 - (v ln(1 + 1/v) + ln(1 + v)) / 2

    which is (v ln v - (1+v) ln((1+v)/2)) / 2 less (v - 1) ln(2) / 2, so that it stops rising.
    f''(v) = 1 / (2v (1+v)), so f is convex. Sees vanished, shrunken and grown cells; drift in rare
    cells is weighed by their mass. Finite without a skew, but the first record of an empty cell
    moves it by about ln(N Pi(x)) / (2N); with the recommended skew, 0.01, by 2.3 / N.

    >>> JS.f(np.array([0.0, 0.5, 1.0, 2.0])).round(3).tolist()
    [0.693, 0.216, 0.0, -0.262]
    >>> JS.largest(0.0, highest=1000.0) == math.log(2)
    True
    """

    __slots__ = ()
    name, unit, symbol, curvature = "js", "nats", "JS", 0.25
    proved, symmetric = True, True

    def f(self, v: Floats) -> Floats:
        """ln 2 - (v ln(1 + 1/v) + ln(1 + v)) / 2; ln 2 at 0."""
        return np.asarray(math.log(2) - (v * np.log1p(1 / np.maximum(v, TINY)) + np.log1p(v)) / 2)

    def slope(self, v: Floats) -> Floats:
        """-ln(1 + 1/v) / 2."""
        return np.asarray(-np.log1p(1 / v) / 2)

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """(v ln(v/m) - ln m) / 2 with m = (1+v) / 2, as a sum of two gaps of KL near v = 1."""
        near = np.abs(excess) < 0.25
        inner, half = np.where(near, v, 1.0), np.where(near, excess / 2, 0.0)
        of_p = inner * bregman_gap(1 - half / inner, -half / inner)
        close = (of_p + bregman_gap(1 + half, half)) / 2
        return np.where(near, close, self.f(v) + math.log(2) / 2 * excess)


JS = register(JensenShannon())


class SquaredHellinger(Divergence):
    """H^2 = 1 - sum_x sqrt(Pi(x) P'(x)) = sum_x (sqrt Pi - sqrt P')^2 / 2, from 0 to 1.

        f(v) = 1 - sqrt v

    f''(v) = v^(-3/2) / 4, so f is convex, and it stops rising. Finite without a skew, but the first
    record of an empty cell moves it by sqrt(Pi(x) / N), which is too much where cells are heavy;
    with the recommended skew, 0.01, by 4.95 / N at most.

    >>> HELLINGER.f(np.array([0.0, 0.25, 1.0, 4.0])).tolist()
    [1.0, 0.5, 0.0, -1.0]
    >>> HELLINGER.target("0.01 Pi + 0.99 P")
    'H^2(Pi, 0.01 Pi + 0.99 P)'
    """

    __slots__ = ()
    name, unit, symbol, curvature = "hellinger", "", "H^2", 0.25
    proved, symmetric = True, True

    def f(self, v: Floats) -> Floats:
        """1 - sqrt v."""
        return np.asarray(1 - np.sqrt(v))

    def slope(self, v: Floats) -> Floats:
        """-1 / (2 sqrt v)."""
        return np.asarray(-0.5 / np.sqrt(v))

    def corrected(self, v: Floats, variance: Floats) -> Floats:
        """1 - sqrt(v + Var(v) / (4v)).

        E[-sqrt v] exceeds -sqrt E[v] by about Var(v) / (8 v^(3/2)). Convex in the count: with
        v = o + a h and Var(v) = c a^2 h, the argument v + (c a / 4) (1 - o / v) is concave in h,
        and f is convex and falls.
        """
        return self.f(v + variance / (4 * np.maximum(v, TINY)))

    def size(self, least: Floats, most: Floats, spread: Floats) -> Floats:
        """2 + 1.5 max sqrt v; the correction adds at most `spread` / 4 to v."""
        del least
        return np.asarray(2 + 1.5 * np.sqrt(most + spread / 4))

    def gap(self, v: Floats, excess: Floats) -> Floats:
        """(sqrt v - 1)^2 / 2, without cancellation near v = 1."""
        return np.asarray((excess / (1 + np.sqrt(v))) ** 2 / 2)


HELLINGER = register(SquaredHellinger())


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


def skewed_divergence(
    pi: npt.ArrayLike, p: npt.ArrayLike, *, skew: float, divergence: Divergence = KL
) -> float:
    """D_gamma = D_f(Pi || gamma Pi + (1 - gamma) P); for KL in nats, at most ln(1/gamma).

    The target of every private release: finite for all P, zero if P = Pi, and D_f(Pi || P) for
    gamma = 0 (`skew`), which is infinite for KL where P misses a cell of Pi [def:KLDiv].

    >>> round(skewed_divergence([0.5, 0.5], [1.0, 0.0], skew=0.01), 4)
    1.9585
    >>> from fedprikl.divergence import TV
    >>> skewed_divergence([0.5, 0.5], [0.75, 0.25], skew=0.0, divergence=TV)
    0.25
    """
    first, second = check_probabilities(pi, "first"), check_probabilities(p, "second")
    if first.shape != second.shape:
        raise InvalidInputError(
            f"Both distributions must be over the same cells, got {first.size} and {second.size}."
        )
    # E[f(v)] = E[f(v) - f'(1) (v - 1)] + f'(1) E[v - 1] for v = 1 + keep (P/Pi - 1): a sum of terms
    # that are not negative, so nothing cancels when P is close to Pi. The last mean is -keep times
    # P's mass off Pi's support.
    on, keep = first > 0, 1 - check_skew(skew)
    excess = keep * ((second[on] - first[on]) / first[on])
    ratio = (1 - keep) + keep * (second[on] / first[on])
    slope = float(divergence.slope(np.ones(1))[0])
    gaps = np.sum(first[on] * divergence.gap(ratio, excess))
    return float(gaps - slope * (keep * np.sum(second[~on])))
