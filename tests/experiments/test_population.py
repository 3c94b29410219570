"""Populations held in one place, and their sums."""

from typing import Any

import numpy as np
import pytest
from experiments.population import GONE, Population, ask, deal_clients

from fedprikl import InvalidInputError
from fedprikl.reference import all_points, distinct_points


def small() -> Population:
    return Population(np.array([0, 0, 1, 2]), np.array([1, 1, 0, 2]), 3, 3)


def test_batch_counts_are_plain_sums(rng: np.random.Generator) -> None:
    cell = rng.integers(0, 30, 500)
    population = Population(rng.integers(0, 40, 500), cell, 31, 40)
    points = all_points(np.append(np.full(30, 1 / 30), 0.0))
    counts = population.batch_counts(points, np.zeros(40, np.int64))
    assert counts.counts.tolist() == [int(np.sum(cell == x)) for x in points.cells]
    assert counts.records.tolist() == [population.records]


def test_batches_are_disjoint_and_even(rng: np.random.Generator) -> None:
    batch = deal_clients(10, 3, rng)
    assert sorted(np.bincount(batch).tolist()) == [3, 3, 4]


def test_the_distribution_is_the_share_of_records() -> None:
    assert small().distribution.tolist() == [0.25, 0.5, 0.25]


def test_clients_who_left_add_nothing() -> None:
    sums = small().histograms(np.array([0, GONE, 1]), 2)
    assert sums.tolist() == [[0, 2, 0], [0, 0, 1]]
    assert small().counts_by_client().tolist() == [[0, 2, 0], [1, 0, 0], [0, 0, 1]]


def test_points_and_batches_must_fit(rng: np.random.Generator) -> None:
    sums = small().histograms(np.zeros(3, np.int64), 1)
    with pytest.raises(InvalidInputError, match="one number for both"):
        ask(sums, distinct_points(np.array([0.5, 0.3, 0.2]), 1, batches=2, rng=rng))


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
