"""A plan says no to what would not be safe, and its hash covers all of it."""

from dataclasses import replace
from typing import Any

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum import SumPlan, plan_sum

from .helpers import identities, make_plan

GOOD = make_plan(8, 4, 6, maxima=(5, 9))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clients": 2}, "3 to 65520 clients"),
        ({"clients": 65521}, "3 to 65520 clients"),
        ({"neighbours": 5}, "an even number"),
        ({"neighbours": 8}, "7 for the complete graph"),
        ({"threshold": 3}, "more than half of the 6 neighbours"),
        ({"threshold": 7}, "at most all"),
        ({"minimum": 4}, r"from 5 \(threshold \+ 1\) to 8"),
        ({"minimum": 9}, "to 8 inputs"),
        ({"nonce": bytes(31)}, "32 fresh random bytes"),
        ({"nonce": "x" * 32}, "32 fresh random bytes"),
        ({"maxima": ()}, "at least one entry"),
        ({"maxima": (1.5,)}, "whole numbers"),
        ({"clients": 8.0}, "whole numbers"),
        ({"threshold": True}, "whole numbers"),
        ({"maxima": 5}, "maxima of a plan must be a tuple"),
        ({"maxima": None}, "maxima of a plan must be a tuple"),
        ({"roster": 5}, "roster of a plan must be a tuple"),
        ({"roster": ([],) * 8}, "8 different Ed25519"),
        ({"roster": (bytes(32),)}, "8 different Ed25519"),
        ({"roster": (bytes(32),) * 8}, "8 different Ed25519"),
    ],
)
def test_unsafe_plans(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        _changed(change)


def _changed(change: dict[str, Any]) -> SumPlan:
    return replace(GOOD, **change)


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": bytes(32)},
        {"clients": 9},
        {"neighbours": 7},
        {"threshold": 5, "minimum": 6},
        {"minimum": 6},
        {"maxima": (5, 10)},
        {"maxima": (5, 9, 1)},
        {"roster": tuple(identities(8)[1])},
    ],
)
def test_round_covers_everything(change: dict[str, Any]) -> None:
    assert _changed(change).round_id != GOOD.round_id
    assert replace(GOOD).round_id == GOOD.round_id


def test_lists_become_tuples_so_that_plans_can_be_hashed() -> None:
    plan = _changed({"maxima": [5, 9], "roster": []})
    assert plan == GOOD
    assert hash(plan) == hash(GOOD)


def test_fractional_maxima_are_not_rounded() -> None:
    with pytest.raises(InvalidInputError, match="whole number"):
        plan_sum(10, [1.5])  # type: ignore[list-item]


def test_planning_with_no_list() -> None:
    with pytest.raises(InvalidInputError, match="must be a tuple or a list"):
        plan_sum(10, 5)  # type: ignore[arg-type]


def test_planning_from_rates() -> None:
    plan = plan_sum(100, [7] * 3, corruption=1 / 3, randomness=bytes)
    assert (plan.neighbours, plan.threshold, plan.minimum) == (99, 67, 68)
    assert plan_sum(100, [7], minimum=90).minimum == 90
