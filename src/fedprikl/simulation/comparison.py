"""All estimators side by side on one population whose divergence is known."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import DEFAULT_SKEW, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import (
    BatchCounts,
    ComparedEstimate,
    Estimate,
    NoisyCounts,
    estimate_noisy_counts,
    estimate_scored_sum,
)
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import SECURE_NOISE, InsecureSeededNoise, NoiseSource
from fedprikl.protocol import (
    Client,
    Plan,
    Policy,
    Question,
    Release,
    Server,
    SignedPlan,
    SigningKey,
    draw_of,
    run_round,
)
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.question import HowReleased
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.records import Draw, draw_counts
from fedprikl.reference import QueryPoints, Reference, iid_points
from fedprikl.secure_sum import Leaves
from fedprikl.simulation.population import DriftedPopulation, deal_clients

DESIGN = 1  # stream of a seed
COHORT, DROPOUT = 20, 0.05  # clients of a secure sum, about; the share of clients who leave
COMPARED_DESIGN, NOISE = 1, 2  # streams of one seed


class RealRuns:
    """Noise and keys are from the operating system; points, batches and leavers from a seed."""

    def __init__(self, world: DriftedPopulation, seed: int) -> None:
        self.world, self._seed = world, seed
        self._sums: dict[tuple[int, int], BatchCounts] = {}

    def counts(self, points: int, batches: int) -> BatchCounts:
        """Secure sums of i.i.d. points, as the paper asks them; computed once for all methods."""
        asked = (points, batches)
        if asked not in self._sums:
            rng, world = self._rng(), self.world
            drawn = iid_points(world.reference.probabilities, points, batches=batches, rng=rng)
            dealt = deal_clients(world.population.clients, batches, rng)
            self._sums[asked] = world.population.secure_batch_counts(
                drawn, dealt, cohort=COHORT, dropout=DROPOUT, rng=rng
            )
        return self._sums[asked]

    def release(self, plan: Plan) -> Release:
        """One round of the real roles, without a ledger; each client draws where the plan says."""
        rng, world, draw = self._rng(), self.world, draw_of(plan)
        policy = Policy(
            largest_epsilon=plan.epsilon, largest_delta=plan.delta, most_points=plan.points
        )
        held = world.population.counts_by_client()
        counted = held if draw is None else _drawn(held, world.reference, draw)
        clients = {
            str(number): Client(counts, world.reference, policy=policy, randomness=os.urandom)
            for number, counts in enumerate(counted)
        }
        leavers = rng.choice(sorted(clients), int(DROPOUT * len(clients)), replace=False)
        return run_round(
            Server(SignedPlan(plan), world.reference),
            clients,
            key=SigningKey.generate(),
            ledger=None,
            software="fedprikl demo",
            at=datetime.now(UTC).isoformat(),
            rng=rng,
            leaves={str(name): Leaves(int(rng.integers(len(Leaves)))) for name in leavers},
        ).release

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(DESIGN,)))


def _drawn(held: Ints, reference: Reference, draw: Draw) -> list[Ints]:
    """What each client draws; without those that stay away."""
    found = (draw_counts(counts, reference, draw) for counts in held)
    return [counts for counts in found if counts.sum()]


class Method(Protocol):
    """A way to estimate."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    def estimate(self, runs: RealRuns) -> Estimate:
        """One real estimate: secure sums, clients who leave, secure noise."""
        ...

    def repeat(
        self, world: DriftedPopulation, rng: np.random.Generator, source: NoiseSource
    ) -> float:
        """The value of a repetition, on plain sums. Points and batches are drawn from `rng`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCounts:
    """An estimator of the paper, on the counts of i.i.d. points."""

    name: str
    points: int  # m
    batches: int  # T
    estimator: Callable[[BatchCounts, NoiseSource], Estimate]

    def estimate(self, runs: RealRuns) -> Estimate:
        """On secure sums, which methods that ask the same points share."""
        return self.estimator(runs.counts(self.points, self.batches), SECURE_NOISE)

    def repeat(
        self, world: DriftedPopulation, rng: np.random.Generator, source: NoiseSource
    ) -> float:
        """On plain sums."""
        pi = world.reference.probabilities
        points = iid_points(pi, self.points, batches=self.batches, rng=rng)
        return self.estimator(_plain_counts(world, points, rng), source).value


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedAggregator:
    """What a federation with a trusted aggregator releases."""

    name: str
    plan: Mapping[str, Any]  # what the parties agree on

    def estimate(self, runs: RealRuns) -> Estimate:
        """A round of the real roles."""
        return _released(runs.release(_plan(self.plan, runs.world)))

    def repeat(
        self, world: DriftedPopulation, rng: np.random.Generator, source: NoiseSource
    ) -> float:
        """The same points and the same estimator on plain sums."""
        trust = ScoredSum(_plan(self.plan, world))
        points = trust.draw_points(world.reference.probabilities, rng)
        return estimate_scored_sum(
            _plain_counts(world, points, rng),
            calibrated=trust.calibrated(trust.plan.question),
            score=trust.score,
            client_effect=trust.plan.client_effect,
            source=source,
        ).value


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseShares:
    """What a federation with an untrusted aggregator releases: every client adds noise."""

    name: str
    plan: Mapping[str, Any]

    def estimate(self, runs: RealRuns) -> Estimate:
        """A round of the real roles."""
        return _released(runs.release(_plan(self.plan, runs.world)))

    def repeat(
        self,
        world: DriftedPopulation,
        rng: np.random.Generator,
        source: NoiseSource,  # noqa: ARG002
    ) -> float:
        """The same noise, of all clients together, on plain sums; `rng` draws it."""
        plan = _plan(self.plan, world)
        trust = NoisyHistogram(plan)
        points = trust.draw_points(world.reference.probabilities, rng)
        exact = _plain_counts(world, points, rng)
        cohorts = cohort_sizes(plan, world.population.clients // plan.batches)
        noise_sd, scale = trust.expected_noise(cohorts)
        asked = np.bincount(points.batch, weights=exact.counts, minlength=points.batches)
        noisy = NoisyCounts(
            points=points,
            counts=exact.counts.astype(np.float64),
            rest=exact.records.astype(np.float64) - asked,
            records=exact.records,
            noise_sd=np.full(points.batches, noise_sd),
            laplace_scale=scale,
        )
        (on_counts,), (on_rest,) = noisy.draw_noise(rng)
        released = NoisyCounts(
            points=points,
            counts=noisy.counts + on_counts,
            rest=noisy.rest + on_rest,
            records=noisy.records,
            noise_sd=noisy.noise_sd,
            laplace_scale=scale,
        )
        return estimate_noisy_counts(released, score=trust.score, rng=rng).value


def _plan(settings: Mapping[str, Any], world: DriftedPopulation) -> Plan:
    content = dict(settings)
    way: HowReleased = "counts" if content.get("trust") == "none" else "value"
    asked = (Question(points=content.pop("points"), release=way),)
    reference = world.reference.fingerprint
    return Plan(population="demo", reference=reference, questions=asked, **content)


def _plain_counts(
    world: DriftedPopulation, points: QueryPoints, rng: np.random.Generator
) -> BatchCounts:
    dealt = deal_clients(world.population.clients, points.batches, rng)
    return world.population.batch_counts(points, dealt)


def _released(release: Release) -> Estimate:
    """A release, to be compared with estimates that nobody released."""
    answer = release.answers[0]
    return Estimate(
        method=f"trust: {release.trust}",
        value=answer.value,
        target=answer.target,
        unit=answer.unit,
        payload=release.payload,
        privacy=release.privacy,
    )


def paper_and_ours(*, epsilon: float, delta: float) -> list[Method]:
    """The paper's three estimators at its settings, and what a federation runs."""

    def noised(
        estimator: Callable[..., Estimate], **settings: str
    ) -> Callable[[BatchCounts, NoiseSource], Estimate]:
        return lambda counts, source: estimator(
            counts, epsilon=epsilon, delta=delta, source=source, **settings
        )

    def agreed(points: int, batches: int, **more: Any) -> dict[str, Any]:
        """The settings of a plan; of a cohort, a fifth may leave."""
        common = {"epsilon": epsilon, "delta": delta, "cohort": 12, "dropout": 0.2}
        return common | {"points": points, "batches": batches} | more

    paper = partial(OnCounts, points=10, batches=20)
    return [
        paper(name="no privacy", estimator=lambda counts, _: no_privacy(counts)),
        paper(name="baseline, paper", estimator=noised(baseline, calibration="paper")),
        paper(name="baseline, exact", estimator=noised(baseline, noise="gaussian")),
        paper(name="aggregator, paper", estimator=noised(printed_aggregator)),
        NoiseShares(
            name="noise shares, 50 points",
            plan=agreed(50, 1, trust="none", cohort=20),  # fewer sums, less noise
        ),
        TrustedAggregator(name="exact, 10 points", plan=agreed(10, 4)),
        TrustedAggregator(name="exact, 250 points", plan=agreed(250, 1)),
    ]


