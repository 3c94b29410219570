"""Released numbers, thresholds, intervals, charges and plans are what they were when recorded."""

import json
import math
from typing import Any
from unittest.mock import patch

import pytest

from tests.golden.cases import CASES
from tests.golden.compare import (
    EXACT,
    RELATIVE,
    VALUES,
    differences,
    leaves,
    round_trip,
    same_draws,
)
from tests.long import long

pytestmark = pytest.mark.slow

RECORDED: dict[str, Any] = json.loads(VALUES.read_text())
LONG = {  # plans like them are in `make test`
    "planner: long tail, trust none",
    "planner: otherwise",
    "planner: related clients, trust aggregator",
    "planner: table with columns, trust aggregator",
    "planner: table, trust aggregator",
}


def test_every_case_is_recorded() -> None:
    assert sorted(CASES) == sorted(RECORDED)


@pytest.mark.parametrize("name", [long(n) if n in LONG else n for n in sorted(CASES)])
def test_the_same_as_recorded(name: str) -> None:
    found = round_trip(CASES[name]())
    assert differences(RECORDED[name], found, drawn_alike=same_draws()) == {}


def nudged(value: Any, path: str = "") -> Any:
    """Every float a little larger, in a plan by one step; every other value changed."""
    if isinstance(value, dict):
        return {key: nudged(each, f"{path}/{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [nudged(each, f"{path}/") for each in value] or [0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        little = 0.0 if EXACT in path else 2 * RELATIVE
        return math.nextafter(value * (1 + little), math.inf)
    return value + 1 if isinstance(value, int) else f"{value}."


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_change_fails(name: str) -> None:
    """In every single place, also after it was written and read."""
    recorded, wrong = RECORDED[name], round_trip(nudged(RECORDED[name]))
    changed = {path for path, each in leaves(recorded).items() if each != []}
    assert changed <= differences(recorded, wrong).keys()
    assert any(isinstance(each, float) for each in leaves(recorded).values())


def test_last_digits_may_differ_but_not_in_a_plan() -> None:
    assert differences([1.0], [1.0 + 1e-12]) == {}
    assert differences({"plan": {"a": 1.0}}, {"plan": {"a": 1.0 + 1e-12}}).keys() == {"/plan/a"}


def test_only_what_is_simulated_may_differ_with_other_random_numbers() -> None:
    before = {"forecasts": [{"error": 1.0}], "value": 1.0, "plan": {"epsilon": 1.0}}
    near = {"forecasts": [{"error": 1.04}], "value": 1.04, "plan": {"epsilon": 1.04}}
    far = before | {"forecasts": [{"error": 1.06}]}
    other = {"/value", "/plan/epsilon"}
    assert differences(before, near).keys() == other | {"/forecasts/0/error"}
    assert differences(before, near, drawn_alike=False).keys() == other
    assert differences(before, far, drawn_alike=False).keys() == {"/forecasts/0/error"}


def test_a_forecast_of_other_random_numbers_fails() -> None:
    """Its Monte Carlo error is far more than rounding."""
    name = "planner: dense, trust none"
    with patch("fedprikl.estimation.simulated_releases.SEED", 8):
        found = round_trip(CASES[name]())
    forecasts = [path for path in leaves(RECORDED[name]) if path.endswith("/error")]
    assert set(forecasts) <= differences(RECORDED[name], found).keys()


def test_values_that_come_or_go_fail() -> None:
    before = {"a": {"b": 1.5, "c": []}, "d": True}
    assert differences(before, before) == {}
    assert differences(before, {"a": {"b": 1.5, "c": []}}).keys() == {"/d"}
    assert differences(before, before | {"e": None}).keys() == {"/e"}
    assert differences(before, before | {"d": 1}).keys() == {"/d"}
    assert differences(before, {"a": {"b": 1.5, "c": [0]}, "d": True}).keys() == {"/a/c", "/a/c/0"}
