"""Series: the periods of a calendar, and rounds that are about one of them."""

import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError, PolicyRefusal
from fedprikl.protocol import (
    Client,
    Invitation,
    Plan,
    Release,
    Series,
    Server,
    SignedPlan,
    run_round,
)
from fedprikl.protocol.client import check_period
from fedprikl.protocol.series import series_until
from tests.protocol.worlds import AT, World, budgeted

FAST = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
ZONES = ("UTC", "Europe/Amsterdam", "America/New_York", "Asia/Kolkata", "America/St_Johns")
EVERY = ("day", "week", "month", "quarter")
WORLD = World.make(clients=8)
CELLS = 12


def series_of(**changes: Any) -> Series:
    usual: dict[str, Any] = {"every": "week", "first": "2029-12-31", "periods": 8}
    return Series(**(usual | changes))


ALL_SERIES = st.builds(
    series_of,
    every=st.sampled_from(EVERY),
    first=st.dates(date(1990, 1, 1), date(2090, 1, 1)).map(
        lambda day: day.replace(day=day.day % 28 + 1).isoformat()
    ),
    periods=st.integers(1, 40),
    zone=st.sampled_from(ZONES),
)


@FAST
@given(ALL_SERIES, st.integers(-3, 3), st.integers(0, 41))
def test_periods_adjoin_and_the_last_that_is_over_is_found(
    series: Series, seconds: int, number: int
) -> None:
    periods = [series.period(n) for n in range(series.periods)]
    for before, after in pairwise(periods):
        assert before.end == after.start
    for period in periods:
        assert timedelta(hours=22) < period.end - period.start < timedelta(days=93)
    assert series.end == periods[-1].end
    ends = [period.end for period in periods]
    at = ends[min(number, len(ends) - 1)] + timedelta(seconds=seconds)
    assert series.last_over(at.isoformat()) == sum(end <= at for end in ends) - 1


def test_a_zone_that_moved_over_the_date_line_has_weeks_but_lacks_a_day() -> None:
    weeks = series_of(first="2011-12-26", zone="Pacific/Apia")
    assert weeks.period(0).end - weeks.period(0).start == timedelta(days=6)
    with pytest.raises(InvalidInputError, match=r"skipped in Pacific/Apia\. Use weeks"):
        series_of(every="day", first="2011-12-28", zone="Pacific/Apia")


@FAST
@given(st.sampled_from(EVERY), st.integers(0, 800), st.sampled_from(ZONES))
def test_a_series_ends_with_its_last_whole_period(every: Any, days: int, zone: str) -> None:
    now = datetime(2026, 11, 16, 9, tzinfo=UTC)
    last = date(2027, 1, 1) + timedelta(days=days)
    if last < {"month": date(2026, 12, 31), "quarter": date(2027, 3, 31)}.get(every, date.min):
        with pytest.raises(InvalidInputError, match="Give a later day"):
            series_until(every, last, now=now, zone=zone)
        return
    found = series_until(every, last, now=now, zone=zone)
    longer = replace(found, periods=found.periods + 1)
    limit = series_of(every="day", first=(last + timedelta(1)).isoformat(), zone=zone)
    assert found.end <= limit.period(0).start < longer.end
    assert found.period(0).start > now


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"every": "hour"}, "'every' of a series is one of day, week"),
        ({"first": "31.12.2029"}, "begins on a day like 2027-01-04"),
        ({"first": "20291231"}, "begins on a day like 2027-01-04"),
        ({"zone": "Mars/Olympus"}, "no time zone 'Mars/Olympus'"),
        ({"zone": "localtime"}, "no time zone 'localtime'"),
        ({"zone": "../../etc/passwd"}, "no time zone"),
        ({"zone": ""}, "no time zone"),
        ({"time_column": "a\nb"}, "'time_column' of a series is a printable text"),
        ({"periods": 0}, "periods must be a whole number"),
        ({"periods": True}, "periods must be a whole number"),
        ({"periods": 10_001}, "at most 10,000 periods"),
        ({"every": "quarter", "periods": 10_000, "first": "9000-01-01"}, "beyond the calendar"),
        ({"every": "month", "first": "2029-12-31"}, "one of the days 1 to 28"),
        ({"window": 9, "time_column": "at"}, "not longer than the series"),
    ],
)
def test_a_series_without_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        series_of(**changes)


