"""Adaptive noise on one number: the inverse sensitivity mechanism. Pure privacy.

Asi and Duchi (2020), "Instance-optimality in differential privacy via approximate inverse
sensitivity mechanisms". How far so many substituted records can move a sum of scores gives the
ranges of the noise. Knows counts and numbers only, no divergence.
docs/decisions/0013-adaptive-noise.md has the proofs.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from fedprikl.checks import (
    Floats,
    Ints,
    check_counts,
    check_epsilon,
    check_finite,
    check_positive_int,
)
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.charges import BoundedRangeLoss, Charge, register_charge
from fedprikl.privacy.laws import Numbers, register_law
from fedprikl.privacy.noise import SECURE_NOISE, NoiseSource

REACH = 80.0  # the weight falls to e^-40 before it stays the same
FEWEST_STEPS, MOST_STEPS = 8, 2**14
WEIGHT_BITS = 64  # of the least weight, and of the ratio of two

# Weighted scores w s(h) of entries (positions) at counts h; both broadcast.
Scores = Callable[[Ints, Ints], Floats]

# The grid is so coarse that a difference of two scores, rounded to it, is off by at most one step.
GRID_BITS = 48
EXACT = 128  # substitutions up to which the knapsack is solved exactly; public
LARGEST_TABLE = 2**20  # of gains that are looked at together
SMALL_TABLE = 2**14  # of gains that are computed sooner than it is found out which ones matter
NEVER = -(2**60)
CLOSE = 3.0  # more than rounding does to the difference of two densities


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ranges:
    """I_k = [low, high] for k = 1 .. steps - 1, on a grid: what k substitutions can reach. SECRET.

    For neighbours x and x', I_k(x) lies in I_(k+1)(x'). If a whole client is protected, a
    substitution is that of all its records. The grid, its outer ends and the number of
    ranges are public.
    """

    value: int  # f(x), where no record is substituted
    lows: Ints  # in steps of the grid, like all whole numbers here
    highs: Ints
    outer: tuple[int, int]
    grid: float  # a power of 2

    def __post_init__(self) -> None:
        falling, rising = self.ends
        if (
            len(falling) != len(rising)
            or np.any(np.diff(rising) < 0)
            or np.any(np.diff(falling) > 0)
            or np.any(rising < falling)
        ):
            raise InvalidInputError("Each range must contain the ones before it.")

    @property
    def ends(self) -> tuple[Ints, Ints]:
        """The lowest and the highest point of each range, the outer one last."""
        return np.append(self.lows, self.outer[0]), np.append(self.highs, self.outer[1])

    @property
    def steps(self) -> int:
        """The number of ranges, the outer one included."""
        return len(self.lows) + 1

    def __repr__(self) -> str:  # the ranges are secret
        return f"Ranges({self.steps} steps)"


@register_charge("adaptive")
@register_law("adaptive", on=Numbers)
@dataclass(frozen=True, slots=True, kw_only=True)
class InverseSensitivityMechanism(Charge):
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

    @classmethod
    def calibrated(cls, on: Numbers, *, epsilon: float, delta: float) -> Self:  # noqa: ARG003
        """What costs epsilon, whatever the data."""
        return cls(epsilon=epsilon)

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
    lows: list[int] = ranges.ends[0].tolist()
    if ring == 0:  # counted from the value on, so that a source without noise gives the value
        return lows[0] + (place + ranges.value - lows[0]) % sizes[0]
    below = lows[ring - 1] - lows[ring]  # points of the ring on the lower side
    if place < below:
        return lows[ring] + place
    return int(ranges.highs[ring - 1]) + 1 + place - below


def ring_sizes(ranges: Ranges) -> list[int]:
    """How many points of the grid have len 1, 2, ..., steps."""
    lows, highs = ranges.ends
    sizes: list[int] = np.diff(highs - lows + 1, prepend=0).tolist()
    return sizes


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


@dataclass(frozen=True, slots=True, eq=False)
class NoiseLaw:
    """Of what `adaptive_release` adds to f(x): a density that is constant between `edges`.

    SECRET for a real population, as the ranges are. In floats: a release is drawn from the whole
    numbers instead.

    >>> ranges = Ranges(
    ...     value=0, lows=np.arange(-1, -80, -1), highs=np.arange(1, 80), outer=(-90, 90), grid=0.5
    ... )
    >>> law = NoiseLaw.of(ranges, epsilon=1.0)
    >>> round(float(np.interp(0.9, law.below, law.edges)), 2)  # 90% of the noise is below
    1.69
    """

    edges: Floats  # increasing
    below: Floats  # P(noise <= edge), from 0 to 1

    @classmethod
    def of(cls, ranges: Ranges, *, epsilon: float) -> "NoiseLaw":
        """The law for these ranges; each point of the grid stands for the step around it."""
        falling = _densities(epsilon)
        lows, highs = ranges.ends
        edges = np.concatenate([lows[::-1] - ranges.value - 0.5, highs - ranges.value + 0.5])
        density = np.concatenate([falling[:0:-1], falling])
        masses = density * np.diff(edges)
        below = np.concatenate([[0.0], np.cumsum(masses)])
        return cls(edges * ranges.grid, below / below[-1])

    def simulate(self, rng: np.random.Generator, size: int) -> Floats:
        """Draws for FORECASTS: floats of a generator that is not secure. Never release them."""
        return np.interp(rng.random(size), self.below, self.edges)

    def __repr__(self) -> str:  # secret
        return f"NoiseLaw({len(self.edges) - 1} pieces)"


@lru_cache(maxsize=16)  # forecasts ask for the laws of many populations
def _densities(epsilon: float) -> Floats:
    """Of the rings, from the innermost one's, which is 1."""
    weights = ring_weights(epsilon)
    found = np.array([float(weight / weights[0]) for weight in weights])
    found.flags.writeable = False
    return found