def true_divergence(world: DriftedPopulation) -> float:
    """D_gamma of the records the clients hold, at the default gamma, in nats."""
    return skewed_divergence(
        world.reference.probabilities, world.population.distribution, skew=DEFAULT_SKEW.gamma
    )


def compare(
    world: DriftedPopulation, methods: Sequence[Method], *, repetitions: int, seed: int
) -> Iterator[ComparedEstimate]:
    """One real estimate per method and simulated repetitions around it.

    The real ones run on secure sums in cohorts of 12 to 20, of which 5% of the clients leave, with
    noise from OpenDP. Points and batches are drawn from `seed`; only the repetitions, on plain
    sums, use seeded noise.
    """
    truth, runs = true_divergence(world), RealRuns(world, seed)
    for method in methods:
        estimate = method.estimate(runs)
        with warnings.catch_warnings():  # the real estimate has said it already
            warnings.simplefilter("ignore", PaperCalibrationWarning)
            values = [_repeat(world, method, seed, number) for number in range(repetitions)]
        yield ComparedEstimate(
            name=method.name, estimate=estimate, repetitions=np.array(values), truth=truth
        )


def _repeat(world: DriftedPopulation, method: Method, seed: int, number: int) -> float:
    """A repetition; points and noise come from independent streams."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(COMPARED_DESIGN, number)))
    noise = InsecureSeededNoise(np.random.SeedSequence(seed, spawn_key=(NOISE, number)))
    return method.repeat(world, rng, noise)
