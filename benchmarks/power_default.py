"""fedprikl's default: the only part of the benchmark that knows how a plan is made and released.

`Default` makes a plan as a user does. Its releases are the library's own, in the open: without
cryptography, as secure sums are exact. Counts of a population are those of the reference's cells,
records out of the domain last. Populations of one `Default` have equally many records.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountNoise, Estimate, Estimates
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.statistic import Statistic
from fedprikl.privacy import InsecureSeededNoise, Unit
from fedprikl.protocol import SigningKey, trust_of
from fedprikl.protocol.answering import (
    estimate_sums,
    expected_noise,
    law_outside,
    noise_sums,
    points_of,
)
from fedprikl.protocol.noised_round import NoisedRound, state_of
from fedprikl.protocol.plan import Trust
from fedprikl.protocol.release import Release
from fedprikl.protocol.round import Outcome, cohort_sizes
from fedprikl.protocol.sums import OpenedSum
from fedprikl.records.counting import Draw, draw_counts
from fedprikl.reference import QueryPoints
from fedprikl.reference.domain import Table

FALSE_ALARM = 0.01
WHOLE = ("kl", "tv", "js")  # the default questions about the whole; columns.py asks about columns
KNOTS = 60  # numbers whose intervals are computed
LAWS = 6  # populations whose adaptive noise is computed, of the many whose verdict is simulated
SEED = 0  # of the points, and of the release that tells thresholds: any would do


class Default:
    """The plan for a reference, and what it releases. `ask=("kl",)` asks for nothing but KL."""

    def __init__(
        self,
        reference: fk.Reference,
        *,
        clients: int,
        records: int,
        epsilon: float,
        trust: Trust = "aggregator",
        payload: int = 1024,
        ask: tuple[str, ...] = WHOLE,
        whole: bool = False,  # ask for all cells, even if no planner would
        unit: Unit = "record",
        per_client: int | None = None,
    ) -> None:
        self.reference, self.clients = reference, clients
        self.planned = fk.plan(
            reference,
            clients=clients,
            records=records,
            epsilon=epsilon,
            trust=trust,
            payload=payload,
            false_alarm=FALSE_ALARM,
            ask=ask,
            unit=unit,
            per_client=per_client,
        )
        self.plan = self.planned.plan
        asked = self.plan.unit
        self.records = records if asked.kind == "record" else asked.records * clients  # counted
        if whole:
            points = int(np.count_nonzero(reference.probabilities))
            self.plan = self.plan.asking(points, self.plan.whole.exponent).changed(batches=1)
        self.trust: Any = trust_of(self.plan)  # which of them, `trusted` says
        self.trusted = self.plan.trust != "none"  # noise is added to exact sums
        self.pi = reference.probabilities
        self.points = self.trust.draw_points(self.pi, np.random.default_rng(SEED))
        batches = self.plan.sums.batches
        self.totals = np.full(batches, max(1, self.records // batches))
        self.cohorts = cohort_sizes(self.plan, clients // batches)

    @property
    def spread(self) -> Any:
        """How counts vary without drift, as the verdict takes it."""
        batches = len(self.totals)
        return self.plan.spread(self.reference.whole, [self.clients // batches] * batches)

    def counted(self, held: Ints, rng: np.random.Generator) -> Ints:
        """What is counted of clients with these records (clients, cells), in each batch.

        All of them, or k draws of each client.
        """
        unit, batches = self.plan.unit, len(self.totals)
        if unit.kind == "client":
            draw = Draw(unit.records, unit.empty, rng.bytes)
            held = np.array([draw_counts(row, self.reference, draw) for row in held])
        dealt = rng.permutation(len(held)) % batches
        return np.array([held[dealt == batch].sum(axis=0) for batch in range(batches)])

    # Releases.

    def opened(
        self, points: QueryPoints, batches: Ints, rng: np.random.Generator
    ) -> list[OpenedSum]:
        """What the secure sums of a round open: `batches` are counts (batches, cells)."""
        asked = points_of(self.plan, self.reference, points)
        return [
            self._opened(asked, batch, counts, rng)
            for batch, counts in enumerate(np.array(batches))
        ]

    def _opened(
        self, asked: tuple[QueryPoints, ...], batch: int, counts: Ints, rng: np.random.Generator
    ) -> OpenedSum:
        records, found = int(counts.sum()), []
        for view, held in zip(asked, [counts, *self._of_columns(counts)], strict=False):
            cells = view.cells if view.batches == 1 else view.cells[view.batch == batch]
            found.append(held[cells])
        if self.trusted:
            return OpenedSum(tuple(found), records)
        law = self._shared_noise
        noisy = [np.append(each, records - each.sum()) for each in found]
        noisy = [each + law.draw(rng, each.shape) for each in noisy]
        return OpenedSum(tuple(noisy), records, law.sd**2)

    def _of_columns(self, counts: Ints) -> Iterator[Ints]:
        """Counts of each view of columns. What is out of the whole domain is out of each."""
        domain = self.reference.whole.domain
        if not self.plan.columns or not isinstance(domain.encoder, Table):
            return
        levels = domain.encoder.levels(domain.codes)
        for view in self.reference.views:
            size = view.domain.size
            found = np.bincount(view.domain.cells(levels), counts[:-1], size).astype(np.int64)
            found[-1] += counts[-1]
            yield found

    @cached_property
    def _shared_noise(self) -> CountNoise:
        return expected_noise(self.trust, self.cohorts)

    def estimates(
        self, points: QueryPoints, sums: list[OpenedSum], rng: np.random.Generator
    ) -> Estimates:
        """All that one release says about the whole, before the verdict."""
        outside = law_outside(
            self.plan, self.reference.whole, points, clients=self.clients, records=self.records
        )
        return estimate_sums(
            self.trust,
            (points,),
            sums,
            self.cohorts,
            source=_source(rng),
            rng=rng,
            outside=outside,
        )

    def estimate(
        self, points: QueryPoints, sums: list[OpenedSum], rng: np.random.Generator
    ) -> Estimate:
        """The size, as the library releases it."""
        return self.estimates(points, sums, rng).each[0]

    def each(self, held: Ints, rng: np.random.Generator) -> Iterator[Estimates]:
        """A release of each population: rows of counts, or of counts of each batch."""
        for each in held:
            sums = self.opened(self.points, np.atleast_2d(each), rng)
            yield self.estimates(self.points, sums, rng)

    def values(self, held: Ints, rng: np.random.Generator) -> dict[str, Floats]:
        """What is released of each divergence, per population."""
        found = [[each.value for each in release.each] for release in self.each(held, rng)]
        names = [question.divergence for question in self.plan.about_whole]
        return dict(zip(names, np.array(found).T, strict=True))

    def printed(self, counts: Ints, rng: np.random.Generator) -> Release:
        """The whole release of one population: with intervals, columns and verdicts."""
        points = self.points if self.plan.points else None
        asked = points_of(self.plan, self.reference, points)
        sums = self.opened(self.points, counts[None], rng)
        return NoisedRound(
            round_id="0" * 32,
            plan=self.plan.fingerprint,
            period=None,
            previous="",
            request="",
            points=points,
            noised=noise_sums(self.trust, asked, sums, source=_source(rng)),
            outcomes=tuple(Outcome(batch=0, clients=n, included=n) for n in self.cohorts),
            asked=(),
            counted=(),
            simulation=state_of(rng),
            software="benchmark",
            at="2030-01-31T12:00:00+00:00",
        ).release(self.plan, self.reference, key=SigningKey.generate(), head=None)

    # Verdicts.

    @cached_property
    def thresholds(self) -> tuple[NoDrift, tuple[tuple[Statistic, float], ...]]:
        """The law without drift, and each statistic with its threshold, which no value changes.

        Statistics that the verdict leaves out can find nothing.
        """
        rng = np.random.default_rng(SEED)
        held = np.array([rng.multinomial(total, self.pi) for total in self.totals])
        release = self.estimates(self.points, self.opened(self.points, held, rng), rng)
        verdict, _ = release.judge(self.plan.false_alarm_of_each, self.spread)
        known = {each.name: each.threshold for each in verdict.statistics}
        first = release.statistics[0]
        model = NoDrift.of(first.points, first.records, self.spread)
        judged = [(each, known[each.name]) for each in release.statistics if each.name in known]
        return model, tuple(judged)

    def verdicts(self, held: Ints, rng: np.random.Generator) -> Any:
        """Whether a release of each population finds drift."""
        model, judged = self.thresholds
        known = {statistic.name: threshold for statistic, threshold in judged}
        return np.array(
            [
                any(
                    s.observed(model) > known[s.name] for s in release.statistics if s.name in known
                )
                for release in self.each(held, rng)
            ]
        )

    def flags(self, held: Ints, rng: np.random.Generator) -> Any:
        """The same of many populations at a time, with the simulation of the library's forecasts.

        Adaptive noise is that of a few of them.
        """
        return self.flags_of_terms(held[:, self.points.cells], rng)

    def flags_of_terms(self, counts: Ints, rng: np.random.Generator) -> Any:
        """The same, from counts of the terms of a scored sum: where batches are asked, pooled."""
        model, judged = self.thresholds
        found = np.zeros(len(counts), bool)
        for statistic, threshold in judged:
            values = statistic.simulated(model, counts, rng)[:, 0]
            if statistic.noise is not None:
                drawn = statistic.noise(counts[:LAWS])(rng, LAWS).ravel()
                values = values + rng.choice(drawn, len(counts))
            if statistic.mechanism is not None:
                values = statistic.mechanism.add_to(values, _source(rng))
            found |= values > threshold
        return found

    # Forecasts and intervals.

    def predicted(self, kind: str, divergence: float) -> float:
        """The planner's mean absolute error of KL at a drift of this kind and size (with skew)."""
        found = self.planned.predict(kind, divergence)
        return float("nan") if found is None else found

    def intervals(self, held: Ints, rng: np.random.Generator) -> dict[str, Floats]:
        """The printed 95% intervals of a release of each population, per divergence."""
        releases = list(self.each(held, rng))
        return {
            question.divergence: _intervals([release.each[i] for release in releases])
            for i, question in enumerate(self.plan.about_whole)
        }


def _intervals(found: list[Estimate]) -> Floats:
    """As printed. That of a number depends on nothing but the number, and both ends grow with it.

    So they are computed at some numbers, evenly spread over those that were released, and lie on a
    line between two of them.
    """
    number: Any = found[0].limits
    if getattr(number, "args", ()) and number.args[0] == found[0].value:  # a partial of the number
        values = np.array([each.value for each in found])
        known = np.unique(np.quantile(values, np.linspace(0.0, 1.0, KNOTS)))
        limits = [number.func(float(at), *number.args[1:], **number.keywords) for at in known]
        ends = np.array([(0.0, np.inf) if each is None else each.printed for each in limits])
        return np.stack([np.interp(values, known, end) for end in ends.T], axis=1)
    limits = [each.interval for each in found]
    return np.array([(0.0, np.inf) if each is None else each for each in limits])


def planned(pi: Floats, records: int, clients: int, epsilon: float, **options: Any) -> Default:
    """The default for a Pi that is known exactly."""
    reference = fk.Reference.from_probabilities(pi)
    return Default(reference, clients=clients, records=records, epsilon=epsilon, **options)


def _source(rng: np.random.Generator) -> InsecureSeededNoise:
    return InsecureSeededNoise(int(rng.integers(2**31)))
