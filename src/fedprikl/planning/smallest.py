"""The smallest drift that is found: the verdict itself, on simulated populations. Public."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import (
    AdaptiveStatistic,
    NullValues,
    Statistic,
    joint_thresholds,
    simulate_together,
)
from fedprikl.planning.drift_cases import POWER_KINDS, DriftCase, drift_case
from fedprikl.planning.trial_round import TrialRound

POWER = 0.95
POPULATIONS = 200  # always the same random numbers: a larger drift is not found less often
PRECISION = 1.04  # of the search, as a ratio
LEAST = 1e-9  # nobody looks for less
TINY = 1e-300
KEPT = 1 - 1e-12  # of a P: else rounding decides whether there is a rest, whose draw takes a number
NOISES = 64  # populations whose adaptive noise is computed


@lru_cache(maxsize=8)  # the choice among ways asks, and the plan again
def smallest_drifts(trial: TrialRound) -> dict[str, float | None]:
    """The least drift of each kind found with 95% power; None if not even a large one is.

    Thresholds are the verdict's own, and populations spread as it assumes.
    """
    verdict = _Verdict.of(
        trial.statistics(),
        trial.no_drift,
        false_alarm=trial.plan.false_alarm_of_each,
        populations=POPULATIONS,
    )
    start = math.sqrt(len(trial.pi)) / int(trial.records.sum())

    def power(kind: str, size: float) -> float | None:
        case = drift_case(trial.pi, kind, size, trial.score)
        return None if case is None else verdict.power(case.ratios[:, trial.term_cells])

    return {kind: _search(partial(power, kind), start) for kind in POWER_KINDS}


def smallest_drifts_of(
    statistics: Sequence[Statistic],
    model: NoDrift,
    drift: Callable[[str, float], DriftCase | None],
    kinds: Sequence[str],
    *,
    false_alarm: float,
) -> dict[str, float | None]:
    """The least drift of each kind found with 95% power by a verdict on these statistics alone."""
    verdict = _Verdict.of(statistics, model, false_alarm=false_alarm)
    start = math.sqrt(len(model.pi)) / int(model.records.sum())

    def power(kind: str, size: float) -> float | None:
        case = drift(kind, size)
        return None if case is None else verdict.power(case.ratios)

    return {kind: _search(partial(power, kind), start) for kind in kinds}


@dataclass(frozen=True, slots=True, eq=False)
class _Verdict:
    """Statistics beside their thresholds."""

    model: NoDrift
    statistics: "tuple[_PowerOf, ...]"
    populations: int

    @classmethod
    def of(
        cls,
        statistics: Sequence[Statistic],
        model: NoDrift,
        *,
        false_alarm: float,
        populations: int = POPULATIONS,
    ) -> "_Verdict":
        nulls = simulate_together(statistics, model, false_alarm=false_alarm)
        thresholds = joint_thresholds(nulls, false_alarm=false_alarm)
        pairs = zip(statistics, thresholds, strict=True)
        return cls(model, tuple(_PowerOf(*pair, model) for pair in pairs), populations)

    def power(self, examples: Floats) -> float:
        """How often it finds a drift with these P / Pi of the terms, one example a row."""
        rng = np.random.default_rng(SEED)
        each = self.populations // len(examples)
        drawn = [_drifted(self.model, ratios).counts(each, rng) for ratios in examples]
        counts = np.concatenate(drawn)
        silent = [1 - statistic.above(counts, rng) for statistic in self.statistics]
        return float(1 - np.prod(silent, axis=0).mean())


class _PowerOf:
    """A statistic beside its threshold."""

    def __init__(self, statistic: Statistic, threshold: float, model: NoDrift) -> None:
        self.statistic, self.threshold, self.model = statistic, threshold, model
        self.noise: Floats | None = None
        if isinstance(statistic, AdaptiveStatistic):
            # Small drifts hardly change its noise, which is costly to compute.
            rng = np.random.default_rng(SEED)
            self.noise = statistic.noise(rng, model.counts(NOISES, rng)).ravel()

    def above(self, counts: Ints, rng: np.random.Generator) -> Floats:
        """P(above the threshold) of each population."""
        if isinstance(self.statistic, AdaptiveStatistic) and self.noise is not None:
            values = self.statistic.before_noise(counts)[:, None] + self.noise
            return NullValues(values).above(self.threshold)
        values = self.statistic.simulated(self.model, counts, rng)
        return NullValues(values, self.statistic.mechanism).above(self.threshold)


def _drifted(model: NoDrift, ratios: Floats) -> NoDrift:
    """The same spread around a P that has drifted."""
    chances = model.pi * ratios
    asked = np.bincount(model.batch, weights=chances[model.term])
    # Large ratios of few sampled cells may exceed 1 together. A probability is above 0.
    return replace(model, pi=np.maximum(KEPT * chances / max(1.0, float(asked.max())), TINY))


def _search(power: Callable[[float], float | None], start: float) -> float | None:
    """The least size with enough power. `power` is None for sizes that no drift has."""
    low, high, found = 0.0, start, False
    while not found and (seen := power(high)) is not None:
        found = seen >= POWER
        low, high = (low, high) if found else (high, 2 * high)
    while low == 0 and high > LEAST and (power(high / 2) or 0.0) >= POWER:
        high /= 2
    low = low or high / 2
    while high / low > PRECISION:
        middle = math.sqrt(low * high)
        seen = power(middle)
        if seen is not None and seen < POWER:
            low = middle
        else:
            high, found = middle, found or seen is not None
    return high if found else None
