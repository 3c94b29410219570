"""Confidence intervals of a release, from public quantities only: they cost no privacy.

Two intervals are told apart. The *guaranteed* one covers at least as often as it says for every
population. The *printed* one covers as often for all kinds of drift of `drift_kinds.py`, by
simulation, and is never wider. docs/intervals.md says where which is known.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from fedprikl.checks import Ints, check_open_unit
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.adaptive_bound import adaptive_bound
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.envelope import ladder, sampling_variance
from fedprikl.estimation.gap_ranges import dead_zone, is_whole
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.plausible import plausible_interval
from fedprikl.estimation.trials import AdaptiveNoise, ValueNoise
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints

__all__ = ["Interval", "adaptive_interval", "counts_interval", "value_interval"]

RATIOS = 20_001  # ratios v at which clipping is looked at


@dataclass(frozen=True, slots=True)
class Interval:
    """Divergences that a released value does not contradict, in their unit.

    >>> Interval((0.1, 0.2), guaranteed=(0.05, 0.3)).printed
    (0.1, 0.2)
    """

    printed: tuple[float, float]  # covers for all kinds of drift that were simulated
    guaranteed: tuple[float, float] | None = None  # covers for every population


def value_interval(
    value: float,
    *,
    mechanism: Mechanism,
    points: QueryPoints,
    records: Ints,
    score: Score,
    client_effect: float = 1.0,
    level: float = 0.95,
) -> Interval | None:
    """Of a scored sum with additive noise.

    Where all cells are counted in one batch it is guaranteed: only noise and clipping make the
    value differ from D, and clipping raises it by at most `largest_raise`. Else it is measured:
    the choice of points, whose variance is bounded for every population, is taken to be normal,
    and small batches and clipping are simulated. None for a score other than a skew with
    lambda = 0.

    >>> from fedprikl.privacy import calibrate_laplace
    >>> from fedprikl.reference import all_points
    >>> found = value_interval(
    ...     0.3,
    ...     mechanism=calibrate_laplace(epsilon=1.0, sensitivity=0.02),
    ...     points=all_points([0.5, 0.3, 0.2]),
    ...     records=np.array([5000]),
    ...     score=Score(),
    ... )
    >>> [round(end, 2) for end in found.guaranteed]
    [0.24, 0.36]
    """
    if not _is_known(score, level):
        return None
    largest = _largest(points, score)
    if not is_whole(points) and points.batches == 1 and score.maximum_step == math.inf:
        return Interval(
            _sampled(value, mechanism, sampling_variance(points, score), largest, level)
        )
    if not is_whole(points):
        found = ladder(
            points,
            records,
            score,
            ValueNoise(mechanism),
            level=level,
            design_effect=client_effect,
        )
        return Interval(found.interval(value))
    reach = mechanism.quantile((1 + level) / 2)
    ratio, most = largest_raise(score, int(records[0]), points.pi_min)
    low = max((value - reach) / (1 + ratio), value - reach - most)
    exact = _clipped(low, value + reach, largest)
    return Interval(exact, guaranteed=exact)


def adaptive_interval(
    value: float,
    *,
    epsilon: float,
    points: QueryPoints,
    records: Ints,
    score: Score,
    client_effect: float = 1.0,
    moved: int = 1,
    level: float = 0.95,
) -> Interval | None:
    """Of a divergence by the inverse sensitivity mechanism, whose noise is private.

    Guaranteed where all cells are counted in one batch (`AdaptiveBound`); printed is the part of it
    that no kind of drift contradicts. None as for `value_interval`.
    """
    if not _is_known(score, level):
        return None
    found = ladder(
        points,
        records,
        score,
        AdaptiveNoise(epsilon, moved),
        level=level,
        design_effect=client_effect,
    )
    measured = found.interval(value)
    if not is_whole(points):
        return Interval(measured)
    largest, total = _largest(points, score), int(records[0])
    tau = dead_zone(epsilon, records=total, cells=len(points), moved=moved)
    missed = (1 - skew_of(score)) * tau / total
    ratio, most = largest_raise(score, total, points.pi_min, gap=True)
    bound = adaptive_bound(points, records, score, epsilon=epsilon, level=level, moved=moved)
    low, high = bound.interval(value, largest + min(ratio * largest, most))
    sure = _clipped(max(low / (1 + ratio), low - most), high + missed, largest)
    printed = max(measured[0], sure[0]), min(measured[1] + missed, sure[1])
    return Interval(printed if printed[0] <= printed[1] else sure, guaranteed=sure)


def counts_interval(
    noisy: NoisyCounts,
    value: float,
    *,
    score: Score,
    level: float = 0.95,
) -> Interval | None:
    """Of a divergence read off noisy counts: measured.

    The logarithm of a noisy count is biased, by an amount that depends on the true count. The
    counts are public and rule out most populations; `plausible.py` looks at the others. None as
    for `value_interval`, and for several batches.
    """
    if not _is_known(score, level) or noisy.points.batches > 1:
        return None
    low, high = plausible_interval(noisy, value, score=score, level=level)
    return Interval(_clipped(low, high, _largest(noisy.points, score)))


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
