"""Attacks on noise: bounds on epsilon from what a release asked for, and from draws of the same.

Each attack knows two neighbouring data sets. Three kinds of bounds:

- noise asked for: what the noise, of the law and size that were asked for, gives the two;
- told apart (`lower_bounds.py`): from draws, whatever their law;
- size of the noise: what noise of that law gives, as large as the draws allow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedprikl.audit.lower_bounds import AuditResult, Sampler, audit
from fedprikl.checks import Floats, Ints
from fedprikl.libraries import scipy
from fedprikl.privacy import (
    IntegerGaussianMechanism,
    NoiseSource,
    Ranges,
    adaptive_release,
    laplace_variance,
)
from fedprikl.privacy.accounting import gaussian_epsilon
from fedprikl.privacy.adaptive import ring_sizes, ring_weights

DRAWS = 200_000  # numbers with noise that are drawn for a question, about
FEWEST = 500  # releases of either data set; of as many numbers as can be drawn so often
ROUNDING = 1e-9  # of the account
ASKED, SIZE = "noise asked for", "size of the noise"
Draw = Callable[[Floats], Floats | Ints]  # such numbers with noise


class Claim(NamedTuple):
    """What a question may cost."""

    question: str
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Noise that a release asked for: on which numbers, of which law."""

    values: Floats
    draw: Draw
    scale: float
    variance: float
    gaussian: bool = False
    whole: bool = False  # noise on counts

    def below(self, more: "Asked") -> "Asked":
        """The same with more noise on top of it, which cannot make it less private.

        Normal noises add up to one; of others only this one is accounted for.
        """
        normal = self.gaussian and more.gaussian and not (self.whole or more.whole)
        return replace(
            self,
            draw=lambda values: more.draw(np.asarray(self.draw(values), np.float64)),
            scale=math.hypot(self.scale, more.scale) if normal else self.scale,
            variance=self.variance + more.variance,
        )