def reachable_ranges(
    counts: Ints,
    records: Ints,
    scores: Scores,
    *,
    magnitude: float,
    steps: int,
    contribution: int = 1,
) -> Ranges:
    """The ranges of f(x) = sum_e w_e s_e(h_e), each w_e s_e convex and not rising in the count.

    A substitution lowers at most one count by 1 and raises at most one by 1. With k of them,

        low_k  = min f = f(x) - the k largest drops w (s(h + j) - s(h + j + 1))
        high_k = max f = f(x) + max sum_e w (s(h_e - r_e) - s(h_e)),   sum_e r_e <= k

    Beyond k = 128, high_k is a little above max f: records are divisible there. Both ends are
    widened by a public slack for rounding. If whoever is protected has c = `contribution` records,
    the ranges are those of k = c, 2 c, ..., (steps - 1) c: neighbours are c substitutions apart,
    each of which lengthens k by 1 at most.

    `records` (public) bound the counts. `magnitude` (public) is the sum over e of a size of w_e s_e
    so large that no score, for counts up to `records` + `steps` c, is off by more than 2^-50 of
    it.

    >>> weights = np.array([0.5, 0.5])
    >>> scores = lambda entry, count: -weights[entry] * np.log(0.01 + 0.99 * count / 10)
    >>> found = reachable_ranges(
    ...     np.array([10, 10]), np.array([20, 20]), scores, magnitude=10.0, steps=4
    ... )
    >>> (found.lows * found.grid).round(3).tolist(), (found.highs * found.grid).round(3).tolist()
    ([-0.047, -0.094, -0.138], [0.052, 0.11, 0.176])
    """
    h, most = check_counts(counts, "counts"), check_counts(records, "records")
    check_positive_int(steps, "steps")
    grid = math.ldexp(1.0, math.frexp(check_finite(magnitude, "magnitude"))[1] - GRID_BITS)
    entries = np.arange(len(h))

    def total(at: Ints) -> int:
        return round(math.fsum(scores(entries, at).tolist()) / grid)

    value = total(h)
    outer = total(most) - 1, total(np.zeros_like(h)) + 1
    k = np.arange(1, steps) * check_positive_int(contribution, "contribution")
    slack = 2 * k * (4 * k + 8)  # each end is off by at most 4 k + 8 steps of the grid
    low = value - _falls(h, scores, grid, (steps - 1) * contribution)[k - 1] - slack
    high = value + _rises(h, scores, grid, k) + slack
    return Ranges(
        value=value,
        lows=np.clip(np.minimum.accumulate(low), *outer),
        highs=np.clip(np.maximum.accumulate(high), *outer),
        outer=outer,
        grid=grid,
    )


