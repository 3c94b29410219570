"""What is released about views: noisy counts of every cell, and vectors of one number per view."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import CountNoise, CountsDesign, NoisyCounts
from fedprikl.estimation.noisy_estimates import noise_counts
from fedprikl.estimation.noisy_verdict import VariationStatistic
from fedprikl.estimation.scoring import BatchCounts, score_sensitivity, weighted_score
from fedprikl.estimation.statistic import (
    OUT_OF_DOMAIN,
    ScoredStatistic,
    Statistic,
    Verdict,
    judge_together,
    simulate_together,
)
from fedprikl.privacy import Calibrated, Mechanism, NoiseSource, PrivacyStatement
from fedprikl.reference import OutOfDomain, QueryPoints, Spread


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OutOfDomainStatistic:
    """The noisy share of records in cells that the reference never saw.

    One batch, all cells asked. Those of a simulated population are drawn apart from its counts,
    from the law of what the reference has missed: both rise together, so this errs towards
    fewer alarms of the two together.
    """

    points: QueryPoints  # all cells
    noisy: NoisyCounts
    law: OutOfDomain
    name: ClassVar[str] = OUT_OF_DOMAIN
    unit: ClassVar[str] = ""
    mechanism: ClassVar[None] = None

    @property
    def records(self) -> Ints:
        """N, of the only batch."""
        return np.array(self.noisy.records)

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released share."""
        return self.noisy.out_of_domain[0] / self.noisy.records[0]

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,
    ) -> Floats:
        """The share in as many populations, with noise."""
        (records,), (law,) = self.noisy.records, self.noisy.noise
        outside = self.law.draw(records, len(counts), rng)
        noise = law.draw(rng, (len(counts), 1))[:, 0]
        return np.asarray((outside + noise) / records)[:, None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ViewVector:
    """One divergence of every view, with noise."""

    score: Score
    values: Floats  # per view
    sensitivities: Floats  # Delta of each: the noise is proportional to it
    noise: Calibrated

    def statistic(self, view: int, points: QueryPoints, records: Ints) -> ScoredStatistic:
        """What a verdict on one view rests on."""
        return ScoredStatistic(
            value=float(self.values[view]),
            score=self.score,
            points=points,
            records=records,
            mechanism=self.noise.for_sensitivity(float(self.sensitivities[view])),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyViews:
    """All that is released about views. Public."""

    counts: tuple[NoisyCounts, ...]  # of each view, in one batch
    mechanism: str  # the noise on every count, in words
    vectors: tuple[ViewVector, ...] = field(default=())  # tv, js; none where nobody is trusted

    def statistics(
        self, view: int, points: QueryPoints, outside: OutOfDomain
    ) -> tuple[Statistic, ...]:
        """The statistics of one view; `outside` is the law of records outside its cells."""
        noisy = self.counts[view]
        design = CountsDesign.of(points, noisy)
        values = (each.statistic(view, points, design.records) for each in self.vectors)
        variation = VariationStatistic(design, np.array(noisy.counts))
        return (*values, variation, OutOfDomainStatistic(points=points, noisy=noisy, law=outside))


def noise_views(
    views: Sequence[QueryPoints],
    exact: Sequence[Ints],
    records: int,
    *,
    vectors: Sequence[tuple[Score, Calibrated]],
    mechanism: Mechanism,
    source: NoiseSource,
    moved: int = 1,
) -> NoisyViews:
    """Exact counts of all cells of every view, noised before they leave the aggregator.

    `moved`: the records of whoever is protected, for which `mechanism` must be made too.
    """
    total = np.array([records])
    counts = [BatchCounts(*view, total) for view in zip(views, exact, strict=True)]
    return NoisyViews(
        counts=tuple(noise_counts(each, mechanism, source) for each in counts),
        mechanism=str(mechanism),
        vectors=tuple(_vector(counts, score, noise, source, moved) for score, noise in vectors),
    )


def read_views(
    views: Sequence[QueryPoints],
    records: int,
    noised: Sequence[Floats],
    values: Sequence[Floats],
    *,
    vectors: Sequence[tuple[Score, Calibrated]],
    mechanism: Mechanism,
    moved: int = 1,
) -> NoisyViews:
    """The same of noised numbers: `noised` counts of each view, the rest last, and vectors."""
    total, law = np.array([records]), CountNoise.of(mechanism)
    return NoisyViews(
        counts=tuple(NoisyCounts.of(each, [records], [law]) for each in noised),
        mechanism=str(mechanism),
        vectors=tuple(
            ViewVector(
                score=score,
                values=each,
                sensitivities=_sensitivities(views, total, score, moved),
                noise=noise,
            )
            for each, (score, noise) in zip(values, vectors, strict=True)
        ),
    )


def _vector(
    counts: Sequence[BatchCounts],
    score: Score,
    noise: Calibrated,
    source: NoiseSource,
    moved: int,
) -> ViewVector:
    values = np.array([weighted_score(each, score) for each in counts])
    deltas = _sensitivities([each.points for each in counts], counts[0].records, score, moved)
    return ViewVector(
        score=score,
        values=noise.add_to(values, deltas, source),
        sensitivities=deltas,
        noise=noise,
    )


def _sensitivities(views: Sequence[QueryPoints], records: Ints, score: Score, moved: int) -> Floats:
    return np.array([score_sensitivity(view, records, score, moved) for view in views])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimates:
    """One estimate for each question of a plan, from the same counts."""

    each: tuple[Estimate, ...]
    privacy: PrivacyStatement  # of all together
    payload: int  # counts each client reported
    records: int  # of all batches
    noisy_counts: NoisyCounts | None = field(default=None, repr=False)  # where they are released
    columns: NoisyViews | None = field(default=None, repr=False)  # where columns are asked

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What the verdict rests on; estimates from the same noisy counts share one."""
        known = [found.statistic for found in self.each if found.statistic is not None]
        return tuple({id(statistic): statistic for statistic in known}.values())

    def judge(
        self, false_alarm: float, spread: float | Spread
    ) -> tuple[Verdict, tuple[float | None, ...]]:
        """Drifted or not, and what each estimate would be without drift, if that is known.

        About a second for 500 asked cells and three questions.
        """
        statistics = self.statistics
        if not statistics:
            raise InvalidInputError("How these estimates spread without drift is not known.")
        model = NoDrift.of(statistics[0].points, statistics[0].records, spread)
        nulls = simulate_together(statistics, model, false_alarm=false_alarm)
        means = {
            id(statistic): null.mean for statistic, null in zip(statistics, nulls, strict=True)
        }
        return judge_together(statistics, model, nulls, false_alarm=false_alarm), tuple(
            found.typical(model) if found.typical else means.get(id(found.statistic))
            for found in self.each
        )
