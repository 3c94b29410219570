"""Intervals from trials: all divergences that a released value does not contradict.

At each divergence D the errors of the release are simulated for every kind of drift. D is in the
interval unless the value is lower, or higher, than all kinds of drift allow. What holds for these
kinds need not hold for every population: such an interval is measured, not guaranteed.
"""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import KINDS, drifted_ratios, skew_of
from fedprikl.estimation.scoring import Terms, cached_by_value
from fedprikl.estimation.trials import AdaptiveNoise, Errors, Release, ValueNoise, trial_errors
from fedprikl.libraries import scipy
from fedprikl.reference import QueryPoints

LARGEST, RATIO = 0.9, 2.0  # the largest drift that is looked at, of an empty cell's; the next one
MOST_RUNGS = 24
CAUTION = 0.6  # of the tail: kinds of drift are examples, and sizes between rungs are not simulated
EFFORT = 1, 400  # of adaptive noise, which is slow to simulate
NO_DRIFT = 6, 400  # the same where there is only one kind


@dataclass(frozen=True, slots=True)
class Rung:
    """The errors at one size of drift: the lowest and the highest of all its kinds."""

    truth: float
    low: float
    high: float
    middle: float  # the mean error


def sampling_variance(points: QueryPoints, score: Score) -> float:
    """What the choice of points adds to the variance per unit of D, at most: V R.

    With s = f(v) and E[v] = 1, the mean of the gap g(v) = f(v) - f'(1) (v - 1) is D, and
    s^2 <= R g(v) for every ratio that can occur, R the divergence's `square_ratio`. So
    E[s^2] <= R D whatever the population.
    """
    if not points.sampling_variance:
        return 0.0
    ratio = score.divergence.square_ratio(skew_of(score), 1 / points.pi_min)
    return points.sampling_variance * ratio


class Ladder:
    """The errors of a release at drifts of all sizes; each size is simulated when needed."""

    def __init__(
        self,
        points: QueryPoints,
        records: Ints,
        score: Score,
        release: Release,
        level: float,
        design_effect: float,
    ) -> None:
        self._points, self._records, self._score = points, records, score
        self._release, self._level = release, level
        # Groups of equal records leave more cells empty than clients whose records are correlated.
        self._effects = sorted({1.0, design_effect})
        self._terms = Terms.of(points, records)
        gamma, highest = skew_of(score), 1 / points.pi_min
        self.largest = score.divergence.largest(gamma, highest)
        sizes = LARGEST * score.divergence.empty(gamma) / RATIO ** np.arange(MOST_RUNGS)
        least = len(self._terms.pi) / (8 * records.sum())  # far below what no drift gives
        if isinstance(release, ValueNoise):
            least = max(least, release.mechanism.standard_deviation / 2)
        self.sizes: Floats = np.append(0.0, sizes[sizes > least][::-1])
        self._rungs: dict[int, Rung | None] = {}
        self._sampling = sampling_variance(points, score)

    def interval(self, value: float) -> tuple[float, float]:
        """From the least to the largest divergence that the value does not contradict."""
        at = int(np.searchsorted(self.sizes, value))
        first, last = max(at - 1, 0), min(at, len(self.sizes) - 1)
        while True:
            rungs = [rung for i in range(first, last + 1) if (rung := self.rung(i)) is not None]
            if not rungs:
                first -= 1
                continue
            low, high = _crossings(value, rungs, self.largest)
            if first > 0 and low < rungs[0].truth:
                first -= 1
            elif last + 1 < len(self.sizes) and high > rungs[-1].truth:
                last += 1
            else:
                return low, high

    def rung(self, i: int) -> Rung | None:
        """The errors at the i-th size; None if there is no drift, as with one cell only."""
        if i not in self._rungs:
            self._rungs[i] = self._simulated(float(self.sizes[i]))
        return self._rungs[i]

    def _simulated(self, size: float) -> Rung | None:
        terms, found = self._terms, []
        for kind in KINDS if size > 0 else KINDS[:1]:
            ratios = drifted_ratios(
                terms.pi, kind, size, self._score, mass=terms.weights, nearest=True
            )
            if ratios is not None:
                effort = None
                if isinstance(self._release, AdaptiveNoise):
                    effort = EFFORT if size > 0 else NO_DRIFT
                for effect in self._effects:
                    found.append(self._bounds(self._errors(ratios, effect, effort)))
        if not found:
            return None
        truths, lows, highs, middles = np.array(found).T
        return Rung(
            float(truths.max()), float(lows.min()), float(highs.max()), float(middles.mean())
        )

    def _errors(
        self, ratios: Floats, design_effect: float, effort: tuple[int, int] | None
    ) -> Errors:
        return trial_errors(
            self._points,
            self._records,
            ratios,
            self._score,
            self._release,
            design_effect=design_effect,
            effort=effort,
        )

    def _bounds(self, errors: Errors) -> tuple[float, float, float, float]:
        """Mean truth, quantiles of the errors with what the choice of points adds, mean error."""
        tail, middle = CAUTION * (1 - self._level) / 2, errors.bias
        if isinstance(self._release, AdaptiveNoise):  # each population has noise of its own
            rows = np.quantile(errors.signed, [tail, 1 - tail], axis=1)
            low, high = rows[0].min(), rows[1].max()
        else:
            low, high = errors.quantiles(np.array([tail, 1 - tail]))
        z = float(scipy.special.ndtri(1 - tail))
        sampling = z * np.sqrt(self._sampling * max(errors.truth, 0.0))
        return (
            errors.truth,
            float(middle - np.hypot(middle - low, sampling)),
            float(middle + np.hypot(high - middle, sampling)),
            middle,
        )


ladder = cached_by_value(16)(Ladder)  # the same one if it is asked for again


def _crossings(value: float, rungs: list[Rung], largest: float) -> tuple[float, float]:
    """The least D with D + high >= value and the largest with D + low <= value.

    Between rungs the errors are interpolated, beyond the outermost they stay the same.
    """
    truths = np.maximum.accumulate([rung.truth for rung in rungs])
    divergences = np.concatenate([[0.0], truths, [max(largest, float(truths[-1]))]])
    highs = divergences + _extended([rung.high for rung in rungs])
    lows = divergences + _extended([rung.low for rung in rungs])
    able, also = np.flatnonzero(highs >= value), np.flatnonzero(lows <= value)
    if not able.size or not also.size:  # the noise threw the value far out of the possible range
        nearest = min(max(value, 0.0), largest)
        return nearest, nearest
    return (
        _crossing(value, divergences, highs, int(able[0]) - 1),
        _crossing(value, divergences, lows, int(also[-1])),
    )


def _extended(errors: list[float]) -> Floats:
    return np.array([errors[0], *errors, errors[-1]])


def _crossing(value: float, divergences: Floats, bounds: Floats, i: int) -> float:
    """Where the line from the i-th to the next bound meets the value; the end if there is none."""
    if i < 0 or i + 1 == len(bounds):
        return float(divergences[max(i, 0)])
    rise = float(bounds[i + 1] - bounds[i])
    share = min(max((value - float(bounds[i])) / rise, 0.0), 1.0) if rise else 0.0
    return float(divergences[i] + share * (divergences[i + 1] - divergences[i]))
