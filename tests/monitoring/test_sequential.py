"""Sequential alarms: the rate is kept, drift is found and named, and nothing is taken back."""

import numpy as np
import pytest

from fedprikl.errors import InvalidInputError
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.estimation.statistic import Grouping
from fedprikl.monitoring import null_series as nominal
from fedprikl.monitoring.alarms import SeriesVerdict, after_people
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.monitoring.null_series import WindowStatistic
from fedprikl.monitoring.sequential import baseline_of, judge_series
from fedprikl.reference import Reference, all_points
from tests.false_alarm import looks_as_frequent
from tests.monitoring.series_worlds import MOVED, PI, YEAR, drifting, view, weeks

pytestmark = pytest.mark.slow

RATE = YEAR["false_alarm"]
SERIES = 400


def judge(periods: list[PeriodCounts], *views: MonitoredView, **people: object) -> SeriesVerdict:
    return judge_series(views or (view(),), periods, **YEAR, **people)  # type: ignore[arg-type]


def alarms(shares: np.ndarray, seed: int, *views: MonitoredView) -> int:
    """In how many series with these P, one for each, an alarm is raised."""
    rng = np.random.default_rng(seed)
    found = (judge(weeks([[p]] * 12, rng), *views).alarms for p in shares)
    return sum(map(bool, found))


def cells(many: int) -> Grouping:
    return Grouping(np.arange(many), np.arange(many), "cells")


def test_the_statistic_is_a_standard_normal_variable_without_drift() -> None:
    """Mean, deviation and upper tail, of 20,000 windows with normal noise: 6 standard errors."""
    rng, draws = np.random.default_rng(3), 20_000
    p = rng.dirichlet(np.full(60, 2.0))
    counts = rng.multinomial(8000, p, draws) + rng.normal(0, 3, (draws, 60))
    law = WindowStatistic.of(cells(60), np.append(p, 0.0), np.zeros(61), records=8000, noise=9.0)
    z = law(counts)
    assert abs(z.mean()) < 6 / np.sqrt(draws) + 0.01
    assert abs(z.std() - 1) < 6 / np.sqrt(2 * draws) + 0.01
    assert looks_as_frequent(int(np.sum(z > 2.326)), draws, 0.01, 1e-6)


def test_pearson_is_the_statistic_without_noise() -> None:
    """Exactly: Q = sum (h - N Pi)^2 / N Pi, before anything lasts."""
    counts = np.array([310.0, 190.0, 150.0, 140.0, 110.0, 50.0, 30.0, 20.0])
    law = WindowStatistic.of(cells(8), np.append(PI, 0.0), np.zeros(9), records=1000, noise=0.0)
    tolerated = 1 + 2 * 2e-5 * 1000 * PI
    squares = np.sum((counts - 1000 * PI) ** 2 / (1000 * PI) / tolerated**2)
    assert np.sum((counts - law.mean) ** 2 * law.scale) == pytest.approx(squares)


def test_statistics_of_several_windows_are_those_of_each() -> None:
    """Standardised for the numbers of its own periods."""
    shares, lasting = np.append(PI, 0.0), np.append(PI**2, 0.0) * 1e-3
    both = WindowStatistic.of(
        cells(8), shares, lasting, records=np.array([500.0, 900.0]), noise=np.array([4.0, 9.0])
    )
    counts = np.array([500 * MOVED, 900 * MOVED])
    each = [
        WindowStatistic.of(cells(8), shares, lasting, records=n, noise=v)(row)
        for n, v, row in zip((500, 900), (4.0, 9.0), counts, strict=True)
    ]
    assert both(counts) == pytest.approx(np.array(each))


def test_groups_hold_every_cell_once() -> None:
    """By rarity and by place, of about equal size."""
    rng = np.random.default_rng(0)
    pi = rng.dirichlet(np.ones(50))
    alone, outside, rare, near = MonitoredView(name="", points=all_points(pi)).groupings
    assert alone.sums(np.append(pi, 9.0)).tolist() == pi.tolist()
    assert outside.sums(np.append(pi, 9.0)).tolist() == [9.0]
    assert sorted(rare.sums(np.ones(51))) == [12, 12, 13, 13]
    assert sorted(near.sums(np.ones(51))) == [6] * 6 + [7] * 2
    assert np.all(np.diff(rare.sums(np.append(pi, 0.0))) > 0)
    assert near.sums(np.arange(51.0))[0] == sum(range(6))
    assert len(MonitoredView(name="", points=all_points(PI)).groupings) == 2
    assert len(MonitoredView(name="", points=all_points(pi), spread=2.0).groupings) == 2