def test_numbers_times_and_documents_of_no_series_are_refused() -> None:
    series = series_of()
    for number in (-1, 8, True, 1.0):
        with pytest.raises(InvalidInputError, match="the periods 0 to 7"):
            series.period(number)  # type: ignore[arg-type]
    for at in ("2030-01-01T00:00:00", "soon", None):
        with pytest.raises(InvalidInputError, match="with an offset"):
            series.last_over(at)  # type: ignore[arg-type]
    document = plan_of().to_dict()
    wrong: list[Any] = [
        to_plain(series) | {"more": 1},
        to_plain(series) | {"late": "next"},
        to_plain(series) | {"first": 20291231},
        to_plain(series) | {"every": "hour"},
        {"kind": "series", "every": "week"},
        "weekly",
        None,
        [],
    ]
    for when in wrong:
        with pytest.raises(
            InvalidInputError, match=r"field '\w+' (must be|is missing)|unknown parts"
        ):
            Plan.from_dict(document | {"when": when})


# Plans


def plan_of(of: Series | None = None, **changes: Any) -> Plan:
    chosen = of or series_of()
    settings = {"points": CELLS, "release": "counts", "series": chosen, "releases": chosen.window}
    return WORLD.plan(**(settings | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"release": "value"}, "released as noisy counts"),
        ({"batches": 2}, "one batch"),
        ({"releases": 2}, "needs releases=1"),
    ],
)
def test_a_plan_of_a_series_releases_counts_that_add_up(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        plan_of(**changes)


def test_a_plan_of_a_series_survives_as_a_document() -> None:
    plan = plan_of(series_of(window=3, time_column="at"))
    assert Plan.from_dict(plan.to_dict()) == plan
    assert plan.fingerprint != plan_of(series_of(window=3, time_column="when")).fingerprint


# Rounds


def clients_of(period: int | None) -> dict[str, Client]:
    return {
        name: Client(
            WORLD.held[i],
            WORLD.reference,
            policy=WORLD.policy,
            randomness=os.urandom,
            period=period,
        )
        for i, name in enumerate(WORLD.names())
    }


def invitations(plan: Plan, period: int) -> list[Invitation]:
    server = Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference)
    opened = server.open_round(
        WORLD.names(), rng=np.random.default_rng(1), randomness=os.urandom, period=period
    )
    cohort = opened.cohorts[0]
    return [Invitation.to_member(opened, cohort, index) for index in range(len(cohort.members))]


def released(tmp_path: Path, plan: Plan, period: int, previous: str = "") -> Release:
    with budgeted(tmp_path / "ledger.db") as ledger:
        return run_round(
            Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference),
            clients_of(period),
            key=WORLD.key,
            ledger=ledger,
            software="fedprikl test",
            at=AT,
            rng=np.random.default_rng(1),
            period=period,
            previous=previous,
        ).release


@pytest.mark.parametrize("period", [None, 8, 10_000])
def test_a_period_that_the_plan_does_not_have_is_refused(period: int | None) -> None:
    asked = replace(invitations(plan_of(), 0)[0], period=period)
    with pytest.raises(PolicyRefusal, match="that the plan does not have, or none where it has"):
        clients_of(period)["c0"].join(asked.to_bytes(), at=AT)


def test_a_period_of_a_plan_without_a_series_is_refused() -> None:
    plan = WORLD.plan()
    asked = replace(_invitation_without_series(plan), period=0)
    with pytest.raises(PolicyRefusal, match="that the plan does not have, or none where it has"):
        clients_of(0)["c0"].join(asked.to_bytes(), at=AT)
    server = Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference)
    with pytest.raises(InvalidInputError, match="no series, so it has no periods"):
        server.open_round(
            WORLD.names(), rng=np.random.default_rng(1), randomness=os.urandom, period=0
        )


def _invitation_without_series(plan: Plan) -> Invitation:
    server = Server(SignedPlan.sign(plan, WORLD.key), WORLD.reference)
    opened = server.open_round(WORLD.names(), rng=np.random.default_rng(1), randomness=os.urandom)
    return Invitation.to_member(opened, opened.cohorts[0], 0)


def test_counts_of_another_period_do_not_answer() -> None:
    asked = invitations(plan_of(), 1)[0]
    with pytest.raises(PolicyRefusal, match="of another period than the one that is asked"):
        clients_of(2)["c0"].join(asked.to_bytes(), at=AT)


