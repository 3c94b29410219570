"""The state of a series in one sentence."""

from dataclasses import replace

import pytest

from fedprikl.monitoring.status import alarm_words, headline
from tests.monitoring.statuses import broken, empty, series


def test_what_the_headline_says() -> None:
    assert headline(series(37)) == "No drift in 37 weeks."
    assert headline(series(1)) == "No drift in 1 week."
    assert (
        headline(series(37, since=23))
        == "Drift since week 23 (14 June 2027), mostly departure delay."
    )
    assert headline(empty()) == "No release yet."
    assert headline(broken()).startswith("This history has faults.")
    known = headline(series(45, since=23, state="acknowledged"))
    assert known == "Drift since week 23 (14 June 2027), mostly departure delay; acknowledged."


def test_only_the_whole_speaks() -> None:
    status = series(37, since=23)
    (alarm,) = status.alarms
    assert headline(replace(status, alarms=(replace(alarm, columns=()),))) == (
        "Drift since week 23 (14 June 2027)."
    )


def test_an_alarm_that_ended_says_until_when() -> None:
    status = series(37, since=23, state="ended")
    for until, words in [
        (26, "Drift from week 23 (14 June 2027) to week 26 (5 July 2027), mostly departure delay."),
        (23, "Drift in week 23 (14 June 2027), mostly departure delay."),
    ]:
        assert alarm_words(replace(status.alarms[0], until=until), status) == words


def test_several_alarms_are_counted() -> None:
    status = series(37, since=23)
    second = replace(status.alarms[0], number=2, since=30, raised=31)
    said = headline(replace(status, alarms=(*status.alarms, second)))
    assert said == "Drift since week 30 (2 August 2027), mostly departure delay. 2 alarms are open."


@pytest.mark.parametrize("state", ["ended", "rebaselined"])
def test_after_an_alarm_the_quiet_periods_are_counted(state: str) -> None:
    status = series(37, since=23, state=state)
    quiet = [
        replace(p, exceeds=False) if p.number >= 30 and p.exceeds else p for p in status.points
    ]
    assert headline(replace(status, points=tuple(quiet))) == "No drift in the last 7 weeks."
    assert headline(status) == "Week 36 is above a threshold. No alarm is open."


def test_without_verdicts_nothing_is_claimed() -> None:
    status = series(5)
    silent = tuple(replace(point, exceeds=None) for point in status.points)
    assert headline(replace(status, points=silent)) == "5 weeks released, none judged yet."


def test_missed_periods_are_not_quiet_ones() -> None:
    assert headline(series(37, missed=(5, 9))) == "No drift in 35 weeks."
