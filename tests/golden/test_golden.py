"""Released numbers, thresholds, intervals, charges and plans are what they were when recorded."""

import json
import math
from typing import Any

import pytest

from tests.golden.cases import CASES
from tests.golden.compare import ELSEWHERE, VALUES, differences, leaves, round_trip, tolerance

pytestmark = pytest.mark.slow

RECORDED: dict[str, Any] = json.loads(VALUES.read_text())


def test_every_case_is_recorded() -> None:
    assert sorted(CASES) == sorted(RECORDED)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_same_to_the_last_digit(name: str) -> None:
    assert differences(RECORDED[name], round_trip(CASES[name]()), relative=tolerance()) == {}


def nudged(value: Any) -> Any:
    """Every float one step up, every other value changed."""
    if isinstance(value, dict):
        return {key: nudged(each) for key, each in value.items()}
    if isinstance(value, list):
        return [nudged(each) for each in value] or [0]
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    return value + 1 if isinstance(value, int) else f"{value}."


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_changed_last_digit_fails(name: str) -> None:
    """In every single place, also after it was written and read."""
    recorded, wrong = RECORDED[name], round_trip(nudged(RECORDED[name]))
    changed = {path for path, each in leaves(recorded).items() if each != []}
    assert changed <= differences(recorded, wrong).keys()
    assert any(isinstance(each, float) for each in leaves(recorded).values())


def test_on_another_processor_the_last_digits_may_differ() -> None:
    assert differences([1.0], [1.0 + 1e-12], relative=ELSEWHERE) == {}
    assert differences([1.0], [1.0 + 1e-8], relative=ELSEWHERE).keys() == {"/0"}


def test_values_that_come_or_go_fail() -> None:
    before = {"a": {"b": 1.5, "c": []}, "d": True}
    assert differences(before, before) == {}
    assert differences(before, {"a": {"b": 1.5, "c": []}}).keys() == {"/d"}
    assert differences(before, before | {"e": None}).keys() == {"/e"}
    assert differences(before, before | {"d": 1}).keys() == {"/d"}
    assert differences(before, {"a": {"b": 1.5, "c": [0]}, "d": True}).keys() == {"/a/c", "/a/c/0"}