@pytest.mark.validation
def test_the_rate_of_a_year_is_kept_with_a_lasting_deviation() -> None:
    """At most 5% of 400 series raise an alarm, each with a deviation of 2e-5 nats.

    A rate of 5% is rejected once in 1,000 times.
    """
    rng = np.random.default_rng(11)
    direction = rng.standard_normal((SERIES, len(PI)))
    direction *= np.sqrt(4e-5 / (direction**2 @ PI))[:, None]
    shares = PI * (1 + direction)
    shares /= shares.sum(axis=1, keepdims=True)
    found = alarms(shares, 1)
    assert found <= 35  # P(more | 5%) < 0.1%
    assert found >= 2  # P(fewer | 2%) < 0.3%: the threshold is not far too high


def test_that_check_finds_a_deviation_that_is_not_tolerated() -> None:
    """The same with 100 times the deviation: 0.002 nats."""
    rng = np.random.default_rng(11)
    direction = rng.standard_normal((40, len(PI)))
    direction *= np.sqrt(4e-3 / (direction**2 @ PI))[:, None]
    shares = PI * (1 + direction)
    assert alarms(shares / shares.sum(axis=1, keepdims=True), 1) > 20


def test_the_error_of_a_counted_reference_is_no_drift() -> None:
    """A reference of 4,000 records, drawn anew for each of 12 series: at most 5% alarms.

    A rate of 5% is rejected twice in 10,000 times. Taken as exact, most references raise an alarm.
    """
    rng, calm, exact = np.random.default_rng(2), 0, 0
    for _ in range(12):
        counted = np.maximum(rng.multinomial(4000, PI), 1)
        periods = weeks([[PI]] * 12, rng)
        calm += bool(judge(periods, MonitoredView.of(Reference.from_counts(counted))).alarms)
        exact += bool(judge(periods, view(counted / counted.sum())).alarms)
    assert calm <= 4
    assert exact >= 8


def test_drift_is_found_at_once_and_dated() -> None:
    """0.02 nats from period 6 on: the alarm says since when."""
    found = judge(drifting(6, 3))
    (alarm,) = found.alarms
    assert (alarm.raised, alarm.since, alarm.test, alarm.columns) == (6, 6, "period", ())
    assert (alarm.since, alarm.columns) == (6, ())
    assert [period.exceeds for period in found.judged] == 6 * [False] + 3 * [True]


def test_a_small_drift_is_found_by_a_window() -> None:
    """0.0009 nats, too little for a period alone: the windows add up, and date it about right."""
    small = 0.7 * PI + 0.3 * MOVED
    periods = weeks([[PI]] * 6 + [[small]] * 26, np.random.default_rng(4))
    found = judge_series([view()], periods, false_alarm=0.01, per_year=52, horizon=32)
    alarm = found.alarms[0]
    assert alarm.test == "cumulative"
    assert 3 <= alarm.since <= 12
    assert alarm.since + 3 <= alarm.raised  # simulated thresholds differ between versions of NumPy


def test_the_column_that_drifted_is_named() -> None:
    """Of two columns and the whole."""
    rng = np.random.default_rng(5)
    views = view(), view(name="delay"), view(name="carrier")
    periods = weeks([[PI, PI, PI]] * 3 + [[PI, MOVED, PI]] * 2, rng)
    (alarm,) = judge(periods, *views).alarms
    assert alarm.columns == ("delay",)
    assert (alarm.since, alarm.columns[0]) == (3, "delay")


def test_records_in_no_cell_are_drift() -> None:
    """2% of new values: every cell shrinks by as little, but the rest tells."""
    periods = weeks([[PI]] * 3, np.random.default_rng(6), rest=0.02)
    assert judge(periods).alarms[0].raised == 0
    assert not judge(weeks([[PI]] * 3, np.random.default_rng(6))).alarms


