"""Populations, their sums, and the comparison behind the demo."""

from typing import Any

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.demo import (
    Population,
    compare,
    deal_clients,
    drifted_population,
    paper_and_ours,
    true_divergence,
)
from fedprikl.errors import PaperCalibrationWarning
from fedprikl.reference import all_points


def small() -> Population:
    return Population(np.array([0, 0, 1, 2]), np.array([1, 1, 0, 2]), 3, 3)


def test_batch_counts_are_plain_sums(rng: np.random.Generator) -> None:
    world = drifted_population(rng, clients=40, cells=30)
    points = all_points(world.reference.probabilities)
    counts = world.population.batch_counts(points, np.zeros(40, np.int64))
    by_hand = [int(np.sum(world.population.cell == x)) for x in points.cells]
    assert counts.counts.tolist() == by_hand
    assert counts.records.tolist() == [world.population.records]


def test_batches_are_disjoint_and_even(rng: np.random.Generator) -> None:
    batch = deal_clients(10, 3, rng)
    assert sorted(np.bincount(batch).tolist()) == [3, 3, 4]


def test_the_distribution_is_the_share_of_records() -> None:
    assert small().distribution.tolist() == [0.25, 0.5, 0.25]


def test_the_embedded_population_is_as_described(rng: np.random.Generator) -> None:
    world = drifted_population(rng)
    assert world.population.clients == 600
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Population(np.array([0]), np.array([0, 1]), 2, 1), "one client and one cell"),
        (lambda: Population(np.array([]), np.array([]), 2, 1), "one client and one cell"),
        (lambda: Population(np.array([1]), np.array([0]), 2, 1), "does not exist"),
        (lambda: Population(np.array([0]), np.array([2]), 2, 1), "does not exist"),
        (lambda: deal_clients(2, 3, np.random.default_rng(0)), "cannot fill"),
        (lambda: deal_clients(0, 1, np.random.default_rng(0)), "at least 1"),
    ],
)
def test_bad_input_says_what_to_do(make: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        make()
