"""The secure sum equals the plain sum, whoever drops out, as long as enough remain."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.errors import CohortTooSmallError, InvalidInputError
from fedprikl.secure_sum import Leaves, SumPlan, plan_sum, secure_sum

from .helpers import identities, make_inputs, make_plan, seeded

pytestmark = pytest.mark.slow


def plain_sum_holds(plan: SumPlan, dropouts: dict[int, Leaves], seed: int) -> bool:
    inputs = make_inputs(plan, seed)
    result = secure_sum(plan, inputs, dropouts=dropouts, randomness=seeded(seed))
    early = {i for i, when in dropouts.items() if when.value <= Leaves.BEFORE_INPUT.value}
    assert set(result.included) <= set(range(plan.clients)) - early
    assert not result.rejected
    return np.array_equal(result.total, inputs[list(result.included)].sum(axis=0))


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[SumPlan, int]:
    clients = draw(st.integers(3, 500))
    # Cost is clients times neighbours: keep the product near 2,000 pairs.
    most = max(2, min(clients - 1, 2000 // clients))
    neighbours = most if most == clients - 1 else 2 * draw(st.integers(1, most // 2))
    threshold = draw(st.integers(neighbours // 2 + 1, neighbours))
    # Long vectors of few clients, or the other way round: masks cost pairs times length.
    length = draw(st.one_of(st.integers(1, 40), st.integers(1, max(40, 50_000 // clients))))
    top = st.integers(1, 2 ** draw(st.integers(1, 50)))
    few = draw(st.lists(top, min_size=1, max_size=8))
    maxima = tuple(itertools.islice(itertools.cycle(few), length))
    seed = draw(st.integers(0, 2**32))
    return make_plan(clients, threshold, neighbours, maxima, seed), seed


@given(cohorts(), st.data())
@settings(max_examples=10, deadline=None)
def test_sum_of_any_cohort_with_any_dropouts_that_leave_enough(
    case: tuple[SumPlan, int], data: st.DataObject
) -> None:
    plan, seed = case
    graph = plan.graph()
    near = [graph.of(i) for i in range(plan.clients)]
    staying, dropouts = set(range(plan.clients)), {}
    rng = np.random.default_rng(seed)
    for i in rng.permutation(plan.clients)[: data.draw(st.integers(0, plan.clients))].tolist():
        left = staying - {i}
        if len(left) >= plan.minimum and all(
            len(near[j] & left) >= plan.threshold for j in near[i]
        ):
            staying = left
            dropouts[i] = Leaves(int(rng.integers(5)))
    assert plain_sum_holds(plan, dropouts, seed)


@given(st.integers(3, 30), st.data())
@settings(max_examples=30, deadline=None)
def test_complete_graph_needs_threshold_and_one_more_to_stay(
    clients: int, data: st.DataObject
) -> None:
    """Complete graph: the round works exactly if threshold + 1 clients stay to the end."""
    k = clients - 1
    threshold = data.draw(st.integers(k // 2 + 1, k))
    seed = data.draw(st.integers(0, 2**32))
    plan = make_plan(clients, threshold, maxima=(9,) * data.draw(st.integers(1, 50)), seed=seed)
    lost = data.draw(st.integers(0, clients - threshold - 1))
    who = data.draw(st.permutations(range(clients)))[:lost]
    dropouts = {i: data.draw(st.sampled_from(Leaves)) for i in who}
    assert plain_sum_holds(plan, dropouts, seed)


@pytest.mark.parametrize("first", [None, *Leaves])
def test_every_dropout_pattern_of_four_clients_with_threshold_two(first: Leaves | None) -> None:
    """All 6^4 patterns: the sum is right if every needed secret has two holders, else an error."""
    plan = make_plan(4, 2, maxima=(3,))
    for others in itertools.product([None, *Leaves], repeat=3):
        pattern = (first, *others)
        dropouts = {i: when for i, when in enumerate(pattern) if when is not None}
        stays = [5 if when is None else when.value for when in pattern]
        answering = {i for i in range(4) if stays[i] == 5}
        inputs_in = {i for i in range(4) if stays[i] > Leaves.BEFORE_INPUT.value}
        shared = {i for i in range(4) if stays[i] > Leaves.BEFORE_SHARES.value}
        if len(inputs_in) >= 3 and all(len(answering - {i}) >= 2 for i in shared):
            assert plain_sum_holds(plan, dropouts, 1), pattern
        else:
            with pytest.raises(CohortTooSmallError, match="start a new round"):
                plain_sum_holds(plan, dropouts, 1)


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


def test_two_hundred_clients_as_planned_with_a_tenth_leaving_at_every_step() -> None:
    plan = plan_sum(200, [9] * 20, corruption=0.02, randomness=seeded(5))
    assert plan.neighbours < 150, "far from the complete graph"
    steps = itertools.cycle(Leaves)
    assert plain_sum_holds(plan, {i: next(steps) for i in range(0, 200, 10)}, 5)


def test_a_hundred_clients_on_the_complete_graph_against_a_third_corrupt() -> None:
    plan = plan_sum(100, [9] * 20, corruption=1 / 3, randomness=seeded(6))
    assert (plan.neighbours, plan.threshold) == (99, 67)
    steps = itertools.cycle(Leaves)
    assert plain_sum_holds(plan, {i: next(steps) for i in range(0, 100, 10)}, 6)


@given(st.integers(0, 2**32), st.data())
@settings(max_examples=15, deadline=None)
def test_sparse_graph_with_dropouts(seed: int, data: st.DataObject) -> None:
    plan = make_plan(60, 7, 12, maxima=(5,) * 10, seed=seed)
    who = data.draw(st.lists(st.integers(0, 59), unique=True, max_size=8))
    dropouts = {i: data.draw(st.sampled_from(Leaves)) for i in who}
    graph = plan.graph()
    near = {i: graph.of(i) for i in range(60)}
    staying = set(range(60)) - set(who)
    if all(len(near[i] & staying) >= 7 for i in range(60)):
        assert plain_sum_holds(plan, dropouts, seed)


def test_a_client_with_too_few_neighbours_ends_the_round_before_masking() -> None:
    plan = make_plan(40, 3, 4, maxima=(5,), seed=3)
    gone = sorted(plan.graph().of(0))[:2]
    dropouts = dict.fromkeys(gone, Leaves.BEFORE_ADVERT)
    with pytest.raises(CohortTooSmallError, match=r"2 neighbours of client .* but 3 are needed"):
        plain_sum_holds(plan, dropouts, 0)


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
