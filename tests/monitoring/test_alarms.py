"""The state machine of alarms: tables of who exceeds when, and what holds for every table."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.monitoring.alarms import (
    Acknowledgement,
    Alarm,
    JudgedPeriod,
    JudgedView,
    after_people,
    follow_alarms,
)

NAMES = ("", "a", "b")


def period(number: int, exceeding: str, baseline: tuple[int, int] | None = None) -> JudgedPeriod:
    """`exceeding` is like "a", "ab", "w" for the whole; loudest first."""
    order = [letter.replace("w", "") for letter in exceeding]
    return JudgedPeriod(
        period=number,
        views=tuple(
            JudgedView(
                name=name,
                statistic=9.0 - order.index(name) if name in order else 0.0,
                cumulative=None,
                window=0,
                period_exceeds=name in order,
                cumulative_exceeds=False,
                shortest=int(name in order),
            )
            for name in NAMES
        ),
        threshold=4.0,
        cumulative_threshold=4.0,
        baseline=baseline,
    )


def trace(number: int, names: Sequence[str], after: int) -> tuple[int, tuple[str, ...]]:
    """A drift that began a period earlier."""
    assert after < number
    return number - 1, tuple(name for name in names if name)


def follow(
    said: Sequence[str],
    acknowledged: Sequence[Acknowledgement] = (),
    rebaselined: Sequence[tuple[int, int]] = (),
) -> tuple[Alarm, ...]:
    judged = [period(number, exceeding) for number, exceeding in enumerate(said)]
    return after_people(follow_alarms(judged, trace), acknowledged, rebaselined)


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        (["", "", ""], []),
        (["", "a", "a", "a"], [(1, ("a",))]),  # one alarm, not three
        (["a", "", "", "", "a"], [(0, ("a",))]),  # three quiet periods: the same alarm
        (["a", "", "", "", "", "a"], [(0, ("a",)), (5, ("a",))]),  # four: another one
        (["a", "ab"], [(0, ("a",)), (1, ("b",))]),  # a column that is not part of it
        (["ba", "a", "b"], [(0, ("b", "a"))]),  # the loudest first
        (["w", "w"], [(0, ())]),
        (["w", "wa"], [(0, ()), (1, ("a",))]),  # the whole exceeding first, now a column is named
        (["a", "w", "w", "w", "w", "w"], [(0, ("a",))]),  # the whole says nothing new
    ],
)
def test_alarms_are_raised_once(said: list[str], raised: list[tuple[int, tuple[str, ...]]]) -> None:
    """Numbers from 1, in order; an alarm that is followed by another of its column has ended."""
    alarms = follow(said)
    assert [(alarm.raised, alarm.columns) for alarm in alarms] == raised
    assert [alarm.number for alarm in alarms] == list(range(1, len(raised) + 1))
    assert all(alarm.since == alarm.raised - 1 for alarm in alarms)
    again = [any(set(a.columns) & set(b.columns) for b in alarms[a.number :]) for a in alarms]
    assert [alarm.state for alarm in alarms] == ["ended" if over else "open" for over in again]


@pytest.mark.parametrize(
    ("quiet", "acknowledged", "state"),
    [
        (0, True, "acknowledged"),
        (3, True, "acknowledged"),
        (4, True, "ended"),
        (3, False, "open"),
        (4, False, "ended"),
        (9, False, "ended"),
    ],
)
def test_an_alarm_ends_by_itself_after_four_quiet_periods(
    quiet: int, *, acknowledged: bool, state: str
) -> None:
    """Whether somebody has seen it or not; what was said about it is kept."""
    said = Acknowledgement(alarm=1, at="2027-01-31T12:00:00+00:00", note="known")
    notes = [said] if acknowledged else []
    (alarm,) = follow(["a", "a"] + quiet * [""], acknowledged=notes)
    assert alarm.state == state
    assert alarm.until == (1 if state == "ended" else None)
    assert alarm.note == ("known" if acknowledged else "")


def windows(*shortest: int) -> list[JudgedPeriod]:
    """Periods in which the shortest window of column a above its threshold has these lengths."""
    found = []
    for number, length in enumerate(shortest):
        judged = period(number, "")
        whole, a, b = judged.views
        a = replace(a, cumulative_exceeds=length > 1, period_exceeds=length == 1, shortest=length)
        found.append(replace(judged, views=(whole, a, b)))
    return found


@pytest.mark.parametrize(
    ("shortest", "alarms"),
    [
        ((1, 2, 4, 4, 8, 8, 8, 8, 16, 16), [("ended", 0, 0)]),  # one bad week, long in the windows
        ((0, 1, 1, 2, 4, 4, 8, 1, 1), [("ended", 1, 2), ("open", 7, None)]),  # it comes back
        ((0, 2, 2, 2, 2, 2, 2), [("open", 1, None)]),  # small, and lasts
        ((0, 0, 0, 4, 8, 4, 8, 8, 4), [("open", 3, None)]),  # smaller, and lasts
        ((1, 2, 4, 4, 8, 0, 0, 2, 2), [("ended", 0, 0), ("open", 7, None)]),  # comes back, small
    ],
)
def test_a_window_that_still_holds_an_old_drift_is_no_new_evidence(
    shortest: tuple[int, ...], alarms: list[tuple[str, int, int | None]]
) -> None:
    """State, period in which it was raised, and until when."""
    found = follow_alarms(windows(*shortest), trace)
    assert [(alarm.state, alarm.raised, alarm.until) for alarm in found] == alarms


def test_acknowledging_what_does_not_exist_changes_nothing() -> None:
    """A later baseline may have explained the alarm."""
    other = Acknowledgement(alarm=7, at="2027-01-31T12:00:00+00:00", note="?")
    assert follow(["a"], acknowledged=[other]) == follow(["a"])


def test_a_baseline_closes_what_was_before_it() -> None:
    """The same column may then raise another alarm at once."""
    judged = [period(0, "a"), period(1, "a"), period(2, "", (0, 1)), period(3, "a", (0, 1))]
    first, second = after_people(follow_alarms(judged, trace), (), [(0, 1)])
    assert (first.state, second.state, second.raised) == ("rebaselined", "open", 3)


def test_a_baseline_closes_an_alarm_before_any_later_period() -> None:
    """Accepted now: the next period is still to come."""
    (alarm,) = follow(["", "a"], rebaselined=[(0, 1)])
    assert alarm.state == "rebaselined"


@given(st.lists(st.sets(st.sampled_from("wab")).map("".join), max_size=30))
def test_every_column_above_its_threshold_belongs_to_an_alarm(said: list[str]) -> None:
    """And an alarm is raised only where something exceeds."""
    alarms = follow(said)
    assert bool(alarms) is any(said)
    for number, exceeding in enumerate(said):
        for name in set(exceeding) - {"w"}:
            assert any(alarm.raised <= number and name in alarm.columns for alarm in alarms)
    assert all(said[alarm.raised] for alarm in alarms)
    assert len(alarms) <= sum(map(bool, said))


@given(st.lists(st.sets(st.sampled_from("wab")).map("".join), max_size=20), st.integers(0, 20))
def test_later_periods_never_change_earlier_alarms(said: list[str], cut: int) -> None:
    """Alarms are not taken back, they only end."""
    before = follow(said[:cut])
    for then, now in zip(before, follow(said)[: len(before)], strict=True):
        assert now in (then, replace(then, state="ended", until=now.until))


@given(st.lists(st.sets(st.sampled_from("wab")).map("".join), max_size=30))
def test_a_column_has_one_open_alarm_at_most(said: list[str]) -> None:
    """After every period."""
    for cut in range(len(said)):
        columns = [name for alarm in follow(said[:cut]) if alarm.state == "open"
                   for name in alarm.columns]  # fmt: skip
        assert len(columns) == len(set(columns))
