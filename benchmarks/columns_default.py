"""What a plan releases about columns, many populations at a time: without cryptography.

The noise, sensitivities, statistics and thresholds are those of the round (`Trust.estimate` and
`judge_columns`, called once for a reference); then only numbers are compared. The release noise is
numpy's: `InsecureSeededNoise`, or for noise in shares the law of their sum.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation import (
    BatchCounts,
    CountedView,
    CountsDesign,
    NoisyCounts,
    NoisyViews,
    judge_columns,
    noise_counts,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.cells import CountLaw, law_without_drift, step_up
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.statistic import (
    COUNTS,
    OUT_OF_DOMAIN,
    Statistic,
    scored_statistic,
    variation,
)
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import Plan, trust_of
from fedprikl.protocol.answering import expected_noise
from fedprikl.protocol.question import view_score
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import (
    QuestionNoise,
)
from fedprikl.reference import Spread, View


@dataclass(frozen=True, eq=False)
class Noisy:
    """Noisy counts of many populations, of one column."""

    counts: Floats  # (populations, cells)
    rest: Floats  # (populations, 1)


@dataclass(frozen=True, eq=False)
class Default:
    """A plan about the columns of a reference, which may be another than it was made for."""

    plan: Plan
    views: tuple[View, ...]
    clients: int
    records: int

    @cached_property
    def trust(self) -> Any:
        """Noise and charge, as the plan has it."""
        return trust_of(self.plan)

    @cached_property
    def spreads(self) -> list[float | Spread]:
        """How counts vary without drift, per column."""
        return [view.spread(clients=[self.clients]) for view in self.views]

    def released(self, exact: list[Ints], source: InsecureSeededNoise) -> NoisyViews:
        """What a round releases about columns of one population, by the round's own code.

        What it may release about the whole beside that is left out.
        """
        points = [view.points() for view in self.views]
        if self.trust.shares_noise:
            return self._in_shares(exact)
        *vectors, counts = self._noises
        total, bound = np.array([self.records]), self.plan.contribution_bound
        held = [BatchCounts(*view, total) for view in zip(points, exact, strict=True)]
        noisy = tuple(noise_counts(each, counts.law.noise, source) for each in held)
        found = []
        for each in vectors:
            score = self.trust.score_of(each.questions[0])
            deltas = np.array([score_sensitivity(view, total, score, bound) for view in points])
            plain = [weighted_score(view, score) for view in held]
            values = each.law.add_to(plain, deltas, source)
            found.append(
                [
                    scored_statistic(
                        float(values[i]),
                        score=score,
                        points=view,
                        records=total,
                        mechanism=each.law.for_sensitivity(float(deltas[i])),
                    )
                    for i, view in enumerate(points)
                ]
            )
        by_view = tuple(zip(*found, strict=True))
        return NoisyViews(counts=noisy, mechanism=str(counts.law.noise), values=by_view)

    def _in_shares(self, exact: list[Ints]) -> NoisyViews:
        """Counts that carry the noise of all clients."""
        cohorts = cohort_sizes(self.plan, self.clients)
        law, share = expected_noise(self.trust, cohorts), self.trust.worst_share(cohorts)
        return NoisyViews(
            counts=tuple(NoisyCounts.of(np.append(e, 0), [self.records], [law]) for e in exact),
            mechanism=str(share),
        )

    @property
    def _noises(self) -> list[QuestionNoise]:
        """Of a trusted aggregator on what it says about columns, counts last."""
        return [each for each in self.trust.noises if not each.questions[0].of_whole]

    @cached_property
    def template(self) -> NoisyViews:
        """Of some population: all but its values is the same for every other."""
        exact = [np.floor(self.records * view.probabilities[:-1]) for view in self.views]
        return self.released([each.astype(np.int64) for each in exact], InsecureSeededNoise(0))

    @cached_property
    def models(self) -> list[NoDrift]:
        """The law of each column's counts without drift."""
        records, pairs = np.array([self.records]), zip(self.views, self.spreads, strict=True)
        return [NoDrift.of(view.points(), records, spread) for view, spread in pairs]

    @cached_property
    def thresholds(self) -> list[dict[str, float]]:
        """Of each statistic of each column, at the plan's false-alarm rate of them all."""
        cases = [(model, self._statistics(i)) for i, model in enumerate(self.models)]
        verdicts = judge_columns(cases, false_alarm=self.plan.false_alarm_of_each)
        return [{each.name: each.threshold for each in v.statistics} for v in verdicts]

    def _statistics(self, column: int) -> tuple[Statistic, ...]:
        view = self.views[column]
        unseen = view.out_of_domain(clients=self.clients, records=self.records)
        return self.template.statistics(column, view.points(), unseen)

    def noisy(self, held: Ints, rng: np.random.Generator) -> list[Noisy]:
        """Counts (populations, columns, cells) with noise, per column."""
        found = []
        for column, template in enumerate(self.template.counts):
            exact = np.pad(held[:, column], ((0, 0), (0, 1)))  # nothing is outside of the cells
            if self.trust.shares_noise:
                noised = exact + template.noise[0].draw(rng, exact.shape)
            else:
                mechanism = self._noises[-1].law.noise
                noised = mechanism.add_to(exact.ravel(), _source(rng)).reshape(exact.shape)
            found.append(Noisy(noised[:, :-1].astype(np.float64), noised[:, -1:].astype(float)))
        return found

    def statistics(
        self, column: int, held: Ints, noisy: Noisy, rng: np.random.Generator
    ) -> dict[str, Floats]:
        """The values of each statistic of a column, per population."""
        model, found = self.models[column], {}
        for statistic in self._statistics(column):
            if statistic.name == OUT_OF_DOMAIN:
                found[statistic.name] = noisy.rest[:, 0] / self.records
                continue
            if statistic.name == COUNTS:  # with the noise that was drawn already
                sd = np.full(noisy.counts.shape[1], self.template.counts[column].noise[0].sd)
                found[statistic.name] = variation(noisy.counts, model, sd)
                continue
            values = statistic.simulated(model, held[:, column], rng)[:, 0]
            if statistic.mechanism is not None:
                values = statistic.mechanism.add_to(values, _source(rng))
            found[statistic.name] = values
        return found

    def flags(self, held: Ints, noisy: list[Noisy], rng: np.random.Generator) -> Any:
        """Whether each column is called drifted: (populations, columns)."""
        found = []
        for column, thresholds in enumerate(self.thresholds):
            values = self.statistics(column, held, noisy[column], rng)
            found.append(np.any([values[name] > at for name, at in thresholds.items()], axis=0))
        return np.stack(found, axis=1)

    def kl(self, noisy: list[Noisy], draws: int = 100) -> Floats:
        """The released KL of each column: (populations, columns)."""
        score = view_score("kl").plain
        values = []
        for view, template, each in zip(self.views, self.template.counts, noisy, strict=True):
            found, _ = CountsDesign.of(view.points(), template).read(
                each.counts,
                each.rest,
                scores=[score],
                rng=public_simulation(),
                draws=draws,
            )
            values.append(found[0])
        return np.stack(values, axis=1)

    @cached_property
    def cell_nulls(self) -> list[CountLaw]:
        """The law of each noisy count without drift, per column."""
        rng = public_simulation()
        cases = zip(self.views, self.template.counts, self.spreads, strict=True)
        return [law_without_drift(CountedView(view.points(), *case), rng) for view, *case in cases]

    def moved(self, noisy: list[Noisy], false_discovery: float) -> Ints:
        """1, -1 or 0 of each cell, in whatever column: (populations, columns, cells)."""
        sides = [
            (null.above(each.counts), null.below(each.counts))
            for null, each in zip(self.cell_nulls, noisy, strict=True)
        ]
        above, below = (np.stack(side, axis=1) for side in zip(*sides, strict=True))
        shape = above.shape
        told = [
            step_up(up.ravel(), down.ravel(), false_discovery).reshape(shape[1:])
            for up, down in zip(above, below, strict=True)
        ]
        return np.array(told)


def _source(rng: np.random.Generator) -> InsecureSeededNoise:
    return InsecureSeededNoise(int(rng.integers(2**62)))