def test_later_periods_change_nothing_that_was_said() -> None:
    """Also with missed periods and changing sizes."""
    rng = np.random.default_rng(7)
    periods = [
        each
        for start, size in ((0, 1500), (2, 3000), (7, 2000), (9, 4000))
        for each in weeks([[PI]] * 2, rng, records=size, start=start)
    ]
    whole = judge(periods)
    for seen in range(1, len(periods)):
        assert judge(periods[:seen]).judged == whole.judged[:seen]
    assert [period.period for period in whole.judged] == [0, 1, 2, 3, 7, 8, 9, 10]
    assert [period.views[0].cumulative is None for period in whole.judged] == [True] + 7 * [False]


def test_after_a_baseline_the_same_drift_is_usual() -> None:
    """And the way back is drift. Windows begin anew, and periods are marked."""
    periods = drifting(4, 8)
    people = {"rebaselined": [(4, 7)]}
    found = judge(periods, **people)
    assert [period.baseline for period in found.judged] == 8 * [None] + 4 * [(4, 7)]
    assert found.judged[8].views[0].window == 0
    (alarm,) = after_people(found.alarms, (), people["rebaselined"])
    assert alarm.state == "rebaselined"
    assert not any(period.exceeds for period in found.judged[8:])
    back = periods[:8] + weeks([[PI]] * 2, np.random.default_rng(8), start=8)
    assert [alarm.raised for alarm in judge(back, **people).alarms] == [4, 8]


def test_a_baseline_keeps_the_rate() -> None:
    """Of 10 series with a baseline of one period, at most 5% raise an alarm later.

    A rate of 5% is rejected once in 15,000 times. Taken as exact, most baselines raise an alarm.
    """
    rng, calm, exact = np.random.default_rng(9), 0, 0
    for _ in range(10):
        periods = weeks([[PI]] * 12, rng)
        calm += any(each.exceeds for each in judge(periods, rebaselined=[(0, 0)]).judged[1:])
        (known,) = baseline_of([view()], periods[:1])
        exact += bool(judge(periods[1:], view(known.pi / known.pi.sum())).alarms)
    assert calm <= 4
    assert exact >= 6


def test_periods_are_in_order_and_fit_the_views() -> None:
    """What does not is refused."""
    periods = drifting(2, 0)
    with pytest.raises(InvalidInputError, match="increase"):
        judge(periods[::-1])
    with pytest.raises(InvalidInputError, match="every view"):
        judge(periods, view(), view(name="b"))
    with pytest.raises(InvalidInputError, match="false_alarm"):
        judge_series([view()], periods, false_alarm=0.0, per_year=52, horizon=12)


@pytest.mark.parametrize("pi", [[1.0], [0.5, 0.5], [0.999999, 0.000001]])
@pytest.mark.parametrize("noise_sd", [0.0, 50.0])
def test_columns_that_say_little_are_judged(pi: list[float], noise_sd: float) -> None:
    """One category, few records, no noise or too much: finite statistics, and no alarm."""
    numbers = [*np.round(10 * np.array(pi)), 0.0]
    seen = NoisyCounts.of(numbers, [10], [CountNoise(sd=noise_sd)])
    periods = [PeriodCounts(number=n, records=10, clients=1, views=(seen,)) for n in range(3)]
    found = judge(periods, view(np.array(pi)))
    for each in found.judged:
        assert np.isfinite(each.views[0].statistic)
        assert np.isfinite([each.threshold, each.cumulative_threshold]).all()
    assert not found.alarms


def test_years_of_many_periods_have_a_higher_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is that of a year, so days share it among more periods than months."""
    monkeypatch.setattr(nominal, "MOST", 400)
    periods = drifting(1, 0)
    limits = [
        judge_series([view()], periods, false_alarm=0.05, per_year=n, horizon=n).judged[0]
        for n in (4, 12, 365)
    ]
    assert limits[0].threshold < limits[1].threshold < limits[2].threshold
    assert limits[0].cumulative_threshold < limits[2].cumulative_threshold
