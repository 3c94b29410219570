"""Ways to estimate, each as a real run and as a fast repetition of it on plain sums.

What a federation runs is estimated by the real roles; the paper's estimators, which it does not
run, work on the counts of real secure sums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedprikl.estimation import (
    BatchCounts,
    Estimate,
    NoisyCounts,
    estimate_noisy_counts,
    estimate_scored_sum,
)
from fedprikl.privacy import SECURE_NOISE, NoiseSource
from fedprikl.protocol import Plan, Question, Release
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.question import HowReleased
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.reference import QueryPoints, iid_points
from fedprikl.simulation.population import deal_clients
from fedprikl.simulation.real_runs import RealRuns
from fedprikl.simulation.synthetic import DriftedPopulation

__all__ = ["Method", "NoiseShares", "OnCounts", "TrustedAggregator"]


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
