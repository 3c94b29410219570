"""fedprikl's default, many releases at a time: the only part of the benchmark that knows the plan.

`Default` makes a plan as a user does and simulates its releases in the open, without cryptography:
secure sums are exact. What the plan fixes (points, noise, thresholds, the errors behind an
interval) is computed once; populations then cost microseconds. All of them have as many records.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from power_rivals import laplace_of

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import CountNoise, CountsDesign, Estimate
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.simulated_releases import CountsNoise, Populations, ReleaseOption
from fedprikl.estimation.statistic import Statistic
from fedprikl.estimation.verdict import joint_thresholds, simulate_together, simulated_draws
from fedprikl.planning.simulated_round import SimulatedRound
from fedprikl.privacy import InsecureSeededNoise, Unit
from fedprikl.protocol import trust_of
from fedprikl.protocol.answering import estimate_sums
from fedprikl.protocol.plan import Trust
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import OpenedSum
from fedprikl.reference import QueryPoints

FALSE_ALARM, RESAMPLES = 0.01, 40
WHOLE = ("kl", "tv", "js")  # the default questions about the whole; columns.py asks about columns
DRAWS = 200  # of the noise on a number for each population, spread evenly over its law
SINGLE = 1e-6
KNOTS = 60  # numbers whose intervals are computed
LAWS = 6  # populations whose adaptive noise is computed, of the many whose verdict is simulated


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
        self.trust: Any = trust_of(self.plan)  # which of the two, `trusted` says
        self.pi = reference.probabilities
        self.simulated = SimulatedRound.of(self.plan, self.planned.known)
        self.points, self.totals = self.simulated.points, self.simulated.records
        self.trusted = self.plan.trust == "aggregator"

    @cached_property
    def release(self) -> ReleaseOption:
        """How KL is released: a number with noise, a number with adaptive noise, noisy counts."""
        if self.plan.sums.batches > 1 or len(self.points) < np.count_nonzero(self.pi):
            raise ValueError("Not all cells are asked: release one by one, with `estimate`.")
        return self.simulated.release

    def values(self, held: Ints, rng: np.random.Generator) -> Floats:
        """A KL per population (rows of counts over the cells of the reference)."""
        if isinstance(self.release, CountsNoise):
            return self._from_counts(held, rng)
        found = self.release.values(self._populations(held), self.trust.score, rng, DRAWS)
        return found[np.arange(len(held)), rng.integers(DRAWS, size=len(held))]

    def errors(
        self, held: Ints, truth: Floats, standard: Floats, rng: np.random.Generator
    ) -> Floats:
        """Mean absolute error of KL over the noise, per population.

        Noise on counts is made of `standard`, as the textbook's is, where it is of the same law.
        """
        if isinstance(self.release, CountsNoise):
            draws = standard.shape[2]
            drawn = [
                self._from_counts(np.repeat(each[None], draws, 0), rng, standard[:, i])
                for i, each in enumerate(held)
            ]
            found = np.array(drawn)
        else:
            found = self.release.values(self._populations(held), self.trust.score, rng, DRAWS)
        return np.asarray(np.abs(found - truth[:, None]).mean(axis=1))

    def flags(self, held: Ints, rng: np.random.Generator) -> Any:
        """Whether drift is found, per population: any statistic above its threshold."""
        found = np.zeros(len(held), bool)
        for statistic, threshold in self.statistics:
            silent = np.flatnonzero(~found)  # one statistic is enough: the others need not be asked
            if len(silent):
                found[silent] = statistic(held[silent], rng) > threshold
        return found

    @cached_property
    def statistics(self) -> list[tuple[Callable[[Ints, np.random.Generator], Floats], float]]:
        """Statistics of populations, and their thresholds, which no value can change.

        Adaptive noise is costly to compute, so its statistic comes last.
        """
        statistics = self.simulated.statistics()
        model = self._model(statistics[0])
        nulls = simulate_together(statistics, model, draws=simulated_draws(FALSE_ALARM))
        thresholds = joint_thresholds(nulls, false_alarm=FALSE_ALARM)

        def values(statistic: Statistic, held: Ints, rng: np.random.Generator) -> Floats:
            counts = held[:, self.points.cells]
            found = statistic.simulated(model, counts, rng)[:, 0]
            if statistic.noise is not None:
                drawn = statistic.noise(rng, counts[:LAWS]).ravel()
                return found + rng.choice(drawn, len(counts))
            if statistic.mechanism is not None:
                source = InsecureSeededNoise(int(rng.integers(2**31)))
                found = statistic.mechanism.add_to(found, source)
            return found

        judged = sorted(
            zip(statistics, thresholds, strict=True),
            key=lambda each: each[0].noise is not None,
        )
        return [
            (lambda held, rng, one=statistic: values(one, held, rng), threshold)
            for statistic, threshold in judged
        ]

    def _model(self, statistic: Statistic) -> Any:
        return NoDrift.of(statistic.points, statistic.records, self.simulated.spread)

    def intervals(self, held: Ints, rng: np.random.Generator) -> Floats:
        """The printed 95% interval of a release of each population, as the library makes them."""
        if not isinstance(self.release, CountsNoise):
            return self._intervals_of_numbers(held, rng)
        found = [
            self.estimate(self.points, self.opened(self.points, row[None], rng), rng).interval
            for row in held
        ]
        return np.array([(0.0, np.inf) if limits is None else limits for limits in found])

    def _intervals_of_numbers(self, held: Ints, rng: np.random.Generator) -> Floats:
        """The same where a number is released: its interval depends on nothing else.

        Both ends grow with the number. They are computed at some, evenly spread over the numbers
        that were released, and lie on a line between two of them.
        """
        values = self.values(held, rng)
        limits: Any = self.estimate(
            self.points, self.opened(self.points, held[:1], rng), rng
        ).limits  # a `partial` whose first argument is the number
        known = np.unique(np.quantile(values, np.linspace(0.0, 1.0, KNOTS)))
        found = [limits.func(float(at), *limits.args[1:], **limits.keywords) for at in known]
        ends = np.array([(0.0, np.inf) if each is None else each.printed for each in found])
        return np.stack([np.interp(values, known, end) for end in ends.T], axis=1)

    def opened(
        self, points: QueryPoints, batches: Ints, rng: np.random.Generator
    ) -> list[OpenedSum]:
        """What the secure sums of a round open: `batches` are counts (batches, cells)."""
        sums = []
        for batch, counts in enumerate(batches):
            asked, records = counts[points.cells[points.batch == batch]], int(counts.sum())
            if self.trusted:
                sums.append(OpenedSum((asked,), records))
                continue
            noise = self._count_noise
            on_counts = noise.draw(rng, (len(points) + 1,))
            noisy = np.append(asked, records - asked.sum()) + on_counts
            sums.append(OpenedSum((noisy,), records, noise.sd**2))
        return sums

    def estimate(
        self, points: QueryPoints, sums: list[OpenedSum], rng: np.random.Generator
    ) -> Estimate:
        """The size, as the library releases it."""
        found: Estimate = estimate_sums(
            self.trust,
            (points,),
            sums,
            cohort_sizes(self.plan, self.clients // self.plan.sums.batches),
            source=InsecureSeededNoise(int(rng.integers(2**31))),
            rng=rng,
        ).each[0]
        return found

    def predicted(self, kind: str, divergence: float) -> float:
        """The planner's mean absolute error at a drift of this kind and size (with skew)."""
        found = self.planned.predict(kind, divergence)
        return float("nan") if found is None else found

    @property
    def _count_noise(self) -> CountNoise:
        release = self.simulated.release
        if not isinstance(release, CountsNoise):
            raise TypeError("The plan releases no counts.")
        return release.noise

    def _populations(self, held: Ints) -> Populations:
        counts = held[:, self.points.cells]
        return Populations(self.points, self.totals, counts, counts)

    def _from_counts(
        self, held: Ints, rng: np.random.Generator, standard: Floats | None = None
    ) -> Floats:
        """KL off counts with noise on them, as many resamples as the benchmark can afford."""
        noise = self._count_noise
        design = CountsDesign(self.points, self.totals, (noise,))
        counts = held[:, self.points.cells]
        on_counts, on_rest = design.draw_noise(rng, len(held))
        # Shares of few clients add up to more than one Laplace variable: then there is no pairing.
        single = noise.scale is not None and abs(noise.variables - 1) < SINGLE
        if standard is not None and single:
            on_counts = laplace_of(noise.scale, standard[..., self.points.cells])
        rest = held.sum(axis=1, keepdims=True) - counts.sum(axis=1, keepdims=True)
        found, _ = design.debias(
            counts + on_counts,
            rest + on_rest,
            score=self.trust.score,
            rng=rng,
            resamples=RESAMPLES,
        )
        return found


def planned(pi: Floats, records: int, clients: int, epsilon: float, **options: Any) -> Default:
    """The default for a Pi that is known exactly."""
    reference = fk.Reference.from_probabilities(pi)
    return Default(reference, clients=clients, records=records, epsilon=epsilon, **options)
