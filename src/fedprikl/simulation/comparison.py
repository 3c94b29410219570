"""All estimators side by side on one population whose divergence is known."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedprikl.divergence import DEFAULT_SKEW, skewed_divergence
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.estimation import BatchCounts, ComparedEstimate, Estimate
from fedprikl.paper import baseline, no_privacy, printed_aggregator
from fedprikl.privacy import InsecureSeededNoise, NoiseSource
from fedprikl.simulation.methods import Method, NoiseShares, OnCounts, TrustedAggregator
from fedprikl.simulation.real_runs import RealRuns
from fedprikl.simulation.synthetic import DriftedPopulation

__all__ = ["compare", "paper_and_ours", "true_divergence"]

DESIGN, NOISE = 1, 2  # streams of one seed


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
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(DESIGN, number)))
    noise = InsecureSeededNoise(np.random.SeedSequence(seed, spawn_key=(NOISE, number)))
    return method.repeat(world, rng, noise)
