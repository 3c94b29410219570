"""What is said of a statistic beside its threshold, at the limits."""

import math

import pytest

from fedprikl.estimation import JudgedStatistic, Verdict


def judged(value: float, threshold: float) -> JudgedStatistic:
    return JudgedStatistic(name="tv", value=value, threshold=threshold, unit="")


def verdict(value: float, *, can_tell: bool = True) -> Verdict:
    statistics = (judged(value, 1.0),)
    return Verdict(statistics=statistics, false_alarm=0.01, design_effect=None, can_tell=can_tell)


def test_a_threshold_that_is_just_reached_is_not_exceeded() -> None:
    assert not judged(0.5, 0.5).exceeds
    assert judged(math.nextafter(0.5, 1), 0.5).exceeds


@pytest.mark.parametrize(
    ("value", "threshold", "ratio"),
    [(0.3, 0.1, 3.0), (-0.3, 0.1, 0.0), (0.1, 0.0, math.inf), (0.0, 0.0, 0.0), (-2, -1, 0.0)],
)
def test_how_many_times_its_threshold_it_is(value: float, threshold: float, ratio: float) -> None:
    assert judged(value, threshold).ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("value", "words"),
    [(1.0, "1"), (1.4, "1.4"), (2.0, "2"), (1.004, "1.004"), (0.99996, "0.99996"), (0.0, "0")],
)
def test_so_many_digits_that_it_is_not_one(value: float, words: str) -> None:
    assert judged(value, 1.0).times == words


def test_the_last_digit_of_a_float_shows() -> None:
    above = judged(math.nextafter(1.0, 2), 1.0)
    assert above.exceeds
    assert float(above.times) > 1


def test_three_outcomes() -> None:
    assert verdict(2.0).outcome == verdict(2.0, can_tell=False).outcome == "drift"
    assert verdict(0.5).outcome == "none found"
    assert verdict(0.5, can_tell=False).outcome == "cannot tell"
