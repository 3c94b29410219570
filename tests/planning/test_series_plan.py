"""Plans of series: counts of all cells, and the budget of one record."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.planning.known import MOST_POINTS
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.planner import plan_round
from fedprikl.privacy import total_epsilon
from fedprikl.protocol import Series, trust_of
from fedprikl.reference import Reference

pytestmark = pytest.mark.slow

CELLS, EPSILON, DELTA = 40, 1.0, 1e-6
REFERENCE = Reference.from_counts(np.random.default_rng(1).integers(5, 50, CELLS))
CLIENTS = 30


@cache
def planned(trust: Any, window: int) -> PlannedRound:
    series = Series(
        every="week", first="2027-01-04", periods=52, window=window, time_column="departed"
    )
    return plan_round(
        REFERENCE, clients=CLIENTS, records=3000, epsilon=EPSILON, trust=trust, series=series
    )


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_every_question_is_read_off_counts_of_all_cells(trust: str, window: int) -> None:
    plan = planned(trust, window).plan
    assert plan.points == CELLS
    assert {each.release for each in plan.questions} == {"counts"}
    assert math.fsum(each.share for each in plan.questions) == pytest.approx(1.0)
    assert plan.sums.batches == 1
    assert plan.budget.total == (EPSILON, DELTA)  # of one record, over all 52 releases
    assert plan.budget.releases == window


@pytest.mark.parametrize("window", [1, 4, 13])
def test_the_releases_that_count_a_record_fill_its_budget(window: int) -> None:
    plan = planned("aggregator", window).plan
    total = total_epsilon([trust_of(plan).charge(())] * window, delta=DELTA)
    assert 0.99 * EPSILON < total <= EPSILON * (1 + 1e-12)


def test_many_releases_of_a_record_cost_less_than_their_sum() -> None:
    plan = planned("aggregator", 13).plan
    assert plan.question.noise == "gaussian"
    assert plan.budget.epsilon > 3 * EPSILON / 13
    assert planned("aggregator", 4).plan.question.noise == "laplace"


@pytest.mark.parametrize("window", [1, 4, 13])
def test_without_a_trusted_party_the_releases_of_a_record_fit(window: int) -> None:
    plan = planned("none", window).plan
    total = total_epsilon([trust_of(plan).charge((CLIENTS,))] * window, delta=DELTA)
    assert 0.99 * EPSILON < total <= EPSILON * (1 + 1e-12)


def test_the_plan_says_how_often_a_record_is_counted() -> None:
    def words(window: int) -> str:
        return " ".join(str(reason) for reason in planned("aggregator", window).reasons)

    assert "of one record over all 52 releases, which count it once" in words(1)
    assert "which count it up to 4 times" in words(4)


def test_a_series_of_too_many_cells_is_refused() -> None:
    cells = MOST_POINTS + 1
    series = Series(every="week", first="2027-01-04", periods=4)
    with pytest.raises(InvalidInputError, match=f"asks for every cell, here {cells:,}, and cli"):
        plan_round(
            Reference.from_counts([1] * cells),
            clients=CLIENTS,
            records=3000,
            epsilon=EPSILON,
            series=series,
        )