def _falls(h: Ints, scores: Scores, grid: float, most: int) -> Ints:
    """How far f falls if 1, 2, ..., `most` records are added where they lower it most.

    Drops of one cell get smaller, so cells are looked at in blocks of 1, 1, 2, 4, ... drops, and
    only while their last drop is among the largest: at most about `most` new drops a block.
    """
    active, begin = np.arange(len(h)), 0
    end = most if len(h) * most <= SMALL_TABLE else 1
    largest: Ints = np.zeros(0, np.int64)
    while active.size and begin < most:
        at = h[active][:, None] + np.arange(begin, end + 1)
        drops = -_steps(np.diff(scores(active[:, None], at), axis=1), grid)
        largest = _largest(np.concatenate([largest, drops.ravel()]), most)
        least = largest[-1] if len(largest) == most else -1
        active = active[drops[:, -1] > least]
        begin, end = end, 2 * end
    falls = np.zeros(most, np.int64)
    falls[: len(largest)] = largest
    return np.cumsum(falls)


def _largest(values: Ints, most: int) -> Ints:
    """The largest so many, the largest first."""
    if len(values) > most:
        values = np.partition(values, len(values) - most)[len(values) - most :]
    return np.sort(values)[::-1]


def _rises(h: Ints, scores: Scores, grid: float, k: Ints) -> Ints:
    """How far f rises if so many records (ascending) are removed where that raises it most."""
    gains = _Gains(h, scores, grid)
    cells = np.flatnonzero(h)
    if not cells.size:
        return np.zeros(len(k), np.int64)
    few, many = k[k <= EXACT], k[k > EXACT]
    exact = _knapsack(gains, cells, int(few[-1]))[few - 1] if few.size else few
    return np.concatenate([exact, _divisible(gains, cells, many)])


class _Gains:
    """What removing r records from a cell adds to f: w (s(h - r) - s(h)), convex in r."""

    def __init__(self, h: Ints, scores: Scores, grid: float) -> None:
        self.h, self.scores, self.grid = h, scores, grid
        self.before = scores(np.arange(len(h)), h)  # w s(h)

    def __call__(self, cells: Ints, removed: Ints) -> Ints:
        left = self.scores(cells, self.h[cells] - removed)
        return _steps(left - self.before[cells], self.grid)

    def density(self, cells: Ints, k: Ints) -> tuple[Floats, Ints]:
        """Gain per record of removing m = min(k, h), which rises with k; and m. Rows: k."""
        room = np.minimum(k[:, None], self.h[cells])
        return self(cells, room) / room, room


def _knapsack(gains: _Gains, cells: Ints, most: int) -> Ints:
    """The largest gain of removing 1, ..., `most` records: cells emptied whole, one partly.

    Gains are convex, so of two cells emptied partly one can give way to the other.
    """
    whole = _emptied(gains, cells, most)
    parts = _best_parts(gains, np.setdiff1d(cells, whole, assume_unique=True), most)
    before = np.full(2 * most + 1, NEVER)
    # Row most - r, column j: best[j - r]. The largest of each column is found the fastest.
    shifted = sliding_window_view(before, most + 1)
    # The best with at most j records: no cell emptied partly, and at most one, which is no worse.
    single = int(np.searchsorted(gains.h[whole], 2))  # cells of one record come first
    intact = _singles(gains, whole[:single], most)
    before[most:] = np.maximum.accumulate(parts)
    parted: Ints = (shifted + intact[::-1, None]).max(axis=0)
    for size, gain in _gains_of_each(gains, whole[single:]):
        before[most:] = intact
        partly = (shifted[most - size + 1 : most] + gain[-2::-1, None]).max(axis=0)
        parted[size:] = np.maximum(parted[size:], parted[: most + 1 - size] + gain[-1])
        parted = np.maximum(parted, partly)
        intact[size:] = np.maximum(intact[size:], intact[: most + 1 - size] + gain[-1])
    return parted[1:]


def _singles(gains: _Gains, cells: Ints, most: int) -> Ints:
    """The largest gain of emptying at most 0, 1, ..., `most` cells of one record each, the best
    first.
    """
    best = np.cumsum(gains(cells, np.ones_like(cells)))[:most]
    intact = np.zeros(most + 1, np.int64)
    intact[1 : len(best) + 1] = best
    return np.maximum.accumulate(intact)