class Listener:
    """Noise of a release about made-up data, which notes what it is asked for."""

    insecure: ClassVar[bool] = True

    def __init__(self, source: NoiseSource) -> None:
        self._source, self.asked, self.ends = source, list[Asked](), list[int]()
        self.given: list[Floats] = []

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale)."""
        return self._note(partial(self._source.laplace, scale=scale), values, scale, 2 * scale**2)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2)."""
        draw = partial(self._source.gaussian, sigma=sigma)
        return self._note(draw, values, sigma, sigma**2, gaussian=True)

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + discrete Gaussian."""
        draw = partial(self._source.integer_gaussian, sigma=sigma)
        variance = IntegerGaussianMechanism(sigma=sigma, coordinates=1).standard_deviation ** 2
        return self._note(draw, counts, sigma, variance, gaussian=True, whole=True).astype(np.int64)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        """counts + discrete Laplace."""
        draw, variance = partial(self._source.integer_laplace, scale=scale), laplace_variance(scale)
        return self._note(draw, counts, scale, variance, whole=True).astype(np.int64)

    def laplace_share(
        self, entries: int, *, scale: float, shares: int, coordinates: int = 2
    ) -> Ints:
        """A share of discrete Laplace noise."""
        share = partial(
            self._source.laplace_share, scale=scale, shares=shares, coordinates=coordinates
        )
        variance, zeros = laplace_variance(scale) / shares, np.zeros(entries)
        noise = self._note(lambda some: share(len(some)), zeros, scale, variance, whole=True)
        return noise.astype(np.int64)

    def below(self, end: int) -> int:
        """From 0 up to, and without, `end`."""
        self.ends.append(end)
        return self._source.below(end)

    def _note(
        self,
        draw: Draw,
        values: npt.ArrayLike,
        scale: float,
        variance: float,
        *,
        gaussian: bool = False,
        whole: bool = False,
    ) -> Floats:
        exact = np.asarray(values, np.float64)
        asked = Asked(exact, draw, scale, variance, gaussian, whole)
        given = np.asarray(draw(exact), np.float64)
        if self.given and exact is self.given[-1]:  # a law that draws more than once
            asked = self.asked.pop().below(asked)
            self.given.pop()
        self.asked.append(asked)
        self.given.append(given)
        return given


def nothing_hidden(claim: Claim, false_alarm: float) -> AuditResult:
    """Of numbers without noise, or with noise whose size depends on the data: no epsilon is large
    enough.
    """
    return AuditResult(
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        trials=0,
        false_alarm=false_alarm,
        bounds={ASKED: math.inf},
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Additive:
    """Noise on numbers, of which the two data sets differ in these."""

    left: Floats
    right: Floats
    laws: tuple[Asked, ...]  # of each
    account: Callable[["Additive", float, float], float]  # epsilon, with so many times the noise
    budget: int  # numbers with noise that may be drawn

    def run(self, claim: Claim, trials: int | None, false_alarm: float) -> AuditResult:
        """All bounds, from the noise of the first numbers; the others would only help.

        `trials` are releases of either data set (default: as many as take some seconds).
        """
        width = min(len(self.laws), max(1, self.budget // (2 * FEWEST)))
        squares, worlds = list[Floats](), (self.left[:width], self.right[:width])

        def size(chance: float) -> float:
            return self.account(self, self._most_noise(squares, chance), claim.delta)

        samplers = [partial(self._sample, world, worlds, squares) for world in worlds]
        trials = trials or max(FEWEST, self.budget // (2 * width))
        asked, gaussian = self.account(self, 1.0, claim.delta), self.laws[0].gaussian
        return _all_bounds(claim, samplers, trials, false_alarm, asked, size, gaussian=gaussian)

    def _sample(
        self, world: Floats, worlds: tuple[Floats, Floats], squares: list[Floats], trials: int
    ) -> Floats:
        """How much more each release looks like that of the right world; raw, if one number."""
        laws = self.laws[: len(world)]
        drawn = [law.draw(np.full(trials, x)) for law, x in zip(laws, world, strict=True)]
        noisy = np.stack(drawn, axis=1).astype(np.float64)
        squares.append((noisy - world) ** 2 / [law.variance for law in laws])
        if len(laws) == 1:  # no arithmetic, so that every bit of the release is examined
            return noisy[:, 0]
        (left, right), scales = worlds, np.array([law.scale for law in laws])
        if laws[0].gaussian:
            return np.asarray(noisy @ ((right - left) / scales**2))
        return np.asarray((np.abs(noisy - left) - np.abs(noisy - right)) @ (1 / scales))

    def _most_noise(self, squares: Sequence[Floats], chance: float) -> float:
        """The noise is at most so many times what was asked for, if it has the right shape.

        The mean of n squares x falls short of its expectation by a share t with probability at most
        exp(-n t^2 / (2 K)), K = E x^2 / (E x)^2 (Maurer 2003): the kurtosis, 6 of Laplace and 3 of
        normal noise, and at most 1 / variance more of whole numbers.
        """
        found = np.concatenate(squares).ravel()
        law = min(self.laws, key=lambda each: each.variance)
        kurtosis = (3.0 if law.gaussian else 6.0) + (1 / law.variance if law.whole else 0.0)
        short = math.sqrt(2 * kurtosis * math.log(1 / chance) / found.size)
        return math.sqrt(float(found.mean()) / (1 - short)) if short < 1 else math.inf


def additive_attack(left: Sequence[Asked], right: Sequence[Asked]) -> Additive | None:
    """The attack on noise that was asked for in either world, which must be the same; None:
    nothing is hidden.
    """
    if [each.scale for each in left] != [each.scale for each in right]:
        return None
    ends, laws = list[tuple[float, float]](), list[Asked]()
    for one, other in zip(left, right, strict=True):
        places = np.flatnonzero(one.values != other.values)
        ends += zip(one.values[places].tolist(), other.values[places].tolist(), strict=True)
        laws += [one] * len(places)
    if not laws:
        return None
    first, last = np.array(ends).T
    return Additive(left=first, right=last, laws=tuple(laws), account=account_of, budget=DRAWS)


def account_of(attack: Additive, factor: float, delta: float) -> float:
    """The epsilon of the pair at delta, with `factor` times the noise that was asked for."""
    shifts, law = np.abs(attack.right - attack.left), attack.laws[0]
    scales = factor * np.array([each.scale for each in attack.laws])
    if not law.gaussian or factor == math.inf:
        return math.fsum((shifts / scales).tolist())
    if not law.whole:
        return gaussian_epsilon(1 / float(np.linalg.norm(shifts / scales)), delta)
    found = IntegerGaussianMechanism(
        sigma=float(scales.min()), coordinates=len(shifts), contribution=round(float(shifts.max()))
    )
    return found.epsilon(delta)


def _all_bounds(
    claim: Claim,
    samplers: Sequence[Sampler],
    trials: int,
    false_alarm: float,
    asked: float,
    size: Callable[[float], float],
    *,
    gaussian: bool = False,
) -> AuditResult:
    """Half of the false alarms are for the size of the noise, which is known once it is drawn."""
    told_apart = audit(
        *samplers,
        epsilon=claim.epsilon,
        delta=claim.delta,
        gaussian=gaussian,
        trials=trials,
        false_alarm=false_alarm / 2,
    )
    bounds = {ASKED: asked * (1 - ROUNDING), **told_apart.bounds}
    bounds[SIZE] = size(false_alarm / 2) * (1 - ROUNDING)
    return replace(told_apart, false_alarm=false_alarm, bounds=bounds)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Adaptive:
    """An adaptive answer, drawn from the ranges of either world."""

    ranges: tuple[Ranges, Ranges]  # of the pair that is told apart best
    hardest: tuple[Ranges, Ranges]  # of the pair with the largest loss
    epsilon: float  # of the draws
    same: bool  # whether the release draws from such ranges, with the weights of this epsilon
    source: NoiseSource

    def run(self, claim: Claim, trials: int | None, false_alarm: float) -> AuditResult:
        """All bounds."""
        law, seen = Losses.of(self.ranges, self.epsilon), dict[int, list[Ints]]({0: [], 1: []})

        def sample(world: int, number: int) -> Floats:
            ranges = self.ranges[world]
            draw = partial(adaptive_release, ranges, epsilon=self.epsilon, source=self.source)
            answers = np.array([round(draw() / ranges.grid) for _ in range(number)])
            seen[world].append(_rings(ranges, answers))
            return law.at(answers)

        def size(chance: float) -> float:
            drawn_at = max(
                _least_epsilon(ranges, np.concatenate(seen[world]), chance / 2)
                for world, ranges in enumerate(self.ranges)
            )
            return Losses.of(self.hardest, drawn_at).largest

        samplers = [partial(sample, world) for world in (0, 1)]
        asked = Losses.of(self.hardest, self.epsilon).largest if self.same else math.inf
        return _all_bounds(claim, samplers, trials or DRAWS // 10, false_alarm, asked, size)


Attack = Additive | Adaptive


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """ln P(t) / P'(t) of an adaptive answer t in two worlds: constant between starts."""

    starts: Ints
    losses: Floats
    masses: Floats  # P of each piece

    @classmethod
    def of(cls, worlds: tuple[Ranges, Ranges], epsilon: float) -> "Losses":
        """Of answers drawn at this epsilon."""
        first, last = worlds[0].outer
        edges = [np.concatenate([world.lows, world.highs + 1]) for world in worlds]
        starts = np.unique(np.concatenate([*edges, [first]]))
        starts = starts[starts <= last]
        one, other = (_log_density(world, starts, epsilon) for world in worlds)
        widths = np.diff(np.append(starts, last + 1))
        return cls(starts, one - other, np.exp(one) * widths)

    def at(self, answers: Ints) -> Floats:
        """The loss of each answer."""
        return self.losses[np.searchsorted(self.starts, answers, side="right") - 1]

    @property
    def largest(self) -> float:
        """In either direction."""
        return float(np.abs(self.losses).max())

    @property
    def power(self) -> float:
        """ln P(S) / P'(S) of the best event S, less five standard errors of some thousand draws."""
        order = np.argsort(self.losses)
        one, other = self.masses[order], (self.masses * np.exp(-self.losses))[order]
        found = []
        for p, q in ((other, one), (one[::-1], other[::-1])):
            seen, missed = np.cumsum(p), np.cumsum(q)
            error = np.sqrt((1 / seen + 1 / missed) * 20 / DRAWS)
            found.append(float((np.log(seen / missed) - 5 * error).max()))
        return max(found)


