"""Series to show: made up, but of the very types that a history ends with."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from fedprikl.estimation import Answer
from fedprikl.monitoring.alarms import Alarm, FindableInSeries, JudgedView
from fedprikl.monitoring.status import (
    BudgetFacts,
    PeriodPoint,
    SeriesStatus,
    SiteHealth,
    WindowFacts,
)

COLUMNS = ("departure delay", "carrier", "origin", "month", "distance", "engine")
HOSTILE = "<script>alert(1)</script><b>]]>&amp;\"'[red]x[/red]\x1b[31m\u202e"
LONG = "minutes_between_scheduled_and_actual_departure_as_reported_by_the_carrier_to_the_authority"
FIRST = datetime(2027, 1, 4, tzinfo=UTC)
THRESHOLD, CUMULATIVE = 4.1, 4.6
MISSED = "too few clients answered: 12 of at least 20"


def sizes_of(drift: float, rng: np.random.Generator) -> tuple[Answer, ...]:
    tv = abs(drift + rng.normal(0, 0.0012)) + 0.008
    kl = 3 * drift**2 + abs(rng.normal(0, 0.0008)) + 0.001
    return (
        Answer(
            divergence="kl",
            value=kl,
            interval=(max(0, kl - 0.002), kl + 0.002),
            no_drift=0.0012,
            target="D(Pi || 0.01 Pi + 0.99 P)",
            unit="nats",
            mechanism="normal noise",
        ),
        Answer(
            divergence="tv",
            value=tv,
            interval=(max(0, tv - 0.006), tv + 0.006),
            no_drift=0.0082,
            target="TV(Pi, P)",
            unit="",
            mechanism="normal noise",
        ),
    )


def column_point(name: str, drift: float, weeks: int, rng: np.random.Generator) -> JudgedView:
    alone = float(rng.normal() + 90 * drift)
    window = min(max(weeks, 1), 13)
    together = float(rng.normal() + 1.0 + 90 * drift * math.sqrt(window if drift else 0))
    return JudgedView(
        name=name,
        statistic=alone,
        cumulative=together,
        window=window,
        period_exceeds=alone > THRESHOLD,
        cumulative_exceeds=together > CUMULATIVE,
        shortest=1 if alone > THRESHOLD else window * (together > CUMULATIVE),
        sizes=sizes_of(drift, rng),
    )


def point(
    number: int,
    *,
    columns: tuple[str, ...],
    drift: dict[str, float],
    since: int,
    whole: bool = True,
    rng: np.random.Generator,
) -> PeriodPoint:
    start = FIRST + timedelta(weeks=number)
    weeks = number - since + 1
    found = tuple(
        column_point(name, drift.get(name, 0.0) if weeks > 0 else 0.0, weeks, rng)
        for name in columns
    )
    largest = max(drift.values(), default=0.0) if weeks > 0 else 0.0
    one = column_point("", 0.6 * largest, weeks, rng) if whole else None
    return PeriodPoint(
        number=number,
        start=start.isoformat(),
        end=(start + timedelta(weeks=1)).isoformat(),
        state="released",
        released_at=(start + timedelta(weeks=1, hours=3)).isoformat(),
        release=f"{number:064x}",
        records=int(rng.integers(7_500, 8_000)),
        clients=int(rng.integers(36, 41)),
        threshold=THRESHOLD,
        cumulative_threshold=CUMULATIVE,
        exceeds=any(column.exceeds for column in found) or bool(one and one.exceeds),
        whole=one,
        columns=found,
    )


def gap(point: PeriodPoint, reason: str = MISSED) -> PeriodPoint:
    return PeriodPoint(
        number=point.number, start=point.start, end=point.end, state="missed", reason=reason
    )


@cache
def series(
    periods: int = 37,
    columns: tuple[str, ...] = COLUMNS,
    *,
    since: int = 10**6,
    missed: tuple[int, ...] = (),
    whole: bool = True,
    state: str = "open",
) -> SeriesStatus:
    """So many weeks; two columns drift from the week `since` on."""
    rng = np.random.default_rng(7)
    drift = dict(zip(columns, (0.05, 0.025), strict=False))
    points = [
        point(n, columns=columns, drift=drift, since=since, whole=whole, rng=rng)
        for n in range(periods)
    ]
    points = [_calm(each) if each.number < since else each for each in points]
    points = [gap(each) if each.number in missed else each for each in points]
    end = FIRST + timedelta(weeks=periods)
    ahead = PeriodPoint(
        number=periods,
        start=end.isoformat(),
        end=(end + timedelta(weeks=1)).isoformat(),
        state="ahead",
    )
    alarms: tuple[Alarm, ...] = ()
    if since < periods:
        alarms = (
            Alarm(
                number=1,
                raised=since + 1,
                since=since,
                columns=tuple(drift),
                test="cumulative",
                state=state,  # type: ignore[arg-type]
                acknowledged_at="" if state == "open" else end.isoformat(),
                note="" if state == "open" else "New boarding software, known to the operators.",
            ),
        )
    return SeriesStatus(
        population="aircraft",
        every="week",
        trust="aggregator",
        plan=64 * "a",
        reference=64 * "b",
        signer=64 * "c",
        false_alarm=0.01,
        at=(end + timedelta(days=2)).isoformat(),
        points=(*points, ahead),
        windows=_windows(points, columns, whole=whole, rng=rng),
        alarms=alarms,
        findable=FindableInSeries(can_tell=True, findable=0.0091, ordinary=True),
        budget=BudgetFacts(epsilon=1.0, delta=1e-6, spent=0.92, left=0.08),
        sites=tuple(
            SiteHealth(
                name=f"airport {n:02d}",
                asked=periods,
                answered=periods - (n % 7 == 3) * (periods // 3),
                last=max(periods - 1 - (n % 7 == 3) * 4, 0),
            )
            for n in range(1, 41)
        ),
        privacy="Over the whole series, each record is counted in one week and hidden by noise: "
        "epsilon 1, delta 1e-06 for one record. The week a record falls into is public.",
        next_due=(end + timedelta(weeks=1)).isoformat(),
        last_success=(end + timedelta(hours=3)).isoformat(),
    )


def _calm(point: PeriodPoint) -> PeriodPoint:
    """No drift: nothing of a made-up period exceeds by chance."""

    def calm(view: JudgedView) -> JudgedView:
        alone, over = min(view.statistic, 3.5), min(view.cumulative or 0.0, 3.5)
        below = replace(view, period_exceeds=False, cumulative_exceeds=False, shortest=0)
        return replace(below, statistic=alone, cumulative=over)

    return replace(
        point,
        exceeds=False,
        whole=None if point.whole is None else calm(point.whole),
        columns=tuple(map(calm, point.columns)),
    )


def _windows(
    points: list[PeriodPoint],
    columns: tuple[str, ...],
    *,
    whole: bool,
    rng: np.random.Generator,
) -> tuple[WindowFacts, ...]:
    released = [each for each in points if each.state == "released"]
    return tuple(
        WindowFacts(
            name=name,
            length=length,
            first=released[-length].number,
            last=released[-1].number,
            records=sum(each.records for each in released[-length:]),
            sizes=sizes_of(0.03 if name in columns[:1] else 0.0, rng),
        )
        for name in (*([""] if whole else []), *columns)
        for length in (4, 13, 52)
        if length <= len(released)
    )


def empty() -> SeriesStatus:
    """Before the first release."""
    full = series(1)
    ahead = replace(full.points[0], state="ahead", released_at="", release="", records=0,
                    clients=0, threshold=None, cumulative_threshold=None, exceeds=None,
                    whole=None, columns=())  # fmt: skip
    return replace(
        full,
        at="2027-01-06T09:00:00+00:00",
        points=(ahead,),
        windows=(),
        budget=BudgetFacts(epsilon=1.0, delta=1e-6, spent=0.0, left=1.0),
        sites=(),
        next_due=ahead.end,
        last_success="",
    )


def broken() -> SeriesStatus:
    """Somebody changed a release of the history."""
    return replace(
        series(37, since=23, missed=(5, 9)),
        faults=(
            "The release of week 17 does not name the release of week 16 before it: something was "
            "changed, removed or put in between.",
            "The release of week 21 is not signed by the aggregator of the plan.",
        ),
    )


def unreadable() -> SeriesStatus:
    """A history of which nothing can be read."""
    full = series(37)
    return replace(
        full,
        points=(),
        windows=(),
        budget=None,
        sites=(),
        privacy="",
        next_due="",
        last_success="",
        faults=("The file is not a history, or it is damaged.",),
    )


def unjudged() -> SeriesStatus:
    """The process ended after the last release, before it was judged."""
    full = series(12, since=6)
    last = full.points[-2]
    bare = PeriodPoint(
        number=last.number,
        start=last.start,
        end=last.end,
        state="released",
        released_at=last.released_at,
        release=last.release,
    )
    return replace(full, points=(*full.points[:-2], bare, full.points[-1]))


def stopped() -> SeriesStatus:
    """39 weeks are over and 15 were counted; several alarms, near each other."""
    full = series(39, since=12, missed=(3,))
    due = [
        PeriodPoint(number=each.number, start=each.start, end=each.end, state="due")
        for each in full.points[15:-1]
    ]
    (last,) = full.alarms
    ended = [
        replace(last, number=n, raised=at + 1, since=at, until=at + 3, state="ended")
        for n, at in ((1, 1), (2, 8))
    ]
    alarms = (*ended, replace(last, number=3))
    return replace(full, points=(*full.points[:15], *due), alarms=alarms, next_due="")


def hostile() -> SeriesStatus:
    """Names and reasons that try to be more than text."""
    found = series(12, (HOSTILE, "漢字" * 40, LONG), since=6, missed=(3,))
    return replace(
        found,
        population=HOSTILE,
        points=(*found.points[:3], gap(found.points[3], HOSTILE), *found.points[4:]),
        alarms=(replace(found.alarms[0], note=HOSTILE, state="acknowledged"),),
        sites=(SiteHealth(name=HOSTILE, asked=3, answered=1, last=None),),
        privacy=HOSTILE,
        faults=(HOSTILE,),
    )


def blind() -> SeriesStatus:
    """So few records that not even large drifts could have been found."""
    found = FindableInSeries(can_tell=False, findable=0.624, untold=("", *COLUMNS))
    return replace(series(6), findable=found)


def tolerant() -> SeriesStatus:
    """Two columns differ, by less than matters."""
    found = series(12, since=6)

    def mild(view: JudgedView) -> JudgedView:
        differs = view.exceeds
        below = replace(view, period_exceeds=False, cumulative_exceeds=False, shortest=0)
        return replace(below, tolerated=differs)

    points = tuple(
        replace(
            each,
            exceeds=None if each.exceeds is None else False,
            whole=None if each.whole is None else mild(each.whole),
            columns=tuple(map(mild, each.columns)),
        )
        for each in found.points
    )
    return replace(found, points=points, alarms=(), tolerate=0.1)


SENSORS = tuple(f"sensor {n:02d}" for n in range(1, 21))
SCENES: dict[str, SeriesStatus] = {
    "no drift": series(37),
    "drift": series(37, since=23, missed=(5, 9, 10)),
    "acknowledged": series(45, since=23, state="acknowledged"),
    "columns only": series(16, since=8, whole=False),
    "whole only": series(16, (), since=20),
    "first week": series(1),
    "cannot tell": blind(),
    "tolerated": tolerant(),
    "three years": series(156, SENSORS, since=120, missed=(17, 18, 60)),
    "empty": empty(),
    "broken": broken(),
    "unreadable": unreadable(),
    "unjudged": unjudged(),
    "stopped": stopped(),
    "hostile": hostile(),
}