def _gains_of_each(gains: _Gains, cells: Ints) -> Iterator[tuple[int, Ints]]:
    """How many records each cell holds, and the gain of removing 1, 2, ... of them."""
    sizes = gains.h[cells]
    ends = np.cumsum(sizes)
    removed = np.arange(1, int(sizes.sum()) + 1) - np.repeat(ends - sizes, sizes)
    found = gains(np.repeat(cells, sizes), removed)
    for size, end in zip(sizes.tolist(), ends.tolist(), strict=True):
        yield size, found[end - size : end]


def _emptied(gains: _Gains, cells: Ints, most: int) -> Ints:
    """The cells that may be emptied whole: of those with h records the best most / h, and one more,
    for one of the best may be emptied partly.
    """
    small = cells[gains.h[cells] <= most]
    size = gains.h[small]
    order = np.lexsort((-gains(small, size), size))
    size = size[order]
    rank = np.arange(len(size)) - np.searchsorted(size, size)
    chosen: Ints = small[order][rank <= most // size]
    return chosen


def _best_parts(gains: _Gains, cells: Ints, most: int) -> Ints:
    """The largest gain of removing 0, 1, ..., `most` records from one of the cells."""
    best = np.zeros(most + 1, np.int64)
    if 0 < len(cells) * most <= SMALL_TABLE:
        best[1:] = gains(cells, np.minimum(np.arange(1, most + 1)[:, None], gains.h[cells])).max(1)
        return best
    for first, last in _blocks(1, most):
        cells = cells[gains.h[cells] >= first]
        if not cells.size:
            break
        (least, largest), room = gains.density(cells, np.array([first, last]))
        sure = least[room[1] == last].max(initial=0.0)  # of cells that hold enough for all of them
        useful = cells[largest >= sure - CLOSE]
        for k in _chunks(np.arange(first, last + 1), len(useful)):
            removed = np.minimum(k[:, None], gains.h[useful])
            best[k] = gains(useful, removed).max(axis=1)
    return best


def _divisible(gains: _Gains, cells: Ints, k: Ints) -> Ints:
    """At least the largest gain of removing k records, for each of them.

    As if each of the m = min(k, h) records of a cell that can be removed gave the same: the cells
    with the largest gain per record first.
    """
    found = [np.zeros(0, np.int64)]
    while k.size:
        block, k = np.split(k, [np.searchsorted(k, 2 * k[0])])
        useful = _densest(gains, cells, int(block[0]), int(block[-1]))
        found += [_fill(gains, useful, some) for some in _chunks(block, len(useful))]
    return np.concatenate(found)


def _densest(gains: _Gains, cells: Ints, first: int, last: int) -> Ints:
    """The cells that can be needed for some k in first .. last.

    If cells whose density at `first` is at least c have room for `last` records, no cell is needed
    whose density at `last` is below c.
    """
    (least, largest), room = gains.density(cells, np.array([first, last]))
    order = np.argsort(-least)
    filled = np.searchsorted(np.cumsum(room[0][order]), last)
    if filled == len(order):
        return cells
    useful: Ints = cells[largest >= least[order[filled]] - CLOSE]
    return useful


def _fill(gains: _Gains, cells: Ints, k: Ints) -> Ints:
    """The largest sum for each k: the densest cells first, the last one in part."""
    density, room = gains.density(cells, k)
    order = np.argsort(-density, axis=1)
    room = np.take_along_axis(room, order, axis=1)
    before = np.cumsum(room, axis=1) - room
    taken = np.clip(k[:, None] - before, 0, room)
    filled = np.rint(np.take_along_axis(density, order, axis=1) * taken)
    return np.asarray(filled.sum(axis=1), dtype=np.int64)


def _steps(values: Floats, grid: float) -> Ints:
    return np.rint(values / grid).astype(np.int64)


def _blocks(first: int, most: int) -> Iterator[tuple[int, int]]:
    """first .. most in blocks that double."""
    while first <= most:
        last = min(2 * first - 1, most)
        yield first, last
        first = last + 1


def _chunks(k: Ints, cells: int) -> list[Ints]:
    return np.array_split(k, min(len(k), 1 + len(k) * cells // LARGEST_TABLE))
