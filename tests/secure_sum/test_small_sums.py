"""Small secure sums: refused input, identities, and every way in which one or two clients leave."""

import itertools
from typing import Any

import numpy as np
import pytest

from fedprikl.errors import CohortTooSmallError, InvalidInputError
from fedprikl.secure_sum import Leaves, SumPlan, plan_sum, secure_sum

from .helpers import identities, make_inputs, make_plan, plain_sum_holds


def test_with_a_roster_of_identities() -> None:
    private, roster = identities(6)
    plan = make_plan(6, 3, roster=roster)
    inputs = make_inputs(plan)
    dropouts = {1: Leaves.BEFORE_INPUT, 4: Leaves.BEFORE_UNMASK}
    result = secure_sum(plan, inputs, identities=private, dropouts=dropouts)
    assert result.included == (0, 2, 3, 4, 5)
    assert np.array_equal(result.total, inputs[[0, 2, 3, 4, 5]].sum(axis=0))


def test_largest_inputs_do_not_wrap() -> None:
    plan = make_plan(7, maxima=(1, 2**50, 12345, 2**40 - 1))
    inputs = np.tile(np.asarray(plan.maxima), (7, 1))
    result = secure_sum(plan, inputs)
    assert result.total.tolist() == [7 * top for top in plan.maxima]


def test_planned_from_rates_with_the_operating_systems_randomness() -> None:
    plan = plan_sum(12, [4] * 3)
    assert plan != plan_sum(12, [4] * 3), "two plans never share a nonce"
    inputs = make_inputs(plan)
    assert np.array_equal(secure_sum(plan, inputs).total, inputs.sum(axis=0))


def test_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="5 clients, got 4"):
        secure_sum(make_plan(5), [[1, 1]] * 4)


def test_wrong_number_of_identities_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Pass 5 identities"):
        secure_sum(make_plan(5), [[1, 1]] * 5, identities=[bytes(32)])


@pytest.mark.parametrize(
    "dropouts", [{9: Leaves.BEFORE_INPUT}, {-1: Leaves.BEFORE_ECHO}, {0: 2}, {"0": Leaves(1)}]
)
def test_impossible_dropouts_are_refused(dropouts: dict[int, Leaves]) -> None:
    with pytest.raises(InvalidInputError, match="0 to 4, to `Leaves`; got"):
        secure_sum(make_plan(5), [[1, 1]] * 5, dropouts=dropouts)


@pytest.mark.parametrize(
    "values",
    [
        [1],
        [1, 1, 1],
        [8, 0],
        [-1, 0],
        [0.5, 1],
        [float("nan"), 1],
        [2**70, 1],
        ["x", "y"],
        [[1], [1, 2]],
        {},
    ],
)
def test_values_outside_the_plan_are_refused(values: Any) -> None:
    with pytest.raises(InvalidInputError, match="Nothing was sent") as caught:
        secure_sum(make_plan(3, maxima=(7, 3)), [values] * 3)
    assert not any(f" {value}" in str(caught.value) for value in values), "they are secret"


def goes_well(plan: SumPlan, stays: list[int]) -> bool:
    """Whether, at every step, enough neighbours of everybody who matters remain."""
    graph, everybody = plan.graph(), range(plan.clients)
    adverts, shared, inputs, echoes, answers = (
        {i for i in everybody if stays[i] > step.value} for step in Leaves
    )
    dropped = {i for i in shared - inputs if graph.of(i) & inputs}

    def near(owners: set[int], present: set[int]) -> bool:
        return all(len(graph.of(i) & present) >= plan.threshold for i in owners)

    return (
        len(inputs) >= plan.minimum
        and near(adverts, adverts)
        and near(shared, shared)
        and all(near(inputs | dropped, present) for present in (inputs, echoes, answers))
    )


@pytest.mark.slow
def test_every_pattern_of_up_to_two_dropouts_on_a_small_sparse_graph() -> None:
    """Six clients with four neighbours each: whoever leaves, whenever, in all 406 patterns."""
    plan = make_plan(6, 3, 4, maxima=(3,), seed=2)
    outcomes = set()
    for count in range(3):
        for who in itertools.combinations(range(6), count):
            for when in itertools.product(Leaves, repeat=count):
                dropouts = dict(zip(who, when, strict=True))
                well = goes_well(
                    plan, [dropouts[i].value if i in dropouts else 5 for i in range(6)]
                )
                outcomes.add(well)
                if well:
                    assert plain_sum_holds(plan, dropouts, 1), dropouts
                else:
                    with pytest.raises(CohortTooSmallError, match="start a new round"):
                        plain_sum_holds(plan, dropouts, 1)
    assert outcomes == {True, False}
