"""How far one record moves all columns at once: brute force over all neighbours of small tables."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.estimation import BatchCounts, score_sensitivity, weighted_score
from fedprikl.reference import QueryPoints, all_points
from tests.brute_force import histograms, neighbours

pytestmark = pytest.mark.slow

Table = tuple[tuple[float, ...], ...]  # per column: Pi of its cells, "other" last

TABLES: list[tuple[Table, int]] = [
    (((0.7, 0.3, 0.0), (0.9, 0.1, 0.0)), 5),
    (((0.5, 0.3, 0.2, 0.0), (0.6, 0.4, 0.0)), 3),
    (((0.7, 0.3, 0.0), (0.9, 0.1, 0.0), (0.5, 0.5, 0.0)), 2),
    (((0.7, 0.3, 0.0), (0.95, 0.05, 0.0), (1.0, 0.0)), 3),
]
NOTHING_ELSE: list[tuple[Table, int]] = [  # the reference has seen "other": all cells are asked
    (((0.7, 0.2, 0.1), (0.9, 0.1)), 4),
    (((0.6, 0.4), (0.2, 0.8), (0.95, 0.05)), 4),
]
SCORES = {
    "tv": Score(Skew(0.0), divergence_named("tv")),
    "js": Score(Skew(0.0), divergence_named("js")),
    "kl": Score(Skew(0.01)),
}


def marginals(table: Table, joint: tuple[int, ...]) -> list[Ints]:
    """The counts of each column's cells."""
    cube = np.array(joint).reshape([len(column) for column in table])
    axes = range(len(table))
    return [cube.sum(axis=tuple(set(axes) - {axis})) for axis in axes]


def moves(table: Table, records: int, values: Any) -> Floats:
    """How `values` of a data set differ, for all pairs of neighbouring data sets (rows)."""
    cells = math.prod(len(column) for column in table)
    found = {joint: values(marginals(table, joint)) for joint in histograms(cells, records)}
    return np.array([found[h] - found[other] for h in found for other in neighbours(h)])


def divergences(table: Table, records: int, score: Score) -> tuple[Any, Floats]:
    """A function from the columns' counts to their divergences; and their sensitivities."""
    points: list[QueryPoints] = [all_points(np.array(column)) for column in table]
    size = np.array([records])

    def values(counts: list[Ints]) -> Floats:
        return np.array(
            [
                weighted_score(BatchCounts(point, one[point.cells], size), score)
                for point, one in zip(points, counts, strict=True)
            ]
        )

    return values, np.array([score_sensitivity(point, size, score) for point in points])


@pytest.mark.parametrize("divergence", SCORES)
@pytest.mark.parametrize(("table", "records"), TABLES)
def test_columns_move_by_one_sensitivity_each_and_all_at_once(
    table: Table, records: int, divergence: str
) -> None:
    """L1 of d and L2 of sqrt(d), after division by the sensitivities: never more, and attained."""
    values, sensitivities = divergences(table, records, SCORES[divergence])
    unit = np.abs(moves(table, records, values)) / sensitivities
    d = len(table)
    assert unit.max() <= 1
    assert unit.sum(axis=1).max() == pytest.approx(d, rel=1e-9)
    assert math.sqrt((unit**2).sum(axis=1).max()) == pytest.approx(math.sqrt(d), rel=1e-9)


@pytest.mark.parametrize("divergence", SCORES)
@pytest.mark.parametrize(("table", "records"), NOTHING_ELSE)
def test_columns_without_unseen_values_move_no_further(
    table: Table, records: int, divergence: str
) -> None:
    values, sensitivities = divergences(table, records, SCORES[divergence])
    unit = np.abs(moves(table, records, values)) / sensitivities
    assert 0.8 < unit.max() <= 1
    assert 0.8 * len(table) < unit.sum(axis=1).max() <= len(table)


@pytest.mark.parametrize(("table", "records"), TABLES + NOTHING_ELSE)
def test_noisy_marginals_move_by_two_counts_in_every_column(table: Table, records: int) -> None:
    change = np.abs(moves(table, records, np.concatenate))
    d = len(table)
    assert change.max() == 1
    assert change.sum(axis=1).max() == 2 * d
    assert (change**2).sum(axis=1).max() == 2 * d


def test_the_joint_counts_beside_them_move_by_two_more() -> None:
    """Without a trusted party: all cells of the joint domain and of every column in one vector."""
    table, records = TABLES[0]
    cells = math.prod(len(column) for column in table)
    found = {
        joint: np.concatenate([np.array(joint), *marginals(table, joint)])
        for joint in histograms(cells, records)
    }
    most = max(np.abs(found[h] - found[other]).sum() for h in found for other in neighbours(h))
    assert most == 2 * (len(table) + 1)


def test_any_columns_fit_together() -> None:
    """Why the bound is attained: every choice of marginals with N records has a joint table."""
    table, records = TABLES[0]
    cells = math.prod(len(column) for column in table)
    seen = {
        tuple(tuple(one.tolist()) for one in marginals(table, joint))
        for joint in histograms(cells, records)
    }
    each = [list(histograms(len(column), records)) for column in table]
    assert seen == set(itertools.product(*each))