def test_a_period_has_to_be_over_by_the_clients_own_clock() -> None:
    asked = invitations(plan_of(), 1)[0]  # over on 2030-01-14
    check_period(asked, at="2030-01-14T00:00:00+00:00")
    for early in ("2030-01-13T23:59:59+00:00", "2030-01-14T00:59:59+01:00"):
        with pytest.raises(PolicyRefusal, match="not over yet by this client's clock"):
            check_period(asked, at=early)
        with pytest.raises(PolicyRefusal, match="not over yet"):
            clients_of(1)["c0"].join(asked.to_bytes(), at=early)


def test_members_who_are_asked_different_periods_have_no_sum_together() -> None:
    """Else the others could be asked a period without records, and one client stand alone."""
    plan = plan_of()
    first = invitations(plan, 0)[0]
    with pytest.raises(PolicyRefusal, match="does not fit the plan"):
        clients_of(1)["c0"].join(replace(first, period=1).to_bytes(), at=AT)
    assert clients_of(0)["c0"].join(first.to_bytes(), at=AT)  # as it was asked it is answered


def test_a_release_of_a_series_says_where_it_stands_and_what_is_protected(tmp_path: Path) -> None:
    plan = plan_of()
    first = released(tmp_path, plan, 0)
    second = released(tmp_path, plan, 1, previous=first.fingerprint)
    for number, release in enumerate((first, second)):
        times = series_of().period(number).times
        assert release.period is not None
        assert (release.period.number, release.period.start, release.period.end) == (
            number,
            times.start,
            times.end,
        )
        assert release.verdict is None  # it belongs to the whole series
        assert release.is_about(plan)
        assert Release.from_bytes(release.to_bytes()) == release
        assert release.is_signed_by(WORLD.key.public)
    assert first.period is not None
    assert second.period is not None
    assert (first.period.previous, second.period.previous) == ("", first.fingerprint)
    words = str(first.privacy)
    assert "each record is counted in one release, so the same holds for all" in words
    assert "The period that a record falls into, if any, counts as public" in words
    with budgeted(tmp_path / "ledger.db") as ledger:
        assert ledger.account("testers").spent <= plan.budget.epsilon * (
            1 + 1e-9
        )  # not twice of it


def test_a_release_is_about_a_period_of_its_own_plan(tmp_path: Path) -> None:
    plan = plan_of()
    release = released(tmp_path, plan, 1)
    assert release.period is not None
    for wrong in (
        None,
        replace(release.period, number=2),
        replace(release.period, number=8),
        replace(release.period, start="2029-12-31T00:00:00+00:00"),
    ):
        assert not replace(release, period=wrong).is_about(plan)
    assert not release.is_about(plan_of(series_of(periods=9)))
    changed = replace(release, period=replace(release.period, previous=64 * "0"))
    assert not changed.is_signed_by(WORLD.key.public)


def test_a_window_says_how_often_a_record_is_counted(tmp_path: Path) -> None:
    series = series_of(window=3, time_column="at")
    plan = plan_of(series, total_epsilon=3.5, total_delta=1e-5)
    release = released(tmp_path, plan, 3)
    assert release.period is not None
    assert release.period.start == series.period(1).start.isoformat()
    assert release.is_about(plan)
    words = str(release.privacy)
    assert "up to 3 releases, which together give epsilon 3.5, delta 1e-05" in words


def test_the_words_of_one_release_have_no_series() -> None:
    with pytest.raises(InvalidInputError, match=r"for one release\. Plan a series"):
        _ = WORLD.plan().series
    release = WORLD.run(WORLD.plan()).release
    assert release.period is None
    assert "Over the whole series" not in str(release.privacy)
    assert not release.is_about(plan_of())


def test_a_plan_that_claims_less_than_its_releases_cost_is_stated_as_it_is(tmp_path: Path) -> None:
    """A record is in three releases, and the plan says that they cost as much as one."""
    plan = plan_of(series_of(window=3, time_column="at"))
    one = plan.budget.epsilon
    assert plan.budget.total[0] == one
    stated = released(tmp_path, plan, 2).privacy.series_epsilon
    assert stated is not None
    assert one < stated <= 3 * one * 1.001
