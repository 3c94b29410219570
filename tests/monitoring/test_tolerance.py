"""A series with a tolerance: deviations that do not matter raise no alarm, larger ones do."""

from functools import cache

import numpy as np
import pytest

from fedprikl import Reference
from fedprikl.checks import Floats
from fedprikl.estimation import CountNoise, NoisyCounts
from fedprikl.monitoring.monitored_views import MonitoredView, PeriodCounts
from fedprikl.monitoring.sequential import judge_series

PI = np.array([0.22, 0.18, 0.16, 0.14, 0.12, 0.1, 0.05, 0.03])
FLAG = np.array([0.99, 0.01])  # a column with a rare value
SERIES, WEEKS, SD = 60, 26, 3.0


def moved(kind: str, tv: float) -> Floats:
    """P with this total variation: in one cell, or spread over all of them."""
    shift = np.where(np.arange(8) % 2, -1.0, 1.0) * PI
    if kind == "one":
        shift = (np.arange(8) == 5).astype(float)
    shift = shift - PI * shift.sum()
    return np.asarray(PI + shift * (2 * tv / np.abs(shift).sum()))


@cache
def alarms(kind: str, tv: float, *, tolerance: float, records: int = 3000) -> int:
    """Of 60 series of half a year at a rate of 5%."""
    pi, p = (FLAG, FLAG + tv * np.array([-1.0, 1.0])) if kind == "flag" else (PI, moved(kind, tv))
    reference = Reference.from_probabilities(pi)
    view = MonitoredView(name="", points=reference.whole.points(), tolerance=tolerance)
    found = 0
    for seed in range(SERIES):
        rng, periods = np.random.default_rng([5, seed]), []
        for number in range(WEEKS):
            counts = rng.multinomial(records, p) + rng.normal(0, SD, len(p))
            seen = NoisyCounts.of([*counts, 0.0], [records], [CountNoise(sd=SD)])
            periods.append(PeriodCounts(number=number, records=records, clients=40, views=(seen,)))
        verdict = judge_series([view], periods, false_alarm=0.05, per_year=WEEKS, horizon=WEEKS)
        found += bool(verdict.alarms)
    return found


@pytest.mark.parametrize("kind", ["one", "all", "flag"])
def test_what_is_tolerated_raises_no_alarm(kind: str) -> None:
    """At a rate of 5%, 13 of 60 have a probability below 1e-5."""
    assert alarms(kind, 0.05, tolerance=0.05) <= 12


@pytest.mark.parametrize("kind", ["one", "all"])
def test_that_check_would_catch_a_series_without_a_tolerance(kind: str) -> None:
    assert alarms(kind, 0.05, tolerance=0.0) == SERIES


@pytest.mark.parametrize("kind", ["one", "all", "flag"])
def test_drift_that_matters_is_found(kind: str) -> None:
    assert alarms(kind, 0.15, tolerance=0.05) > 50


def test_a_deviation_in_one_cell_that_nobody_cares_about_keeps_the_rate() -> None:
    """2e-5 nats in a cell of 10%, with 50,000 records a week: a total variation of 0.0019."""
    tv = float(np.sqrt(2 * 2e-5 * 0.1 * 0.9))
    assert alarms("one", tv, tolerance=0.0, records=50_000) <= 12
