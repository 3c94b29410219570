"""Weeks of the reference differ among themselves: a series takes as much for ordinary."""

from datetime import date, timedelta
from functools import cache

import numpy as np
import polars as pl
import pytest

from fedprikl import InvalidInputError, Reference
from fedprikl.checks import Floats
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.monitoring.sequential import judge_series
from fedprikl.reference import ClientCounts

PI = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
RECORDS, SD = 4000, 3.0


def week(rng: np.random.Generator) -> Floats:
    """P of an ordinary week."""
    tilted = PI * np.exp(rng.normal(0, 0.12, len(PI)))
    return np.asarray(tilted / tilted.sum())


def public(rng: np.random.Generator, weeks: int) -> pl.DataFrame:
    """Rows of so many weeks."""
    parts, first = [], date(2026, 1, 5)
    for number in range(weeks):
        days = [
            first + timedelta(days=7 * number + int(day)) for day in rng.integers(0, 7, RECORDS)
        ]
        parts.append(pl.DataFrame({"kind": rng.choice(5, RECORDS, p=week(rng)), "day": days}))
    return pl.concat(parts)


@cache
def alarms(*, timed: bool, step: float = 0.0) -> int:
    """Of 24 series of 26 weeks; with a `step`, every week is as far from Pi beyond the ordinary."""
    found = 0
    for seed in range(24):
        rng = np.random.default_rng([3, seed])
        frame = public(rng, 26).with_columns(kind=pl.col("kind").cast(pl.String))
        times = "day" if timed else None
        reference = Reference.fit(frame, columns=["kind"], times=times)
        order = [int(label.removeprefix("kind=")) for label in reference.whole.labels]
        view, periods = MonitoredView.of(reference), []
        for number in range(26):
            p = week(rng) + step * np.array([1, -1, 0, 0, 0])
            counts = rng.multinomial(RECORDS, p[order]) + rng.normal(0, SD, 5)
            seen = NoisyCounts.of([*counts, 0.0], [RECORDS], [CountNoise(sd=SD)])
            periods.append(PeriodCounts(number=number, records=RECORDS, clients=40, views=(seen,)))
        verdict = judge_series([view], periods, false_alarm=0.05, per_year=26, horizon=26)
        found += bool(verdict.alarms)
    return found


@pytest.mark.validation
def test_ordinary_weeks_raise_no_alarm() -> None:
    """At a rate of 5%, 8 of 24 series have a probability of 1e-5."""
    assert alarms(timed=True) <= 7


@pytest.mark.validation
def test_that_check_would_catch_a_reference_without_times() -> None:
    """Ordinary differences count as drift then."""
    assert alarms(timed=False) > 18


@pytest.mark.validation
def test_a_drift_beyond_the_ordinary_is_found() -> None:
    assert alarms(timed=True, step=0.15) > 18


def test_a_reference_keeps_its_periods() -> None:
    frame = pl.DataFrame(
        {
            "kind": ["a", "b", "a", "a", "b"],
            "day": ["2026-01-05", "2026-01-11", "2026-01-12", "2026-02-01", "2026-02-02"],
        }
    )
    reference = Reference.fit(frame, times="day")
    assert reference.whole.labels == ("kind=a", "kind=b")
    weeks = ClientCounts.read(reference.whole.periods).table(np.arange(2))
    assert weeks.tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]]
    months = ClientCounts.read(Reference.fit(frame, times="day", periods="month").whole.periods)
    assert months.table(np.arange(2)).tolist() == [[2, 1, 0], [1, 1, 0]]
    assert Reference.fit(frame, columns=["kind", "day"], times="day").views[1].columns == ("day",)
    assert reference.fingerprint != Reference.fit(frame, columns=["kind"]).fingerprint


def test_rows_without_a_time_and_other_periods_are_refused() -> None:
    frame = pl.DataFrame({"kind": ["a", "b"], "day": ["2026-01-05", "soon"]})
    with pytest.raises(InvalidInputError, match="1 rows of column 'day' have no time"):
        Reference.fit(frame, times="day")
    with pytest.raises(InvalidInputError, match="day, week, month or quarter"):
        Reference.fit(frame, times="day", periods="year")  # type: ignore[arg-type]
