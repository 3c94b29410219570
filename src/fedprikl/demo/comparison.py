"""The paper's estimators and ours side by side, on a population whose divergence is known.

A population is held in one place and summed in the open, or by real secure sums.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import DEFAULT_SKEW, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import (
    BatchCounts,
    ComparedEstimate,
    CountNoise,
    CountsDesign,
    Estimate,
    NoisyCounts,
    estimate_noisy_counts,
    estimate_scored_sum,
)
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import (
    SECURE_NOISE,
    Calibrated,
    InsecureSeededNoise,
    NoiseSource,
    Numbers,
)
from fedprikl.protocol import (
    AskedView,
    Budget,
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
    trust_of,
)
from fedprikl.protocol.answering import expected_noise
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import NoisyHistogram
from fedprikl.records import draw_counts
from fedprikl.reference import QueryPoints, Reference, iid_points
from fedprikl.secure_sum import Leaves, plan_sum, secure_sum

TOPICS = 16
COHORT, DROPOUT = 20, 0.05  # clients of a secure sum, about; the share of clients who leave
DESIGN, NOISE = 1, 2  # streams of one seed
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class DriftedPopulation:
    """A public reference and the population whose drift from it is to be found."""

    reference: Reference
    counts: Ints  # records per client and cell, "other" last: (clients, cells)

    def batches(self, batches: int, rng: np.random.Generator) -> list[Ints]:
        """The clients of each batch: disjoint, random, of equal size up to one client."""
        dealt = rng.permutation(np.arange(len(self.counts)) % batches)
        return [np.flatnonzero(dealt == t) for t in range(batches)]

    def sums(self, points: QueryPoints, rng: np.random.Generator) -> BatchCounts:
        """The sums that a real round would compute for these points."""
        dealt = self.batches(points.batches, rng)
        total = np.array([self.counts[members].sum(axis=0) for members in dealt])
        return BatchCounts(points, total[points.batch, points.cells], total.sum(axis=1))

    def secure_sums(self, points: QueryPoints, rng: np.random.Generator) -> BatchCounts:
        """The same through real secure sums, with clients leaving before any of the steps.

        Cost: about 4 ms a client in cohorts of 20, most of it key agreement.
        """
        counts, records = np.zeros(len(points), np.int64), np.zeros(points.batches, np.int64)
        held = self.counts.sum(axis=1)
        for t, batch in enumerate(self.batches(points.batches, rng)):
            mine, members = points.batch == t, rng.permutation(batch)
            for group in np.array_split(members, max(1, round(len(members) / COHORT))):
                inputs = np.column_stack([self.counts[group][:, points.cells[mine]], held[group]])
                plan = plan_sum(len(group), [int(held.max())] * inputs.shape[1])
                total = secure_sum(plan, inputs, dropouts=leavers(range(len(group)), rng)).total
                counts[mine] += total[:-1]
                records[t] += total[-1]
        return BatchCounts(points, counts, records)


def leavers(clients: Sequence[T], rng: np.random.Generator) -> dict[T, Leaves]:
    """Who leaves, and before which message; never so many that the sum cannot be opened."""
    chosen = rng.choice(len(clients), int(DROPOUT * len(clients)), replace=False)
    return {clients[i]: Leaves(int(rng.integers(len(Leaves)))) for i in chosen}


def drifted_population(
    rng: np.random.Generator,
    *,
    clients: int = 600,
    cells: int = 4096,
    records_per_client: int = 200,
    drift: float = 0.8,
) -> DriftedPopulation:
    """Clients with Zipf-distributed records, tilted away from the reference.

    Pi(x) is proportional to 1/(x + 1). Each of 16 topics (x mod 16) became more or less popular
    by a factor e^(+-drift); half of a client's records come from one favourite topic, so its
    records are alike. P is what the clients then hold.
    """
    pi = _normalised(1 / (np.arange(cells) + 1.0))
    topic = np.arange(cells) % TOPICS
    tilt = drift * np.cos(2 * np.pi * np.arange(TOPICS) / TOPICS)
    p = _normalised(pi * np.exp(tilt[topic]))
    share = np.bincount(topic, weights=p)
    favourite = rng.choice(TOPICS, clients, p=share)
    held = rng.poisson(records_per_client, clients)
    client = np.repeat(np.arange(clients), held)
    cell = _draw(p, len(client), rng)
    own = rng.random(len(client)) < 0.5
    for t in range(TOPICS):
        mine = own & (favourite[client] == t)
        within = np.where(topic == t, p, 0.0)
        cell[mine] = _draw(within, int(np.count_nonzero(mine)), rng)
    counts = np.bincount(client * (cells + 1) + cell, minlength=clients * (cells + 1))
    return DriftedPopulation(
        Reference.from_probabilities(pi), counts.reshape(clients, cells + 1).astype(np.int64)
    )


def _normalised(mass: Floats) -> Floats:
    distribution: Floats = mass / mass.sum()
    return distribution


def _draw(mass: Floats, size: int, rng: np.random.Generator) -> Ints:
    cumulative = np.cumsum(mass)
    drawn: Ints = np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")
    return drawn


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
            self._sums[asked] = world.secure_sums(drawn, rng)
        return self._sums[asked]

    def release(self, plan: Plan) -> Release:
        """One round of the real roles, without a ledger; each client draws where the plan says."""
        rng, world, draw = self._rng(), self.world, draw_of(plan)
        policy = Policy(
            largest_epsilon=plan.budget.epsilon,
            largest_delta=plan.budget.delta,
            most_points=plan.points,
        )
        counted: Sequence[Ints] = list(world.counts)
        if draw is not None:
            drawn = (draw_counts(held, world.reference, draw) for held in counted)
            counted = [counts for counts in drawn if counts.sum()]  # the others stay away
        clients = {
            str(number): Client(counts, world.reference, policy=policy, randomness=os.urandom)
            for number, counts in enumerate(counted)
        }
        return run_round(
            Server(SignedPlan(plan), world.reference),
            clients,
            key=SigningKey.generate(),
            ledger=None,
            software="fedprikl demo",
            at=datetime.now(UTC).isoformat(),
            rng=rng,
            leaves=leavers(sorted(clients), rng),
        ).release

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(DESIGN,)))


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
        return self.estimator(world.sums(points, rng), source).value


@dataclass(frozen=True, slots=True, kw_only=True)
class Federated:
    """What a federation releases, with a trusted aggregator or with noise shares."""

    name: str
    plan: Mapping[str, Any]  # what the parties agree on

    def estimate(self, runs: RealRuns) -> Estimate:
        """A round of the real roles."""
        release = runs.release(self._agreed(runs.world))
        answer = release.answers[0]
        return Estimate(
            method=f"trust: {release.trust}",
            value=answer.value,
            target=answer.target,
            unit=answer.unit,
            payload=release.payload,
            privacy=release.privacy,
        )

    def repeat(
        self, world: DriftedPopulation, rng: np.random.Generator, source: NoiseSource
    ) -> float:
        """The same points and the same estimator on plain sums; `rng` draws shares of noise."""
        plan = self._agreed(world)
        trust = trust_of(plan)
        points = trust.draw_points(world.reference.probabilities, rng)
        exact = world.sums(points, rng)
        if isinstance(trust, NoisyHistogram):
            cohorts = cohort_sizes(plan, len(world.counts) // plan.sums.batches)
            noisy = _with_shares(exact, expected_noise(trust, cohorts), rng)
            return estimate_noisy_counts(points, noisy, score=trust.score, rng=rng)[0]
        return estimate_scored_sum(
            exact,
            calibrated=Calibrated(
                Numbers(), plan.budget.epsilon, plan.budget.delta, plan.question.noise
            ),
            score=trust.score,
            client_effect=plan.verdict.client_effect,
            source=source,
        ).value

    def _agreed(self, world: DriftedPopulation) -> Plan:
        content = dict(self.plan)
        trust = content.pop("trust", "aggregator")
        plan = Plan(
            population="demo",
            reference=world.reference.fingerprint,
            trust=trust,
            budget=Budget(epsilon=content.pop("epsilon")),
            views=(AskedView(points=content.pop("points")),),
            questions=(Question(release="counts" if trust == "none" else "value"),),
        )
        return plan.changed(**content)


Method = OnCounts | Federated


def _with_shares(exact: BatchCounts, noise: CountNoise, rng: np.random.Generator) -> NoisyCounts:
    """Sums with the noise of all clients together."""
    points, records = exact.points, exact.records
    design = CountsDesign(points, records, (noise,) * points.batches)
    on_counts, on_outside = design.draw_noise(rng)
    outside = records - design.asked(exact.counts) + on_outside[0]
    numbers = np.append(exact.counts + on_counts[0], outside)
    return NoisyCounts.of(numbers, records, design.noise, points)


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
        Federated(
            name="noise shares, 50 points",
            plan=agreed(50, 1, trust="none", cohort=20),  # fewer sums, less noise
        ),
        Federated(name="exact, 10 points", plan=agreed(10, 4)),
        Federated(name="exact, 250 points", plan=agreed(250, 1)),
    ]


def true_divergence(world: DriftedPopulation) -> float:
    """D_gamma of the records the clients hold, at the default gamma, in nats."""
    return skewed_divergence(
        world.reference.probabilities,
        world.counts.sum(axis=0) / world.counts.sum(),
        skew=DEFAULT_SKEW.gamma,
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
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(DESIGN, number)))
    noise = InsecureSeededNoise(np.random.SeedSequence(seed, spawn_key=(NOISE, number)))
    return method.repeat(world, rng, noise)
