"""All estimators side by side on one population whose divergence is known."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import DEFAULT_SKEW, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import BatchCounts, ComparedEstimate, Estimate, trusted_aggregator
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import SECURE_NOISE, InsecureSeededNoise, NoiseSource
from fedprikl.reference import QueryPoints, distinct_points, iid_points
from fedprikl.simulation.population import deal_clients
from fedprikl.simulation.synthetic import DriftedPopulation

__all__ = ["Method", "compare", "paper_and_ours", "true_divergence"]

DESIGN, NOISE = 1, 2  # streams of one seed
Estimator = Callable[[BatchCounts, NoiseSource], Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A way to estimate: a design of query points and an estimator of batch counts."""

    name: str
    points: int  # m
    batches: int  # T
    design: Callable[..., QueryPoints]
    estimator: Estimator


def paper_and_ours(*, epsilon: float, delta: float) -> list[Method]:
    """The paper's three estimators at its settings, and the exact calibration."""

    def noised(estimator: Callable[..., Estimate], **settings: str) -> Estimator:
        return lambda counts, source: estimator(
            counts, epsilon=epsilon, delta=delta, source=source, **settings
        )

    paper = partial(Method, points=10, batches=20, design=iid_points)
    ours = partial(Method, design=distinct_points, estimator=noised(trusted_aggregator))
    return [
        paper(name="no privacy", estimator=lambda counts, _: no_privacy(counts)),
        paper(name="baseline, paper", estimator=noised(baseline, calibration="paper")),
        paper(name="baseline, exact", estimator=noised(baseline, noise="gaussian")),
        paper(name="aggregator, paper", estimator=noised(printed_aggregator)),
        ours(name="exact, 10 points", points=10, batches=4),
        ours(name="exact, 250 points", points=250, batches=1),
    ]


def true_divergence(world: DriftedPopulation) -> float:
    """D_gamma of the records the clients hold, at the default gamma, in nats."""
    return skewed_divergence(
        world.reference.probabilities, world.population.distribution, skew=DEFAULT_SKEW.gamma
    )


def compare(
    world: DriftedPopulation, methods: list[Method], *, repetitions: int, seed: int
) -> Iterator[ComparedEstimate]:
    """One real estimate per method and simulated repetitions around it.

    The real one runs on secure sums in cohorts of about 20, of which 5% of the clients leave, with
    noise from OpenDP; methods that ask the same points share the sums. Points and batches are drawn
    from `seed`; only the repetitions, on plain sums, use seeded noise.
    """
    truth = true_divergence(world)
    sums: dict[tuple[int, int], BatchCounts] = {}
    for method in methods:
        asked = (method.points, method.batches)
        if asked not in sums:
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(DESIGN,)))
            points, batch_of_client = _design(world, method, rng)
            sums[asked] = world.population.secure_batch_counts(
                points, batch_of_client, cohort=20, dropout=0.05, rng=rng
            )
        estimate = method.estimator(sums[asked], SECURE_NOISE)
        with warnings.catch_warnings():  # the real estimate has said it already
            warnings.simplefilter("ignore", PaperCalibrationWarning)
            values = [_simulate(world, method, seed, number) for number in range(repetitions)]
        yield ComparedEstimate(
            name=method.name, estimate=estimate, repetitions=np.array(values), truth=truth
        )


def _simulate(world: DriftedPopulation, method: Method, seed: int, number: int) -> float:
    """A repetition; points and noise come from independent streams."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(DESIGN, number)))
    noise = InsecureSeededNoise(np.random.SeedSequence(seed, spawn_key=(NOISE, number)))
    counts = world.population.batch_counts(*_design(world, method, rng))
    return method.estimator(counts, noise).value


def _design(
    world: DriftedPopulation, method: Method, rng: np.random.Generator
) -> tuple[QueryPoints, Ints]:
    points = method.design(
        world.reference.probabilities, method.points, batches=method.batches, rng=rng
    )
    return points, deal_clients(world.population.clients, method.batches, rng)
