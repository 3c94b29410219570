"""Batches, cohorts and dropouts; a simulated round equals a secure one before noise."""

import numpy as np
import pytest

from fedprikl import InvalidInputError
from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, weighted_score
from fedprikl.reference import distinct_points
from fedprikl.secure_sum import Leaves, plan_sum, secure_sum
from fedprikl.simulation import (
    GONE,
    Population,
    Turnout,
    deal_round,
    drifted_population,
)


def secure_counts(
    population: Population, asked: Ints, turnout: Turnout, left: set[int]
) -> tuple[Ints, Ints]:
    """Per batch, the sums of `asked` cells and of records, each cohort summed securely."""
    counts = np.zeros((turnout.batches, len(asked[0])), np.int64)
    records = np.zeros(turnout.batches, np.int64)
    held = np.zeros((population.clients, population.cells), np.int64)
    np.add.at(held, (population.client, population.cell), 1)
    for cohort in np.unique(turnout.cohort):
        members = np.flatnonzero(turnout.cohort == cohort)
        batch = int(turnout.batch[members].max())
        vectors = np.column_stack([held[members][:, asked[batch]], held[members].sum(axis=1)])
        plan = plan_sum(len(members), [1000] * vectors.shape[1], dropout=0.3, corruption=0.0)
        leaving = {i: Leaves.BEFORE_INPUT for i, who in enumerate(members.tolist()) if who in left}
        total = secure_sum(plan, vectors, dropouts=leaving).total
        counts[batch] += total[:-1]
        records[batch] += total[-1]
    return counts, records


def test_a_simulated_round_equals_a_secure_round_before_noise(rng: np.random.Generator) -> None:
    """Two batches of two cohorts each, some clients leave: the same counts, the same number."""
    world = drifted_population(rng, clients=60, cells=40, records_per_client=15)
    turnout = deal_round(60, batches=2, cohort=15, dropout=0.1, quorum=0.5, rng=rng)
    left = set(np.flatnonzero(turnout.batch == GONE).tolist())
    assert left
    assert len(np.unique(turnout.cohort)) == 4
    points = distinct_points(world.reference.probabilities, 10, batches=2, rng=rng)
    plain = world.population.batch_counts(points, turnout.batch)
    asked = np.array([points.cells[points.batch == t] for t in range(2)])
    summed, records = secure_counts(world.population, asked, turnout, left)
    secure = BatchCounts(points, np.concatenate(summed), records)
    assert secure.counts.tolist() == plain.counts.tolist()
    assert secure.records.tolist() == plain.records.tolist()
    score = Score(correction=0.5)
    assert weighted_score(secure, score) == weighted_score(plain, score)


def test_cohorts_are_even_parts_of_one_batch(rng: np.random.Generator) -> None:
    turnout = deal_round(230, batches=2, cohort=50, rng=rng)
    assert turnout.clients == 230
    assert set(np.bincount(turnout.cohort).tolist()) == {38, 39}
    for cohort in range(6):
        assert len(set(turnout.batch[turnout.cohort == cohort].tolist())) == 1


def test_a_cohort_below_its_quorum_is_lost_whole(rng: np.random.Generator) -> None:
    turnout = deal_round(1000, batches=1, cohort=10, dropout=0.3, quorum=0.8, rng=rng)
    heard = np.bincount(turnout.cohort[turnout.batch != GONE], minlength=100)
    assert set(np.unique(heard).tolist()) <= {0, 8, 9, 10}
    assert 0 in heard
    assert turnout.clients == heard.sum() > 0


def test_clients_who_left_add_nothing() -> None:
    population = Population(np.array([0, 0, 1, 2]), np.array([1, 1, 0, 2]), 3, 3)
    sums = population.histograms(np.array([0, GONE, 1]), 2)
    assert sums.counts.tolist() == [[0, 2, 0], [0, 0, 1]]
    assert sums.records.tolist() == [2, 1]


def test_points_and_batches_must_fit(rng: np.random.Generator) -> None:
    world = drifted_population(rng, clients=20, cells=30)
    sums = world.population.histograms(np.zeros(20, np.int64), 1)
    with pytest.raises(InvalidInputError, match="one number for both"):
        sums.ask(distinct_points(world.reference.probabilities, 2, batches=2, rng=rng))


@pytest.mark.parametrize("changes", [{"dropout": 1.0}, {"quorum": 2.0}, {"cohort": 0}])
def test_impossible_rounds_are_refused(changes: dict[str, float], rng: np.random.Generator) -> None:
    with pytest.raises(InvalidInputError):
        deal_round(10, batches=1, rng=rng, **changes)  # type: ignore[arg-type]
