"""What an aggregator writes for Prometheus, read by a real parser."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fedprikl.deployment.round_metrics import METRICS, RoundMetrics, write_metrics
from fedprikl.monitoring.metrics import METRICS as OF_SERIES
from fedprikl.protocol import Release
from tests.deployment.fake_grid import read_counters
from tests.monitoring.statuses import HOSTILE
from tests.reporting.releases import release, two_of_six

SHORT = "fedprikl_release_"


def read(path: Path) -> dict[str, dict[tuple[str, ...], float]]:
    """Of each metric its samples, by the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for sample in family.samples:
            own = found.setdefault(sample.name, {})
            key = tuple(sample.labels.values())
            assert key not in own
            own[key] = sample.value
    assert set(found) <= set(METRICS)
    return found


def of_release(path: Path) -> dict[str, dict[tuple[str, ...], float]]:
    return {k.removeprefix(SHORT): own for k, own in read(path).items() if k.startswith(SHORT)}


def test_metrics_add_up_over_rounds_and_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.prom"
    current = RoundMetrics(
        release=release(two_of_six()),
        refused=2,
        lost={"input": 1, "echo": 0},
        seconds={"input": 3.25, "echo": 0.4},
        left={'a "name"\\': 0.5},
    )
    write_metrics(path, current)
    write_metrics(path, current)
    write_metrics(path, RoundMetrics())
    assert read_counters(path) == {
        'fedprikl_rounds_total{outcome="released"}': 2,
        'fedprikl_rounds_total{outcome="failed"}': 1,
        'fedprikl_clients_lost_total{step="input"}': 2,
        'fedprikl_clients_lost_total{step="echo"}': 0,
        "fedprikl_clients_refused_total": 4,
    }
    assert "step_seconds" not in path.read_text()  # of the last round
    write_metrics(path, current)
    text = path.read_text()
    assert '# TYPE fedprikl_step_seconds gauge\nfedprikl_step_seconds{step="input"} 3\n' in text
    assert 'fedprikl_step_seconds{step="echo"} 0\n' in text  # whole seconds
    assert 'fedprikl_epsilon_left{population="a \\"name\\"\\\\"} 0.5' in text
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == ["metrics.prom", "metrics.prom.lock"]  # rounds take turns


def check_says(found: Mapping[str, Mapping[tuple[str, ...], float]], told: Release) -> None:
    """Every number is one of the release; none is missing."""
    who = told.population
    at = int(datetime.fromisoformat(told.released_at).timestamp())  # whole seconds
    assert found["last_success_timestamp_seconds"] == {(who,): at}
    assert found["records"] == {(who,): told.records}
    assert found["clients"] == {(who,): sum(cohort.included for cohort in told.cohorts)}
    assert told.verdict is not None
    parts = {"": (told.drifted, told.verdict.statistics, told.answers)} | {
        each.name: (each.drifted, each.statistics, each.answers) for each in told.columns
    }
    assert found["drift"] == {(who, name): drifted for name, (drifted, _, _) in parts.items()}
    tests = {(who, n, w.name): w for n, (_, statistics, _) in parts.items() for w in statistics}
    assert found["statistic"] == {key: each.value for key, each in tests.items()}
    assert found["threshold"] == {key: each.threshold for key, each in tests.items()}
    sizes = {(who, n, a.divergence): a for n, (_, _, answers) in parts.items() for a in answers}
    assert found["value"] == {key: each.value for key, each in sizes.items()}
    limits = {key: each.interval for key, each in sizes.items() if each.interval is not None}
    assert found["value_low"] == {key: limit[0] for key, limit in limits.items()}
    assert found["value_high"] == {key: limit[1] for key, limit in limits.items()}


def test_the_last_release_is_there_and_outlives_a_round_that_fails(tmp_path: Path) -> None:
    path, first = tmp_path / "metrics.prom", release(two_of_six())
    write_metrics(path, RoundMetrics(release=first))
    check_says(of_release(path), first)
    write_metrics(path, RoundMetrics())
    check_says(of_release(path), first)
    second = replace(first, columns=first.columns[:1], released_at="2031-01-01T00:00:00.5+00:00")
    write_metrics(path, RoundMetrics(release=second))
    check_says(of_release(path), second)  # nothing of the first is left
    assert len(second.columns) < len(first.columns)


def test_populations_stand_beside_each_other(tmp_path: Path) -> None:
    path, one = tmp_path / "metrics.prom", release(two_of_six())
    names = ("a", 'a"', 'a",column="x', HOSTILE.replace("\n", ""))
    for name in (*names, "a"):
        write_metrics(path, RoundMetrics(release=_of(one, name)))
    assert len(of_release(path)["records"]) == len(names)


def _of(told: Release, population: str) -> Release:
    changed = replace(told)
    object.__setattr__(changed, "population", population)  # also names that no release may have
    return changed


def test_no_column_stands_in_place_of_the_whole_or_of_another(tmp_path: Path) -> None:
    """A table may have a column without a name, as pandas writes its index."""
    path, told = tmp_path / "metrics.prom", release(two_of_six())
    quiet = next(column for column in told.columns if not column.drifted)
    loud = next(column for column in told.columns if column.drifted)
    named = [(quiet, ("",)), (loud, ("a", "b")), (quiet, ("a and b",)), (quiet, ("c\0",))]
    columns = (
        *(replace(each, columns=own) for each, own in named),
        replace(loud, columns=("c\1",)),
    )
    write_metrics(path, RoundMetrics(release=replace(told, columns=columns)))
    assert told.drifted
    assert of_release(path)["drift"] == {
        (told.population, ""): 1,
        (told.population, "(column 1)"): 0,
        (told.population, "a and b"): 1,
        (told.population, "a and b (column 3)"): 0,
        (told.population, "c\ufffd"): 0,
        (told.population, "c\ufffd (column 5)"): 1,
    }


def test_rounds_that_end_together_are_all_counted(tmp_path: Path) -> None:
    """An aggregator hosts each round in a process of its own."""
    path, each, processes = tmp_path / "metrics.prom", 25, []
    for _ in range(3):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                for _ in range(each):
                    write_metrics(path, RoundMetrics(refused=1))
                code = 0
            finally:
                os._exit(code)
        processes.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in processes] == [0, 0, 0]
    assert read_counters(path)["fedprikl_clients_refused_total"] == 3 * each


def test_a_damaged_file_loses_no_round(tmp_path: Path) -> None:
    path = tmp_path / "metrics.prom"
    path.write_bytes(b"\xff\xfe fedprikl_rounds_total 1-2\nodd 3\nfedprikl_rounds_total nan\n")
    write_metrics(path, RoundMetrics())
    assert read_counters(path)['fedprikl_rounds_total{outcome="failed"}'] == 1


def test_the_same_words_mean_the_same_in_a_series() -> None:
    """Where they differ, they are of one release: how its tests are told, and its false alarms."""
    own = {n.removeprefix(SHORT): says for n, (_, says) in METRICS.items() if n.startswith(SHORT)}
    differ = {name for name, says in own.items() if OF_SERIES.get(name) != says}
    assert differ == {"last_period", "statistic", "threshold", "drift", "false_alarm"}
