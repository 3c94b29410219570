"""The metrics of a series, read by a real parser of both formats."""

from dataclasses import replace
from datetime import datetime
from functools import cache

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from fedprikl.monitoring.metrics import METRICS, metrics_text
from fedprikl.monitoring.status import SeriesStatus
from tests.monitoring.statuses import HOSTILE, SCENES, series


@cache
def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All samples, the same in both formats."""
    both = []
    for parser in (prometheus, openmetrics):
        found = {}
        for family in parser(text):
            assert family.type == "gauge"
            assert family.documentation
            for sample in family.samples:
                key = sample.name.removeprefix("fedprikl_series_"), frozenset(sample.labels.items())
                assert key not in found
                found[key] = sample.value
        both.append(found)
    assert both[0] == both[1]
    return both[0]


def value(status: SeriesStatus, name: str, **labels: str) -> float | None:
    named = frozenset({"population": status.population, **labels}.items())
    return read(metrics_text([status])).get((name, named))


@pytest.mark.parametrize("name", SCENES)
def test_both_formats_read_every_scene(name: str) -> None:
    found = read(metrics_text([SCENES[name]]))
    assert {key for key, _ in found} <= set(METRICS)
    assert all(dict(labels)["population"] for _, labels in found)


def test_a_full_series_has_every_metric() -> None:
    assert {key for key, _ in read(metrics_text([SCENES["drift"]]))} == set(METRICS)


def test_what_they_say() -> None:
    status = SCENES["drift"]
    last = status.released[-1]
    column = last.columns[0]
    size = last.sizes[1]
    assert size.interval is not None
    assert value(status, "periods", state="released") == 34
    assert value(status, "periods", state="missed") == 3
    assert value(status, "periods", state="due") == 0
    assert value(status, "last_period") == 36
    assert value(status, "value", column="", divergence="tv") == size.value
    assert value(status, "value_low", column="", divergence="tv") == size.interval[0]
    assert value(status, "value_high", column="", divergence="tv") == size.interval[1]
    assert value(status, "value_no_drift", column="", divergence="tv") == size.no_drift
    assert value(status, "statistic", column=column.name, test="cumulative") == column.cumulative
    assert value(status, "threshold", test="period") == last.threshold
    assert value(status, "drift", column="") == 1
    assert value(status, "drift", column="engine") == 0
    assert value(status, "alarms", state="open") == 1
    assert value(status, "open_alarm_since_period") == 23
    assert value(status, "epsilon_left") == 0.08
    assert value(status, "window_value", column="", divergence="kl", length="13") is not None
    made = datetime.fromisoformat(status.last_success).timestamp()
    assert value(status, "last_success_timestamp_seconds") == made
    assert value(status, "site_answered", site="airport 03") == 25


def test_what_is_not_known_is_left_out() -> None:
    status = SCENES["empty"]
    names = {key for key, _ in read(metrics_text([status]))}
    assert "value" not in names
    assert "drift" not in names
    assert "last_success_timestamp_seconds" not in names
    assert value(status, "alarms", state="open") == 0
    assert value(replace(status, budget=None), "epsilon_left") is None


def test_a_release_that_is_not_judged_yet_leaves_the_last_that_is() -> None:
    status = SCENES["unjudged"]
    assert value(status, "last_period") == 10
    assert value(status, "drift", column="") == 1
    assert value(status, "periods", state="released") == 12


def test_faults_are_counted() -> None:
    assert value(SCENES["broken"], "faults") == 2


def test_several_series_stand_in_one_text() -> None:
    one, two = series(5), replace(series(37, since=23), population="phones")
    text = metrics_text([one, two])
    found = read(text)
    assert {dict(labels)["population"] for _, labels in found} == {"aircraft", "phones"}
    assert text.count("# TYPE fedprikl_series_info ") == 1


def test_hostile_names_stay_names() -> None:
    """A name cannot end a label, begin a line or add a sample."""
    nasty = HOSTILE + '\\"} 1\nfedprikl_series_faults{population="x"} 9\u2028'
    status = replace(series(5), population=nasty)
    found = read(metrics_text([status]))
    names = {dict(labels)["population"] for _, labels in found}
    assert len(names) == 1
    assert "\x1b" not in names.pop()


def test_a_column_without_a_name_is_not_the_whole() -> None:
    status = series(37, since=23)
    *before, last = status.judged
    first, *others = last.columns
    nameless = replace(last, columns=(replace(first, name=""), *others))
    changed = replace(status, points=(*before, nameless))
    assert value(changed, "drift", column="") == last.exceeds
    assert value(changed, "drift", column="(column 1)") == first.exceeds


def test_small_and_large_values_keep_all_digits() -> None:
    status = replace(series(5), false_alarm=1.23456789012345e-7)
    assert value(status, "false_alarm_per_year") == 1.23456789012345e-7
