"""Who is in a cohort with whom: at random the first time, and the same people again later."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.protocol.round import deal
from tests.protocol.worlds import World

pytestmark = pytest.mark.slow

WORLD = World.make(clients=9)
NAMES = [f"c{i}" for i in range(60)]


def dealt(
    clients: list[str], together: Any = (), *, seed: int = 0, **plan: Any
) -> list[tuple[int, list[str]]]:
    return deal(WORLD.plan(**plan), clients, together, np.random.default_rng(seed))


def groups(deal: list[tuple[int, list[str]]]) -> list[list[str]]:
    return [members for _, members in deal]


def test_the_first_deal_is_random() -> None:
    first, second = (groups(dealt(NAMES, cohort=10, seed=seed)) for seed in (1, 2))
    assert sorted(name for group in first for name in group) == sorted(NAMES)
    assert {frozenset(group) for group in first} != {frozenset(group) for group in second}


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_the_same_people_stay_together(batches: int) -> None:
    first = groups(dealt(NAMES, cohort=10, batches=batches, seed=1))
    again = dealt(NAMES, first, cohort=10, batches=batches, seed=2)
    assert {frozenset(group) for group in groups(again)} == {frozenset(group) for group in first}
    assert sorted({batch for batch, _ in again}) == list(range(batches))


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(NAMES), min_size=12), st.integers(0, 30), st.integers(1, 3))
def test_those_who_were_together_are_together_if_they_come_again(
    present: set[str], new: int, batches: int
) -> None:
    before = groups(dealt(NAMES, cohort=12, seed=3))
    clients = sorted(present) + [f"n{i}" for i in range(new)]
    found = dealt(clients, before, cohort=12, batches=batches, seed=4)
    assert sorted(name for group in groups(found) for name in group) == sorted(clients)
    assert all(len(group) >= 3 for group in groups(found))
    assert {batch for batch, _ in found} == set(range(batches))
    stayed = [{name for name in group if name in present} for group in before]
    if sum(len(group) >= 3 for group in stayed) >= batches:
        for group in stayed:
            if len(group) >= 3:
                assert any(group <= set(members) for members in groups(found))


def test_many_newcomers_have_cohorts_of_their_own() -> None:
    before = groups(dealt(NAMES[:30], cohort=10))
    found = groups(dealt(NAMES, before, cohort=10))
    assert {frozenset(group) for group in before} <= {frozenset(group) for group in found}
    few = groups(dealt(NAMES[:33], before, cohort=10))
    assert len(few) == 3
