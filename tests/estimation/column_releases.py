"""Released statistics of columns, drawn many at a time with insecure noise."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.estimation import CountNoise, CountsDesign, Verdict
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic, scored_statistic, variation_statistic
from fedprikl.estimation.verdict import Judged
from fedprikl.privacy import LaplaceMechanism, Mechanism
from fedprikl.reference import Spread, all_points

__all__ = ["Column", "alarm_rate", "called", "falling", "score_of"]


def score_of(name: str) -> Score:
    divergence = divergence_named(name)
    return Score(Skew(divergence.skew), divergence)


def falling(cells: int) -> Floats:
    mass = 1 / np.arange(1.0, cells + 1)
    normalised: Floats = mass / mass.sum()
    return normalised


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its reference, and the noise on what is released of it."""

    pi: Floats
    records: int
    values: dict[str, Mechanism]  # divergences released as values
    noise: CountNoise | None = None  # on counts; None: none are released
    spread: float | Spread = 1.0

    def case(self, observed: dict[str, float] | None = None, counts: Ints | None = None) -> Judged:
        """As released; values of 0 unless told."""
        points, records = all_points(self.pi), np.array([self.records])
        statistics: list[Statistic] = [
            scored_statistic(
                (observed or {}).get(name, 0.0),
                score=score_of(name),
                points=points,
                records=records,
                mechanism=mechanism,
            )
            for name, mechanism in self.values.items()
        ]
        if self.noise is not None:
            held = np.rint(self.records * self.pi) if counts is None else counts
            design = CountsDesign(points, records, (self.noise,))
            statistics.append(variation_statistic(design, held.astype(np.float64)))
        return NoDrift.of(points, records, self.spread), tuple(statistics)

    def released(self, counts: Ints, rng: np.random.Generator) -> dict[str, Floats]:
        """Every statistic of populations with these counts (populations, cells), with noise."""
        (model, statistics), found = self.case(), {}
        for statistic in statistics:
            found[statistic.name] = statistic.draw(model, counts, rng)[:, 0]
            if statistic.mechanism is not None:
                found[statistic.name] += _noise(statistic.mechanism, len(counts), rng)
        return found


def called(verdict: Verdict, released: dict[str, Floats]) -> Floats:
    """Which of these releases a verdict's thresholds call drifted."""
    above = [released[statistic.name] > statistic.threshold for statistic in verdict.statistics]
    return np.asarray(np.any(above, axis=0))


def alarm_rate(
    columns: Sequence[Column],
    verdicts: Sequence[Verdict],
    counts: Sequence[Ints],
    rng: np.random.Generator,
) -> tuple[int, Floats]:
    """In how many populations any column is called drifted; how often each one is."""
    alarms = np.stack(
        [
            called(verdict, column.released(held, rng))
            for column, verdict, held in zip(columns, verdicts, counts, strict=True)
        ]
    )
    return int(np.count_nonzero(alarms.any(axis=0))), alarms.mean(axis=1)


def _noise(mechanism: Mechanism, draws: int, rng: np.random.Generator) -> Floats:
    if isinstance(mechanism, LaplaceMechanism):
        return rng.laplace(0, mechanism.scale, draws)
    return rng.normal(0, mechanism.standard_deviation, draws)
