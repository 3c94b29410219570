"""What is said of a statistic beside its threshold, at the limits."""

import math
from dataclasses import replace
from typing import Any

import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.estimation import JudgedStatistic, Verdict
from fedprikl.estimation.outcome import Tolerance, VerdictOutcome, joint_outcome


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
    [
        *[(1.0, "1"), (1.4, "1.4"), (2.0, "2"), (1.004, "1.004"), (0.99996, "0.99996"), (0.0, "0")],
        *[(1.0449, "1.04"), (0.5049, "0.5"), (99.6, "1e+02"), (100.4, "100"), (12345.6, "12,346")],
    ],
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


def test_what_is_tolerated_is_no_drift() -> None:
    """It differs all the same; and what does not differ has not drifted, however large it looks."""
    small, large = (
        Tolerance(tolerated=0.05, value=value, threshold=0.07) for value in (0.07, 0.08)
    )
    assert (small.beyond, large.beyond) == (False, True)
    for value, tolerance, differs, drifted in (
        (2.0, None, True, True),
        (2.0, small, True, False),
        (2.0, large, True, True),
        (0.5, None, False, False),
        (0.5, large, False, False),
    ):
        found = replace(verdict(value), tolerance=tolerance)
        assert (found.differs, found.drifted) == (differs, drifted)
        assert found.outcome == ("drift" if drifted else "none found")
    for wrong in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(InvalidInputError, match="between 0 and 1"):
            Tolerance(tolerated=wrong, value=0.1, threshold=0.2)


def test_a_verdict_rests_on_statistics_unless_it_cannot_tell() -> None:
    one, two = judged(2.0, 1.0), replace(judged(0.5, 1.0), name="kl")
    found = replace(verdict(2.0), statistics=(one, two))
    assert found.exceeding == ("tv",)
    assert (found.statistic("kl"), found.statistic("tv")) == (two, one)
    assert found.statistic("js") is None
    assert replace(found, statistics=(), can_tell=False).outcome == "cannot tell"
    for wrong in ((one, one), ()):
        with pytest.raises(InvalidInputError, match="each of its own name"):
            replace(found, statistics=wrong)


def test_of_several_verdicts_drift_comes_first() -> None:
    expected: dict[tuple[VerdictOutcome, ...], VerdictOutcome | None] = {
        ("cannot tell", "none found", "drift"): "drift",
        ("cannot tell", "none found"): "none found",
        ("cannot tell", "cannot tell"): "cannot tell",
        (): None,
    }
    assert {given: joint_outcome(given) for given in expected} == expected


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Drift found: tv (2 times its threshold), kl (2 times its threshold) and"),
        ({"design_effect": None}, "if records of one client are unrelated"),
        ({"design_effect": 1.5}, "without drift (design effect 1.5) exceed any threshold"),
        ({"design_effect": 1.0}, "populations without drift exceed any threshold at most 1% of"),
        ({"statistics": (judged(2.0, 1.0),)}, "Drift found: tv (2 times its threshold); "),
        ({"statistics": (judged(2.0, 1.0),)}, "exceed the threshold at most 1%"),
        ({"statistics": (judged(0.5, 1.0),)}, "No drift found: closest is tv (0.5 times its"),
        (
            {"tolerance": Tolerance(tolerated=0.05, value=0.09, threshold=0.07)},
            "Drift found, by more than a total variation of 0.05: tv",
        ),
        (
            {"tolerance": Tolerance(tolerated=0.05, value=0.06, threshold=0.07)},
            "Differs, by less than you said matters (a total variation of 0.05): tv",
        ),
        (
            {"statistics": (judged(0.5, 1.0),), "can_tell": False},
            "Cannot tell: with so few records and this epsilon no drift could be found",
        ),
        (
            {"statistics": (judged(0.5, 1.0),), "can_tell": False, "findable": 0.256},
            "only drifts above 0.26 (total variation) could be found",
        ),
    ],
)
def test_what_is_said(changes: dict[str, Any], words: str) -> None:
    statistics = tuple(replace(judged(2.0, 1.0), name=name) for name in ("tv", "kl", "js"))
    found = replace(verdict(2.0), statistics=statistics, design_effect=1.0)
    found = replace(found, **changes)
    assert words in str(found)
    assert found.to_dict()["statement"] == f"{found}."


def test_it_is_written_with_what_follows() -> None:
    written = verdict(2.0).to_dict()
    assert (written["verdict"], written["drifted"], written["differs"]) == ("drift", True, True)
    assert written["exceeding"] == ["tv"]
    assert verdict(0.5).to_dict()["drifted"] is False
    assert verdict(0.5, can_tell=False).to_dict()["drifted"] is None
