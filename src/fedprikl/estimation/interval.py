"""Confidence intervals of a release, from public quantities only: they cost no privacy.

Two intervals are told apart. The *guaranteed* one covers at least as often as it says for every
population. The *printed* one covers as often for all kinds of drift of `drift_model.py`, by
simulation, and is never wider. docs/intervals.md says where which is known.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_open_unit
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.adaptive import dead_zone, gap_parts, is_whole
from fedprikl.estimation.drift_model import SEED, skew_of
from fedprikl.estimation.noisy_counts import (
    CountsDesign,
    NoisyCounts,
    project_counts,
    whole_counts,
)
from fedprikl.estimation.scoring import AskedNumber, cached_by_value
from fedprikl.estimation.simulated_releases import (
    AdaptiveNoise,
    ValueNoise,
    calibration_grid,
    sampling_variance,
)
from fedprikl.libraries import scipy
from fedprikl.privacy import InverseSensitivityMechanism, Mechanism
from fedprikl.reference import QueryPoints
from fedprikl.search import bisect_whole

DISTANCES = 24  # numbers of records that are looked at; the ones between are bounded by the next
GRID_BITS = 47  # of the ranges' grid, one less to be safe
BISECTIONS, TOLERANCE = 50, 1e-3
# Populations of each kind that noisy counts do not rule out: errors of many cells are alike, so of
# more cells in all than this there are fewer, but never fewer than the last number.
PLAUSIBLE, PLAUSIBLE_CELLS, LEAST_PLAUSIBLE = 120, 20_000, 16
DRAWS = 16  # of what the counts of each were before noise
CAUTION = 0.5  # of the tails of their errors: the true population need not be one of these
STRETCH = 1.4  # of the upper end where noise dominates some counts
RATIOS = 20_001  # ratios v at which clipping is looked at


class AdaptiveBound:
    """Which values F before noise a release t does not contradict, for every population.

    With U_k(F) at least as large as what k records (k clients, where these are protected) add to
    any data set of value F, and k such that len(t) > k has a probability of at most 1 - level for
    every data set of value F:

        F + U_k(F) >= t    and    F <= t + U_k(t)

    Whole domains in one batch (`is_whole`) only.
    """

    def __init__(
        self,
        points: QueryPoints,
        records: Ints,
        score: Score,
        epsilon: float,
        level: float,
        contribution: int = 1,
    ) -> None:
        self._parts = gap_parts(
            points, int(records[0]), score, epsilon=epsilon, contribution=contribution
        )
        self._steps = InverseSensitivityMechanism(epsilon=epsilon).steps
        self._tail, self._log_q = 1 - level, -epsilon / 2
        self._k = np.arange(1, self._steps)
        self._contribution, self._records = contribution, contribution * self._k
        some = np.geomspace(1, self._steps - 1, DISTANCES)
        self._distances = np.unique(np.round(some).astype(np.int64))
        self._next = np.searchsorted(self._distances, self._k)
        # Widths are only compared up to the largest distance that is not above k.
        self._before = np.searchsorted(self._distances, self._k, side="right") - 1
        self._least = self._least_widths()[self._before]
        grid = math.ldexp(1.0, math.frexp(self._parts.magnitude)[1] - GRID_BITS)
        self._slack = 4 * grid * self._records * (self._records + 4)

    def interval(self, value: float, largest: float) -> tuple[float, float]:
        """The least and the largest F between 0 and `largest` that the value allows."""
        high, back = largest, self.reaches(max(value, 0.0))
        for _ in range(BISECTIONS):  # falls to the largest F that is allowed
            allowed = value + float(back[self.distance(high) - 1])
            if allowed >= high * (1 - 1e-6):
                break
            high = max(allowed, 0.0)
        if self.upper(0.0) >= value:
            return 0.0, high
        below, above = 0.0, largest
        while above - below > TOLERANCE * above:
            middle = (below + above) / 2
            below, above = (below, middle) if self.upper(middle) >= value else (middle, above)
        return min(below, high), high

    def upper(self, divergence: float) -> float:
        """F + U_k(F): the largest t with len(t) <= k."""
        reach = self.reaches(divergence)
        return divergence + float(reach[self._distance(divergence, reach) - 1])

    def distance(self, divergence: float) -> int:
        """The least k with P(len > k) <= 1 - level, for every data set of this value.

        With widths w_j of I_j, at most W_j and at least l_j, and q = e^(-epsilon / 2),

            P(len > k) <= (A - q^(k+1) l_k) / (A + (1 - q) sum_(j <= k) q^j l_j),
            A = q^steps W_steps + (1 - q) sum_(k < j < steps) q^j W_j
        """
        return self._distance(divergence, self.reaches(divergence))

    def _distance(self, divergence: float, reach: Floats) -> int:
        widest = reach + np.minimum(reach, divergence + self._slack)
        powers = np.exp(self._log_q * self._k)
        falling = -math.expm1(self._log_q)
        outermost = math.exp(self._log_q * self._steps) * 4 * self._parts.magnitude
        beyond = np.cumsum((falling * powers * widest)[::-1])[::-1]
        beyond = outermost + np.append(beyond[1:], 0.0)
        within = np.cumsum(falling * powers * self._least)
        tails = (beyond - powers * math.exp(self._log_q) * self._least) / (beyond + within)
        enough = np.flatnonzero(tails <= self._tail)
        return int(self._k[enough[0]]) if enough.size else len(self._k)

    def reaches(self, divergence: float) -> Floats:
        """U_k(F) for all k.

        A cell can hold h records only if its own term is at most F. The mean of k steps is steepest
        where h is furthest from the least term, as terms are convex. Records are removed where the
        mean is steepest, from each cell until its term is that of an empty cell, and added where it
        is steepest.
        """
        parts, entries = self._parts, np.arange(len(self._parts.turn))
        zero, full = np.zeros_like(parts.turn), np.full_like(parts.turn, parts.total)
        low = np.maximum(self._furthest(divergence, zero), 1)
        high = np.minimum(self._furthest(divergence, full), parts.total - 1)
        k = self._contribution * self._distances[:, None]
        down, up = np.minimum(k, low), np.minimum(k, parts.total - high)
        falls = parts.falling(entries, low - down) - parts.falling(entries, low)
        most = parts.falling(entries, zero) - parts.least
        rises = parts.rising(entries, parts.total - high - up)
        rises = rises - parts.rising(entries, parts.total - high)
        adding = np.maximum.accumulate(np.maximum(rises / up, 0.0).max(axis=1))[self._next]
        removing = self._removing(np.maximum(falls / down, 0.0), np.maximum(most, 0.0))
        return np.asarray(removing + self._records * adding + self._slack)

    def _removing(self, means: Floats, most: Floats) -> Floats:
        """What removed records add, at most: `means` per record of each cell, `most` per cell."""
        gains = np.empty(len(self._k))
        order = np.argsort(-means, axis=1)
        for i, row in enumerate(order):
            mean, gain = means[i, row], most[row]
            useful = mean > 0
            records = np.cumsum(gain[useful] / mean[useful])
            here = self._next == i
            reached = np.append(0.0, np.cumsum(gain[useful]))
            gains[here] = np.interp(self._records[here], np.append(0.0, records), reached)
        return np.maximum.accumulate(gains)

    def _furthest(self, divergence: float, end: Ints) -> Ints:
        """The count nearest to `end` at which a cell's term is at most F: a bisection."""
        parts, entries = self._parts, np.arange(len(self._parts.turn))

        def fits(counts: Ints) -> npt.NDArray[np.bool_]:
            return parts.scores(entries, counts) <= divergence

        return bisect_whole(fits, np.where(fits(end), end, parts.turn), end)

    def _least_widths(self) -> Floats:
        """l_k: no range I_k of any data set is narrower. From the cell that moves most for sure.

        A cell with h records moves by the variation of its term between h - k and h + k, within
        0 .. N. That is least around the least term, or at one of the ends.
        """
        parts = self._parts
        cells, n = np.arange(len(parts.pi)), parts.total
        turn, k = parts.turn[:-1], np.minimum(self._contribution * self._distances, n)[:, None]

        def variation(low: Ints, high: Ints) -> Floats:
            ends = parts.scores(cells, low) + parts.scores(cells, high)
            return np.asarray(ends - 2 * parts.scores(cells, np.clip(turn, low, high)))

        zero = np.zeros_like(k + turn)
        widths = np.minimum(variation(zero, zero + k), variation(n - k + zero, zero + n))
        low, high = np.clip(turn - k, k, n - k), np.clip(turn + k, k, n - k)
        low, high = np.where(2 * k <= n, low, n // 2), np.where(2 * k <= n, high, n // 2)

        def rises(middle: Ints) -> npt.NDArray[np.bool_]:
            left = np.maximum(middle - k, 0)
            after = parts.scores(cells, left + 1) + parts.scores(cells, middle + 1 + k)
            return after >= parts.scores(cells, left) + parts.scores(cells, middle + k)

        centre = bisect_whole(rises, high, low - 1)
        centred = variation(np.maximum(centre - k, 0), np.minimum(centre + k, n))
        widths = np.minimum(widths, np.where(2 * k <= n, centred, np.inf))
        found = np.maximum.accumulate(widths.max(axis=1))
        return np.asarray(np.maximum(found * (1 - 1e-9) - 1e-15, 0.0))


adaptive_bound = cached_by_value(16)(AdaptiveBound)  # the same one if it is asked for again


def plausible_counts(
    design: CountsDesign, noisy: NoisyCounts, rng: np.random.Generator
) -> list[Floats]:
    """Whole counts of some populations that these noisy counts do not rule out, in three kinds.

    Each kind is (populations, points):

    - what each count may have been before the noise, and the out-of-domain count with noise of the
      same law once more: some records outside all cells may be hidden by it;
    - the noisy counts with noise once more, unless it dominates some: one cell may be unlike all
      others;
    - the first with all cells empty that may be (`maybe_empty`), as when a kind of record is gone.
    """
    counts, outside = np.array([noisy.counts]), np.array([noisy.out_of_domain])
    number = plausible_number(counts.size)
    on_counts, on_outside = design.draw_noise(rng, 2 * number)
    parts = np.array_split(outside + on_outside, design.pieces(2 * number, 1))
    found = np.concatenate(
        [
            design.before_noise(
                np.repeat(counts, len(part), axis=0), part, rng=rng, draws=1, varied=True
            )[:, 0]
            for part in parts
        ]
    )
    kinds, empty = [found], maybe_empty(design, counts[0])
    if not design.noise_dominated:
        varied = counts + on_counts[:number], outside + on_outside[:number]
        kinds.append(design.project(*varied))
    if 0 < empty.size < counts.size:
        some = found[:number].copy()
        some[:, empty] = -np.inf
        kinds.append(project_counts(some, found[:number].sum(axis=1, keepdims=True)))
    return [whole_counts(each, rng) for each in kinds]


def plausible_number(cells: int) -> int:
    """How many populations of each kind are simulated for so many cells."""
    return max(LEAST_PLAUSIBLE, min(PLAUSIBLE, PLAUSIBLE_CELLS // cells))


def maybe_empty(design: CountsDesign, counts: Floats) -> Ints:
    """The cells that may all be empty: as many of the lowest counts as noise explains together.

    Only cells whose expected count N Pi > b ln(K) / 2 would stand out of noise of scale b among K.
    A sum of m counts is explained if it is within 2 standard deviations of its noise, and a single
    one within 3.
    """
    sd, cells = design.noise_sd[0], len(counts)
    stands_out = design.records[0] * design.points.pi > sd / math.sqrt(8) * math.log(cells)
    order = np.argsort(counts, kind="stable")
    order = order[(stands_out & (counts < 3 * sd))[order]]
    within = np.cumsum(counts[order]) <= 2 * sd * np.sqrt(np.arange(1, order.size + 1))
    return np.asarray(order[: int(np.flatnonzero(within).max(initial=-1)) + 1])


@cached_by_value(4)  # the same for every score of a view
def plausible_errors(
    points: QueryPoints, noisy: NoisyCounts, scores: tuple[Score, ...]
) -> list[tuple[Floats, Floats]]:
    """Divergences of plausible populations, and errors of what noisy counts would tell of them.

    A pair for each kind of `plausible_counts`, (scores, populations) both.
    """
    design, rng, found = CountsDesign.of(points, noisy), np.random.default_rng(SEED), []
    for counts in plausible_counts(design, noisy, rng):
        truths = np.array([design.weighted(counts, score) for score in scores])
        errors = design.simulate(counts, scores=scores, rng=rng, draws=DRAWS) - truths
        chosen = np.array([sampling_variance(points, score) for score in scores])[:, None]
        errors += np.sqrt(chosen * np.maximum(truths, 0.0)) * rng.standard_normal(truths.shape)
        found.append((truths, errors))
    return found


def plausible_interval(
    points: QueryPoints,
    noisy: NoisyCounts,
    value: float,
    *,
    score: Score,
    scores: tuple[Score, ...],
    level: float,
) -> tuple[float, float]:
    """The value less errors of plausible populations: the widest quantiles of several kinds.

    The kinds are those of `plausible_counts`, the first in two halves: smaller and larger D.
    `score` is one of the `scores` that are read off the same counts. Where noise dominates some
    counts, drift that only they show is partly hidden from the value and from all kinds: there the
    upper end is `STRETCH` times as far.
    """
    tail = CAUTION * (1 - level) / 2
    seen = max(
        tail, 1 / plausible_number(len(points))
    )  # errors beyond are taken to fall off like Laplace noise
    further = math.log(2 * tail) / math.log(2 * seen)
    ends, place = [], scores.index(score)
    for number, (truths, errors) in enumerate(plausible_errors(points, noisy, scores)):
        halves = np.array_split(np.argsort(truths[place], kind="stable"), 2 if number == 0 else 1)
        ends += [further * np.quantile(errors[place, half], [seen, 1 - seen]) for half in halves]
    stretch = STRETCH if CountsDesign.of(points, noisy).noise_dominated else 1.0
    low, high = np.min(ends) * stretch, np.max(ends)
    return value - max(float(high), 0.0), value - min(float(low), 0.0)


@dataclass(frozen=True, slots=True)
class Interval:
    """Divergences that a released value does not contradict, in their unit.

    >>> Interval((0.1, 0.2), guaranteed=(0.05, 0.3)).printed
    (0.1, 0.2)
    """

    printed: tuple[float, float]  # covers for all kinds of drift that were simulated
    guaranteed: tuple[float, float] | None = None  # covers for every population


def value_interval(
    value: float, mechanism: Mechanism, asked: AskedNumber, *, level: float = 0.95
) -> Interval | None:
    """Of a scored sum with additive noise.

    Where all cells are counted in one batch it is guaranteed: only noise and clipping make the
    value differ from D, and clipping raises it by at most `largest_raise`. Else it is measured:
    the choice of points, whose variance is bounded for every population, is taken to be normal,
    and small batches and clipping are simulated. None for a score other than a skew with
    lambda = 0.

    >>> from fedprikl.privacy import Numbers, calibrate
    >>> from fedprikl.reference import all_points
    >>> asked = AskedNumber(all_points([0.5, 0.3, 0.2]), np.array([5000]), Score())
    >>> noise = calibrate(Numbers(sensitivity=0.02), epsilon=1.0, law="laplace")
    >>> [round(end, 2) for end in value_interval(0.3, noise, asked).guaranteed]
    [0.24, 0.36]
    """
    points, records, score = asked.points, asked.records, asked.score
    if not _is_known(score, level):
        return None
    largest = _largest(points, score)
    if not is_whole(points) and points.batches == 1 and score.maximum_step == math.inf:
        return Interval(
            _sampled(value, mechanism, sampling_variance(points, score), largest, level)
        )
    if not is_whole(points):
        noise = ValueNoise(mechanism)
        grid = calibration_grid(points, records, score, noise, level, asked.client_effect)
        return Interval(_holding(value, grid.interval(value), largest))
    reach = mechanism.quantile((1 + level) / 2)
    ratio, most = largest_raise(score, int(records[0]), points.pi_min)
    low = max((value - reach) / (1 + ratio), value - reach - most)
    exact = _clipped(low, value + reach, largest)
    return Interval(exact, guaranteed=exact)


def adaptive_interval(
    value: float, epsilon: float, asked: AskedNumber, *, level: float = 0.95
) -> Interval | None:
    """Of a divergence by the inverse sensitivity mechanism, whose noise is private.

    Guaranteed where all cells are counted in one batch (`AdaptiveBound`); printed is the part of it
    that no kind of drift contradicts. None as for `value_interval`.
    """
    points, records, score = asked.points, asked.records, asked.score
    if not _is_known(score, level):
        return None
    contribution = asked.contribution
    noise = AdaptiveNoise(epsilon, contribution)
    grid = calibration_grid(points, records, score, noise, level, asked.client_effect)
    largest, total = _largest(points, score), int(records[0])
    measured = _holding(value, grid.interval(value), largest)
    if not is_whole(points):
        return Interval(measured)
    tau = dead_zone(epsilon, records=total, cells=len(points), contribution=contribution)
    missed = (1 - skew_of(score)) * tau / total
    ratio, most = largest_raise(score, total, points.pi_min, gap=True)
    bound = adaptive_bound(points, records, score, epsilon, level, contribution)
    low, high = bound.interval(value, largest + min(ratio * largest, most))
    sure = _clipped(max(low / (1 + ratio), low - most), high + missed, largest)
    printed = max(measured[0], sure[0]), min(measured[1] + missed, sure[1])
    return Interval(printed if printed[0] <= printed[1] else sure, guaranteed=sure)


def counts_interval(
    points: QueryPoints,
    noisy: NoisyCounts,
    value: float,
    *,
    score: Score,
    scores: tuple[Score, ...] = (),
    level: float = 0.95,
) -> Interval | None:
    """Of a divergence read off noisy counts, beside those of all `scores`: measured.

    The logarithm of a noisy count is biased, by an amount that depends on the true count. The
    counts are public and rule out most populations; `plausible_counts` has some of the others.
    None as for `value_interval`, and for several batches.
    """
    if not _is_known(score, level) or points.batches > 1:
        return None
    low, high = plausible_interval(
        points, noisy, value, score=score, scores=scores or (score,), level=level
    )
    return Interval(_clipped(low, high, _largest(points, score)))


def _sampled(
    value: float, mechanism: Mechanism, variance: float, largest: float, level: float
) -> tuple[float, float]:
    """Where only the noise and the choice of points count, whose variance is at most V R D.

    D is in the interval if the value is within the error expected *at D*: a drift too small to have
    been sampled well is not excluded because the value happens to be small.
    """

    @cache  # a search for a root asks for its ends again
    def slack(divergence: float) -> float:
        reach = mechanism.quantile((1 + level) / 2, error_sd=math.sqrt(variance * divergence))
        return reach - abs(value - divergence)

    middle = min(max(value, 0.0), largest)
    if slack(middle) < 0:  # the noise threw the value far out of the possible range
        return middle, middle
    root = scipy.optimize.brentq
    low = 0.0 if slack(0.0) >= 0 else float(root(slack, 0.0, middle))
    return low, largest if slack(largest) >= 0 else float(root(slack, middle, largest))


def _is_known(score: Score, level: float) -> bool:
    check_open_unit(level, "level", "Use 0.95 for a 95% interval.")
    return isinstance(score.smoothing, Skew) and not score.control and score.finite


def _largest(points: QueryPoints, score: Score) -> float:
    return score.divergence.largest(skew_of(score), 1 / points.pi_min)


def _clipped(low: float, high: float, largest: float) -> tuple[float, float]:
    return min(max(low, 0.0), largest), min(max(high, 0.0), largest)


def _holding(value: float, ends: tuple[float, float], largest: float) -> tuple[float, float]:
    """The interval with the value in it, as far as that is possible: between 0 and `largest`."""
    shown = min(max(value, 0.0), largest)
    return min(ends[0], shown), max(ends[1], shown)


@lru_cache(maxsize=64)
def largest_raise(
    score: Score, records: int, pi_min: float, *, gap: bool = False
) -> tuple[float, float]:
    """How much clipping raises the sum over a whole domain, at most: per unit of D, and in all.

    A cell of ratio v is raised by rise(v) and adds g(v), its gap, to D: both times Pi. So the sum
    of all raises is at most D max_v rise(v) / g(v), and at most max_v rise(v), whatever the
    population. `gap` says that g itself is clipped, as for adaptive noise, else f.

    >>> ratio, most = largest_raise(Score(maximum_step=60 / 10_000), 10_000, 0.001)
    >>> round(ratio, 3), round(most, 3)
    (0.034, 0.107)
    """
    if score.maximum_step == math.inf:
        return 0.0, 0.0
    gamma = skew_of(score)
    v = np.geomspace(gamma, 1 / pi_min, RATIOS)
    gaps = score.divergence.gap(v, v - 1)
    scores = gaps if gap else score.divergence.f(v)
    line = scores[0] - score.maximum_step * records / (1 - gamma) * (v - gamma)
    rises = np.maximum(line - scores, 0.0) * (1 + 1e-4)  # the ratios are a grid
    some = rises > 0
    ratio = np.divide(rises, gaps, out=np.zeros_like(gaps), where=some & (gaps > 0))
    return (math.inf if np.any(some & (gaps <= 0)) else float(ratio.max())), float(rises.max())