def _log_density(ranges: Ranges, at: Ints, epsilon: float) -> Floats:
    """ln P of each of these points of the grid."""
    sizes = np.array(ring_sizes(ranges), dtype=np.float64)
    total = math.log(float(sizes @ np.exp(-epsilon / 2 * np.arange(len(sizes)))))
    return np.asarray(-epsilon / 2 * (_rings(ranges, at) - 1) - total)


def _rings(ranges: Ranges, at: Ints) -> Ints:
    """len(t) of each of these points of the grid: 1 in the innermost range."""
    above = np.searchsorted(-ranges.lows, -at, side="left")  # ranges that begin above the point
    below = np.searchsorted(ranges.highs, at, side="left")  # and that end below it
    return np.asarray(1 + np.maximum(above, below))


def _least_epsilon(ranges: Ranges, seen: Ints, chance: float) -> float:
    """The answers were drawn at this epsilon at least, from these ranges.

    P(len) ~ e^(-epsilon len / 2) times the points of that len. The less epsilon, the larger len on
    average; the mean of len - 1 falls short of that as in `Additive._most_noise`.
    """
    sizes, rings = np.array(ring_sizes(ranges), dtype=np.float64), np.arange(ranges.steps)
    observed, unknown = float(seen.mean()) - 1, 2 * math.log(1 / chance) / len(seen)

    def excess(epsilon: float) -> float:
        """Above 0 if so small an epsilon is excluded."""
        masses = sizes * np.exp(-epsilon / 2 * rings)
        masses /= masses.sum()
        short = math.sqrt(unknown * float(masses @ rings**2))
        return float(masses @ rings) - short - observed

    return float(scipy.optimize.brentq(excess, 0.0, 2.0**10)) if excess(0.0) > 0 else 0.0


def drawn_below(ranges: Ranges, epsilon: float) -> int:
    """What an answer is drawn below."""
    return sum(n * w for n, w in zip(ring_sizes(ranges), ring_weights(epsilon), strict=True))
