"""Sensitivities of tables drawn at random, against every pair of small data sets."""

import itertools
import math

import numpy as np
import pytest

from fedprikl.checks import Floats
from fedprikl.errors import UnboundedSensitivityError
from fedprikl.privacy import (
    contribution_sensitivity,
    exact_sensitivity,
    joint_sensitivity,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy import sensitivity as module
from fedprikl.privacy.sensitivity import BatchIncrements, BatchScores
from tests.brute_force import distance, histograms

RECORDS = 5
SEEDS = range(25)


def convex_table(rng: np.random.Generator, cells: int) -> Floats:
    """S_x(h) of each cell, for h = 0 .. 5: convex, and equal for some cells."""
    steps = np.sort(rng.normal(size=(cells, RECORDS)), axis=1)
    steps[rng.integers(cells)] = steps[0]
    return np.cumsum(np.hstack([rng.normal(size=(cells, 1)), steps]), axis=1)


def as_scores(table: Floats) -> BatchScores:
    _, kinds = np.unique(table, axis=0, return_inverse=True)
    return BatchScores(
        size=RECORDS,
        records=np.full(len(table), RECORDS),
        kinds=kinds.ravel(),
        scores=lambda cell, count: table[cell, count],
    )


def as_increments(table: Floats) -> BatchIncrements:
    steps = np.diff(table, axis=1)
    return BatchIncrements(
        records=np.full(len(table), RECORDS),
        lowest=steps.min(axis=1),
        lowest_at=steps.argmin(axis=1),
        highest=steps.max(axis=1),
        highest_at=steps.argmax(axis=1),
        table=lambda: steps,
    )


def brute_force(table: Floats, moved: int) -> float:
    """The largest change of the sum over all data sets, with one more cell that is not asked."""
    values = {
        held: math.fsum(table[cell, count] for cell, count in enumerate(held[:-1]))
        for held in histograms(len(table) + 1, RECORDS)
    }
    return max(
        abs(values[one] - values[other])
        for one, other in itertools.combinations(values, 2)
        if distance(one, other) <= moved
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_one_record_moves_the_sum_as_far_as_is_said(seed: int) -> None:
    """Any table, convex or not; and the substitution that is named does it."""
    rng = np.random.default_rng([seed, 1])
    tables = [rng.normal(size=(int(rng.integers(1, 4)), RECORDS + 1)) for _ in range(2)]
    batches = [as_increments(table) for table in tables]
    expected = max(brute_force(table, 1) for table in tables)
    assert exact_sensitivity(batches) == pytest.approx(expected)
    worst = worst_substitution(batches)
    table = tables[worst.batch]
    change = 0.0
    if worst.gaining is not None:
        change += table[worst.gaining, worst.gain_at + 1] - table[worst.gaining, worst.gain_at]
    if worst.losing is not None:
        change -= table[worst.losing, worst.lose_at + 1] - table[worst.losing, worst.lose_at]
    assert change == pytest.approx(expected)
    assert worst.gaining != worst.losing
    if None not in (worst.gaining, worst.losing):
        assert worst.gain_at + worst.lose_at < RECORDS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("small_table", [0, 2**14])
def test_the_records_of_a_client_move_the_sum_as_far_as_is_said(
    seed: int, small_table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SMALL_TABLE", small_table)
    rng = np.random.default_rng([seed, 2])
    tables = [convex_table(rng, int(rng.integers(1, 5))) * 10 ** rng.normal() for _ in range(2)]
    for moved in (1, 2, 3, RECORDS, 99):
        expected = [brute_force(table, moved) for table in tables]
        found = contribution_sensitivity([as_scores(table) for table in tables], moved)
        assert found == pytest.approx(max(expected), rel=1e-9)
        for table, exact in zip(tables, expected, strict=True):
            assert joint_sensitivity(as_scores(table), moved) >= exact * (1 - 1e-12)


def test_joint_losses_and_gains_do_not_stand_in_each_others_way() -> None:
    """The largest two falls and the largest two rises of all cells, by hand."""
    table = np.array([[9.0, 4.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 2.0, 8.0]])
    batch = as_scores(table)
    assert joint_sensitivity(batch, 1) == pytest.approx(5 + 6)
    assert joint_sensitivity(batch, 2) == pytest.approx(5 + 3 + 6 + 2)
    assert joint_sensitivity(batch, 99) == pytest.approx(5 + 3 + 1 + 6 + 2)


def test_looking_at_no_cell_takes_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cell that loses could gain as well, its bound is above the truth."""
    table = np.array([[9.0, 0.0, 0.0, 0.0, 0.0, 9.0]])
    exact = contribution_sensitivity([as_scores(table)], 2)
    assert exact == pytest.approx(9.0)
    monkeypatch.setattr(module, "LOOKED", 0)
    assert contribution_sensitivity([as_scores(table)], 2) == pytest.approx(18.0)


def test_terms_are_changed_in_two_cells_each_as_often_as_it_is_drawn() -> None:
    table = np.array([[0.0, 3.0, 3.0, 3.0, 3.0, 3.0], [0, -2, -2, -2, -2, -2], [0, 1, 1, 1, 1, 1]])
    draws = np.array([1, 4, 2])
    found = terms_sensitivity([as_increments(table), as_increments(table / 9)], [draws, draws])
    assert found == pytest.approx(math.sqrt(1 * 9 + 4 * 4))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_score_without_limit_is_refused(value: float) -> None:
    table = np.array([[value, 1.0, 2.0, 3.0, 4.0, 5.0]])
    with pytest.raises(UnboundedSensitivityError, match="Choose a smoothing"):
        exact_sensitivity([as_increments(table)])
    with pytest.raises(UnboundedSensitivityError, match="Choose a smoothing"):
        terms_sensitivity([as_increments(table)], [np.array([1])])
