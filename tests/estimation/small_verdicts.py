"""Verdicts on random small designs, and how often they find drifts of any kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import JS, KL, TV, Score, Skew
from fedprikl.estimation import CountNoise, NoisyCounts, Verdict, judge_together
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.estimation.statistic import (
    Statistic,
    counts_statistics,
    scored_statistic,
)
from fedprikl.privacy import LaplaceMechanism, Numbers
from fedprikl.reference import OutOfDomain, all_points

NOTHING_MISSED = OutOfDomain(shape=1.0, scale=0.0, effect=1.0)
SCORES = (Score(Skew(0.01), KL), Score(Skew(0.0), TV), Score(Skew(0.01), JS))
Kind = Literal["counts", "values", "both"]


@dataclass(frozen=True, eq=False)
class Design:
    """What is released of some records: their noisy counts, values with noise, or both."""

    pi: Floats
    records: int
    epsilon: float
    kind: Kind

    @classmethod
    def random(cls, rng: np.random.Generator) -> "Design":
        """So small that about half of the verdicts on it cannot tell."""
        return cls(
            pi=rng.dirichlet(np.full(int(rng.integers(2, 12)), 0.7)) * 0.999 + 1e-4,
            records=int(10 ** rng.uniform(0.7, 2.7)),
            epsilon=float(10 ** rng.uniform(-1.7, 0.7)),
            kind=str(rng.choice(["counts", "values", "both"])),  # type: ignore[arg-type]
        )

    def statistics(self) -> tuple[Statistic, ...]:
        """Of a release; what was released is 0, as only thresholds are looked at."""
        points, sizes = all_points(self.pi / self.pi.sum()), np.array([self.records])
        noise, found = CountNoise(sd=2**1.5 / self.epsilon, scale=2 / self.epsilon), []
        if self.kind != "counts":
            for score in SCORES:
                delta = score_sensitivity(points, sizes, score)
                law = LaplaceMechanism.calibrated(Numbers(delta), epsilon=self.epsilon / 3, delta=0)
                found.append(
                    scored_statistic(0.0, score=score, points=points, records=sizes, mechanism=law)
                )
        if self.kind == "values":
            return tuple(found)
        noisy = NoisyCounts.of(np.zeros(len(points) + 1), sizes, [noise])
        return (*found, *counts_statistics(points, noisy, NOTHING_MISSED))

    def verdict(self) -> tuple[Verdict, NoDrift, tuple[Statistic, ...]]:
        statistics = self.statistics()
        model = NoDrift.of(statistics[0].points, np.array([self.records]), 1.0)
        return judge_together(statistics, model, false_alarm=0.01), model, statistics

    def drifts(self, size: float, rng: np.random.Generator) -> Iterator[Floats]:
        """Populations of this total variation, those out of the domain last."""
        pi = np.append(self.pi / self.pi.sum(), 0.0)
        cells = len(self.pi)
        extremes = list(np.eye(cells + 1)) + list(rng.dirichlet(np.full(cells + 1, 0.2), 6))
        for _ in range(6):  # half of the mass, in cells of any kind, vanishes
            order = rng.permutation(cells)
            gone = order[: 1 + int(np.searchsorted(np.cumsum(pi[order]), size))]
            left = pi.copy()
            left[gone] = 0
            if left.sum() > 0:
                extremes.append(left / left.sum())
        for each in extremes:
            tv = float(np.abs(pi - each).sum() / 2)
            if tv >= size:
                yield pi + size / tv * (each - pi)


def power(
    verdict: Verdict,
    model: NoDrift,
    statistics: tuple[Statistic, ...],
    drifted: Floats,
    rng: np.random.Generator,
    populations: int = 1000,
) -> float:
    """How often the verdict finds a drift, with everything drawn afresh."""
    held: Ints = rng.multinomial(int(model.records[0]), drifted, populations)[:, :-1]
    found = np.zeros(populations, dtype=bool)
    for statistic in statistics:
        judged = verdict.statistic(statistic.name)
        if judged is None:
            continue
        values = statistic.draw(model, held, rng)[:, 0]
        if statistic.mechanism is not None:
            scale = statistic.mechanism.standard_deviation / 2**0.5
            values = values + rng.laplace(0, scale, populations)
        found |= values > judged.threshold
    return float(found.mean())
