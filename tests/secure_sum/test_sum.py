"""The secure sum equals the plain sum, whoever drops out, as long as enough remain."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.errors import CohortTooSmallError
from fedprikl.secure_sum import Leaves, SumPlan, plan_sum

from .helpers import make_plan, plain_sum_holds, seeded

pytestmark = pytest.mark.slow


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
