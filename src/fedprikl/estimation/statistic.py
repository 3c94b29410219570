"""What a verdict rests on: released statistics, and how each is distributed without drift.

Without drift a released number is a known function of multinomial counts plus noise of known law.
One simulation serves all statistics of a release. All of it is public, and costs no privacy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.terms import Terms
from fedprikl.estimation.thresholds import NullValues, joint_thresholds, simulated_draws
from fedprikl.estimation.verdict import Verdict, Witness
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints, Spread

__all__ = [
    "AdaptiveStatistic",
    "ScoredStatistic",
    "Statistic",
    "judge_release",
    "judge_together",
    "simulate_together",
    "witnesses_of",
]

# Noise on each of the populations with these counts (draws, terms), some draws each: (draws, m).
CountsNoise = Callable[[np.random.Generator, Ints], Floats]


class Statistic(Protocol):
    """One witness: what was released, and what it would be of simulated counts."""

    @property
    def name(self) -> str:
        """Of the witness."""
        ...

    @property
    def unit(self) -> str:
        """Of the statistic."""
        ...

    @property
    def points(self) -> QueryPoints:
        """The points whose counts it is computed from."""
        ...

    @property
    def records(self) -> Ints:
        """N_t, per batch."""
        ...

    @property
    def mechanism(self) -> Mechanism | None:
        """Noise that `simulated` leaves out, because its law is the same for all counts."""
        ...

    def observed(self, model: NoDrift) -> float:
        """As released."""
        ...

    def simulated(self, model: NoDrift, counts: Ints, rng: np.random.Generator) -> Floats:
        """Of populations with these counts (draws, terms): (draws, m), m draws of the noise."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredStatistic:
    """A scored sum with noise of one known law, or without noise."""

    value: float
    score: Score
    points: QueryPoints
    records: Ints
    mechanism: Mechanism | None

    @property
    def name(self) -> str:
        """Of the divergence."""
        return self.score.divergence.name

    @property
    def unit(self) -> str:
        """Of the divergence."""
        return self.score.unit

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released value."""
        return self.value

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,  # noqa: ARG002  the noise enters by its distribution function
    ) -> Floats:
        """The values before noise."""
        terms = Terms.of(self.points, self.records)
        found: Floats = terms.scores(counts, self.score) @ terms.weights
        return found[:, None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdaptiveStatistic:
    """A number whose noise depends on the counts: drawn afresh for simulated counts."""

    name: str
    unit: str
    value: float
    points: QueryPoints
    records: Ints
    before_noise: Callable[[Ints], Floats]  # counts (draws, terms) -> (draws,)
    noise: CountsNoise
    mechanism: None = None

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released value."""
        return self.value

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,
    ) -> Floats:
        """The values with noise, some draws for each population."""
        found: Floats = self.before_noise(counts)[:, None] + self.noise(rng, counts)
        return found


def simulate_together(
    statistics: Sequence[Statistic], model: NoDrift, *, false_alarm: float
) -> tuple[NullValues, ...]:
    """All statistics of the same simulated populations without drift."""
    rng, found = public_simulation(), [list[Floats]() for _ in statistics]
    for counts in model.chunks(simulated_draws(false_alarm), rng):
        for values, statistic in zip(found, statistics, strict=True):
            values.append(statistic.simulated(model, counts, rng))
    return tuple(
        NullValues(np.concatenate(values), statistic.mechanism)
        for values, statistic in zip(found, statistics, strict=True)
    )


def judge_together(
    statistics: Sequence[Statistic],
    model: NoDrift,
    nulls: Sequence[NullValues] | None = None,
    *,
    false_alarm: float,
) -> Verdict:
    """The verdict on all statistics of a release: drift, if any is above its threshold.

    `nulls` are those of `simulate_together`, where they are known already.
    """
    if nulls is None:
        nulls = simulate_together(statistics, model, false_alarm=false_alarm)
    thresholds = joint_thresholds(nulls, false_alarm=false_alarm)
    return Verdict(
        witnesses=witnesses_of(statistics, model, thresholds),
        false_alarm=false_alarm,
        design_effect=model.design_effect,
    )


def witnesses_of(
    statistics: Sequence[Statistic], model: NoDrift, thresholds: Sequence[float]
) -> tuple[Witness, ...]:
    """What was released, beside the thresholds."""
    return tuple(
        Witness(
            name=statistic.name,
            statistic=statistic.observed(model),
            threshold=threshold,
            unit=statistic.unit,
        )
        for statistic, threshold in zip(statistics, thresholds, strict=True)
    )


def judge_release(
    value: float,
    false_alarm: float,
    spread: float | Spread,
    *,
    mechanism: Mechanism | None,
    points: QueryPoints,
    records: Ints,
    score: Score,
) -> Verdict:
    """The verdict on one released value."""
    statistic = ScoredStatistic(
        value=value, score=score, points=points, records=records, mechanism=mechanism
    )
    model = NoDrift.of(points, records, spread)
    return judge_together([statistic], model, false_alarm=false_alarm)
