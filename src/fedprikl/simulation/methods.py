"""Ways to estimate, each as a real run and as a fast repetition of it on plain sums.

What a federation runs is estimated by the real roles; the paper's estimators, which it does not
run, work on the counts of real secure sums.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedprikl.estimation import (
    BatchCounts,
    Estimate,
    NoisyCounts,
    estimate_noisy_counts,
    trusted_aggregator,
)
from fedprikl.privacy import (
    SECURE_NOISE,
    NoiseSource,
    PrivacyStatement,
    SharedLaplaceMechanism,
)
from fedprikl.protocol import Plan, Release
from fedprikl.protocol.round import cohort_sizes, noise_share, plan_cohort
from fedprikl.reference import QueryPoints, distinct_points, iid_points, spread_points
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
        plan = _plan(self.plan, world)
        points = spread_points(
            world.reference.probabilities,
            plan.points,
            batches=plan.batches,
            exponent=plan.exponent,
            rng=rng,
        )
        return trusted_aggregator(
            _plain_counts(world, points, rng),
            epsilon=plan.epsilon,
            delta=plan.delta,
            score=plan.score,
            noise=plan.noise,
            client_effect=plan.client_effect,
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
        pi = world.reference.probabilities
        points = distinct_points(pi, plan.points, batches=plan.batches, rng=rng)
        exact = _plain_counts(world, points, rng)
        noise_sd, scale = _noise_of_all(plan, world.population.clients)
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
        return estimate_noisy_counts(released, score=plan.score, rng=rng).value


def _plan(settings: Mapping[str, Any], world: DriftedPopulation) -> Plan:
    return Plan(population="demo", reference=world.reference.fingerprint, **settings)


def _plain_counts(
    world: DriftedPopulation, points: QueryPoints, rng: np.random.Generator
) -> BatchCounts:
    dealt = deal_clients(world.population.clients, points.batches, rng)
    return world.population.batch_counts(points, dealt)


def _noise_of_all(plan: Plan, clients: int) -> tuple[float, float | None]:
    """Standard deviation of the noise on a batch's counts, and the scale if it is Laplace."""
    variance, scale = 0.0, None
    for size in cohort_sizes(plan, clients // plan.batches):
        minimum = plan_cohort(plan, size, plan.points).minimum
        share = noise_share(plan, clients=size, minimum=minimum)
        if share is not None:
            variance += size * share.share_variance
            scale = share.scale if isinstance(share, SharedLaplaceMechanism) else None
    return math.sqrt(variance), scale


def _released(release: Release) -> Estimate:
    """A release, to be compared with estimates that nobody released."""
    content, privacy = release.content, release.content["privacy"]
    return Estimate(
        method=content["estimator"],
        value=release.value,
        target=content["target"],
        payload=content["payload_counts"],
        privacy=PrivacyStatement(
            epsilon=privacy["true_epsilon"],
            delta=privacy["delta"],
            claimed_epsilon=privacy["claimed_epsilon"],
            mechanism=privacy["mechanism"],
            released=privacy["released"],
            trust=privacy["trust"],
            sensitivity=privacy["sensitivity"],
            insecure=privacy["insecure"],
        ),
    )
