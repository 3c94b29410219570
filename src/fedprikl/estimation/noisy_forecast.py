"""What error to expect with an untrusted aggregator: simulated, as its bias has no formula."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import SEED, Drift, fit_drift, skew_of
from fedprikl.estimation.forecast import Forecast
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import NoisyCounts, debias
from fedprikl.estimation.noisy_verdict import judge_noisy_counts, overdispersion
from fedprikl.reference import QueryPoints, Spread

__all__ = ["NoisyRound", "forecast_noisy", "smallest_noisy_drift"]

REPETITIONS, RESAMPLES = 12, 10
POWER_DRAWS = 100


class NoisyRound:
    """A round of one batch with an untrusted aggregator: points, records and noise. Public."""

    def __init__(
        self, points: QueryPoints, *, records: int, noise_sd: float, laplace_scale: float | None
    ) -> None:
        self.points, self.records = points, records
        self.empty = NoisyCounts(
            points=points,
            counts=np.zeros(len(points)),
            rest=np.zeros(1),
            records=np.array([records]),
            noise_sd=np.array([noise_sd]),
            laplace_scale=laplace_scale,
        )

    def draw(
        self, drift: Drift, rng: np.random.Generator, draws: int, design_effect: float = 1.0
    ) -> "DrawnRounds":
        """Rounds of so many populations that have drifted; records in groups of equal ones."""
        pi = self.points.pi
        groups = rng.poisson(self.records / design_effect * pi * drift.draw(pi, rng, draws))
        counts = np.rint(design_effect * groups).astype(np.int64)
        asked = counts.sum(axis=1, keepdims=True)
        everybody = np.maximum(self.records, asked)
        on_counts, on_rest = self.empty.draw_noise(rng, draws)
        return DrawnRounds(counts, counts + on_counts, everybody - asked + on_rest, everybody)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRounds:
    """Simulated rounds, one per row."""

    counts: Ints
    noisy: Floats
    rest: Floats  # with noise
    records: Ints


def forecast_noisy(
    current: NoisyRound,
    *,
    score: Score,
    drifts: Sequence[float],
    sampling: Sequence[float],
    repetitions: int = REPETITIONS,
) -> tuple[Forecast, ...]:
    """The errors to expect at each drift; `sampling` is what the choice of points adds."""
    score, points = score.plain, current.points
    forecasts = []
    for divergence, chosen in zip(drifts, sampling, strict=True):
        rng = np.random.default_rng(SEED)
        drift = fit_drift(points.weights, points.pi, divergence=divergence, score=score)
        drawn = current.draw(drift, rng, repetitions)
        found, _ = debias(
            current.empty,
            drawn.noisy,
            drawn.rest,
            drawn.records,
            score=score,
            rng=rng,
            resamples=RESAMPLES,
        )
        errors = found - score(drawn.counts, points.pi, drawn.records) @ points.weights
        forecasts.append(
            Forecast(
                divergence=divergence,
                sampling=chosen,
                bias=float(np.mean(errors)),
                spread=0.0,
                noise_sd=float(np.std(errors)),
            )
        )
    return tuple(forecasts)


def smallest_noisy_drift(
    current: NoisyRound,
    *,
    score: Score,
    false_alarm: float,
    spread: float | Spread,
    power: float = 0.95,
) -> float | None:
    """The least drift that the verdict finds with this power; None if none is."""
    points, records = current.points, np.array([current.records])
    sd = np.full(len(points), float(current.empty.noise_sd[0]))
    model = NoDrift.of(points, records, spread)
    effects = model.design_effects
    verdict = judge_noisy_counts(np.zeros(len(points)), model, sd, false_alarm=false_alarm)
    alarm = verdict.witnesses[0].threshold

    def found(divergence: float) -> bool:
        rng = np.random.default_rng(SEED)
        drift = fit_drift(points.weights, points.pi, divergence=divergence, score=score)
        noisy = current.draw(drift, rng, POWER_DRAWS, float(np.mean(effects))).noisy
        seen = overdispersion(noisy, points.pi, records, sd, design_effect=effects)
        return bool(np.mean(seen > alarm) >= power)

    low, high = 1e-5, 0.9 * score.divergence.empty(skew_of(score))
    if not found(high):
        return None
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if found(middle) else (middle, high)
    return high
