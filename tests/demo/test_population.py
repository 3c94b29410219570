"""The population of the demo, its sums, and the comparison on it."""

import numpy as np
import pytest

from fedprikl.demo import (
    compare,
    drifted_population,
    paper_and_ours,
    true_divergence,
)
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.reference import all_points


def test_the_sums_are_those_of_all_clients(rng: np.random.Generator) -> None:
    world = drifted_population(rng, clients=40, cells=30)
    points = all_points(world.reference.probabilities)
    found = world.sums(points, rng)
    assert found.counts.tolist() == world.counts.sum(axis=0)[points.cells].tolist()
    assert found.records.tolist() == [world.counts.sum()]


def test_batches_are_disjoint_and_even(rng: np.random.Generator) -> None:
    dealt = drifted_population(rng, clients=10, cells=30).batches(3, rng)
    assert sorted(map(len, dealt)) == [3, 3, 4]
    assert sorted(np.concatenate(dealt).tolist()) == list(range(10))


def test_the_embedded_population_is_as_described(rng: np.random.Generator) -> None:
    world = drifted_population(rng)
    assert len(world.counts) == 600
    assert world.reference.domain.size == 4097
    assert 0.15 < true_divergence(world) < 0.25
    calm = drifted_population(rng, drift=0.0, cells=64)
    assert true_divergence(calm) < 0.01


def test_repetitions_do_not_repeat_the_warning(rng: np.random.Generator) -> None:
    world = drifted_population(rng, clients=60, cells=64)
    methods = [m for m in paper_and_ours(epsilon=1.0, delta=1e-6) if m.name == "aggregator, paper"]
    with pytest.warns(PaperCalibrationWarning) as caught:
        list(compare(world, methods, repetitions=5, seed=3))
    assert len(caught) == 1
