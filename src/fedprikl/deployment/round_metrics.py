"""Metrics of an aggregator, for the node exporter's textfile collector of Prometheus.

Counters go on from the file of the round before, and what was last released stays until there is a
newer release of the same population. The file is replaced at once, never half written, and rounds
that end together take turns. All of it is public: how rounds went, what is left of the budget, the
numbers of a release, and when certificates end, which relays and sites tell as well. Times are in
whole seconds, since to the millisecond they would tell how much was counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedprikl.monitoring.metrics import METRICS as METRICS_OF_SERIES
from fedprikl.monitoring.metrics import (
    Sample,
    distinct_labels,
    read_samples,
    sample_name,
    samples_text,
    size_samples,
)
from fedprikl.store import locked, replace_file

if TYPE_CHECKING:  # a site, which writes when certificates end, loads no estimation
    from fedprikl.estimation import JudgedStatistic
    from fedprikl.protocol import Answer, ColumnAnswer, Release

PREFIX = "fedprikl_"
RELEASE = f"{PREFIX}release_"  # as of a series, `fedprikl_series_`: the same words mean the same
_AS_OF_SERIES = (
    *("last_success_timestamp_seconds", "records", "clients"),
    *("value", "value_low", "value_high", "value_no_drift"),
    *("can_tell", "findable"),
)
METRICS = {
    f"{PREFIX}rounds_total": ("counter", "Rounds by how they ended."),
    f"{PREFIX}clients_lost_total": ("counter", "Clients that did not answer, by step."),
    f"{PREFIX}clients_refused_total": ("counter", "Clients that refused to take part."),
    f"{PREFIX}step_seconds": ("gauge", "Wall time of each step of the last round."),
    f"{PREFIX}epsilon_left": ("gauge", "What is left of a population's budget."),
    f"{PREFIX}certificate_days": ("gauge", "Days until a certificate ends, by its file."),
    f"{RELEASE}last_period": ("gauge", "Period of a series that the last release is about."),
    **{RELEASE + name: ("gauge", METRICS_OF_SERIES[name]) for name in _AS_OF_SERIES},
    f"{RELEASE}statistic": ("gauge", "What is compared with a threshold in the last release."),
    f"{RELEASE}threshold": ("gauge", "Above it, a statistic shows drift."),
    f"{RELEASE}drift": ("gauge", "1 if something is above its threshold, else 0."),
    f"{RELEASE}false_alarm": ("gauge", "Largest rate of false alarms of the verdict on the whole."),
}


@dataclass(slots=True)
class RoundMetrics:
    """What one round adds."""

    release: "Release | None" = None
    repeated: bool = False  # an earlier release was told again: there was no round
    refused: int = 0
    lost: dict[str, int] = field(default_factory=dict)  # step -> clients
    seconds: dict[str, float] = field(default_factory=dict)  # step -> wall time
    left: dict[str, float] = field(default_factory=dict)  # population -> epsilon


def write_metrics(path: Path, current: RoundMetrics) -> None:
    """Adds a round to the file."""
    _rewrite(path, lambda samples: _with_round(samples, current))


def write_certificate_days(path: Path, days: Mapping[str, float]) -> None:
    """Replaces the days until certificates end in the file; they are named by their files."""
    metric = f"{PREFIX}certificate_days"
    new = {sample_name(metric, {"file": file}): round(left, 1) for file, left in days.items()}
    _rewrite(path, lambda samples: _without(samples, metric) | new)


def _rewrite(path: Path, change: Callable[[dict[str, float]], dict[str, float]]) -> None:
    with locked(path):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        samples = {name: n for name, n in read_samples(text) if _metric(name) in METRICS}
        replace_file(path, samples_text(change(samples), METRICS).encode())


def _with_round(samples: dict[str, float], current: RoundMetrics) -> dict[str, float]:
    outcome = "failed" if current.release is None else "released"
    for name in ("released", "failed"):
        _add(samples, "rounds_total", {"outcome": name}, name == outcome)
    for step, lost in current.lost.items():
        _add(samples, "clients_lost_total", {"step": step}, lost)
    _add(samples, "clients_refused_total", {}, current.refused)
    samples = _without(samples, f"{PREFIX}step_seconds")
    for step, seconds in current.seconds.items():
        samples[sample_name(f"{PREFIX}step_seconds", {"step": step})] = round(seconds)
    for population, left in current.left.items():
        samples[sample_name(f"{PREFIX}epsilon_left", {"population": population})] = left
    if current.release is not None:
        own = {"population": current.release.population}
        samples = _without(samples, RELEASE, sample_name("", own).rstrip("}"))
        for name, labels, value in _of_release(current.release):
            samples[sample_name(RELEASE + name, own | labels)] = value
    return samples


def _metric(name: str) -> str:
    return name.partition("{")[0]


def _without(samples: dict[str, float], metric: str, labels: str = "") -> dict[str, float]:
    """All samples but those whose metric begins so, with labels that begin so."""
    return {
        name: value
        for name, value in samples.items()
        if not (name.startswith(metric) and name[len(_metric(name)) :].startswith(labels))
    }


def _add(samples: dict[str, float], name: str, labels: dict[str, str], amount: float) -> None:
    key = sample_name(PREFIX + name, labels)
    samples[key] = samples.get(key, 0.0) + amount


def _of_release(release: "Release") -> Iterator[Sample]:
    """What a release says; the whole has an empty name of a column. What is unknown is left out."""
    released = datetime.fromisoformat(release.released_at)
    yield "last_success_timestamp_seconds", {}, int(released.timestamp())
    if release.period is not None:
        yield "last_period", {}, release.period.number
    yield "records", {}, release.records
    yield "clients", {}, sum(cohort.included for cohort in release.cohorts)
    verdict = release.verdict
    yield from _found("", release)
    yield from _part("", release.answers, verdict.statistics if verdict else ())
    names = distinct_labels([column.name for column in release.columns])
    for name, column in zip(names, release.columns, strict=True):
        yield from _found(name, column)
        yield from _part(name, column.answers, column.statistics)
    if verdict is not None:
        yield "false_alarm", {}, verdict.false_alarm


def _found(column: str, judged: "Release | ColumnAnswer") -> Iterator[Sample]:
    """Whether drift was found; that is left out where it cannot be told."""
    if judged.drifted is not None:
        yield "drift", {"column": column}, judged.drifted
    if judged.outcome is not None:
        yield "can_tell", {"column": column}, judged.outcome != "cannot tell"
    if judged.findable is not None:
        yield "findable", {"column": column}, judged.findable


def _part(
    column: str, answers: "Iterable[Answer]", statistics: "Iterable[JudgedStatistic]"
) -> Iterator[Sample]:
    for statistic in statistics:
        own = {"column": column, "test": statistic.name}
        yield "statistic", own, statistic.value
        yield "threshold", own, statistic.threshold
    yield from size_samples("value", {"column": column}, answers)
