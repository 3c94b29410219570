"""The state of a series as metrics, in a text that Prometheus and OpenMetrics both read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fedprikl.documents import clean

if TYPE_CHECKING:  # a site, which writes when certificates end, loads no estimation
    from fedprikl.estimation import Answer
    from fedprikl.monitoring.alarms import FindableInSeries, JudgedView
    from fedprikl.monitoring.status import PeriodPoint, SeriesStatus

Labels = Mapping[str, str]
_SAMPLE = re.compile(r"^(\w+(?:\{.*\})?) (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$", re.ASCII)
PREFIX = "fedprikl_series_"
METRICS = {
    "info": "What is compared: always 1, the labels are fingerprints.",
    "periods": "Periods of the series that are over, by state.",
    "last_period": "Number of the last period with a release that was judged.",
    "last_success_timestamp_seconds": "When the last release was made.",
    "next_due_timestamp_seconds": "When the next period can be counted.",
    "records": "Records counted in the last release.",
    "clients": "Clients counted in the last release.",
    "value": "Divergence from the reference in the last release.",
    "value_low": "Lower end of the 95% interval of the value.",
    "value_high": "Upper end of the 95% interval of the value.",
    "value_no_drift": "What as many records give without drift.",
    "window_value": "Divergence over the sum of the last periods.",
    "window_value_low": "Lower end of its 95% interval.",
    "window_value_high": "Upper end of its 95% interval.",
    "statistic": "In standard deviations from no drift, in the last release.",
    "threshold": "Above it, a statistic raises an alarm.",
    "drift": "1 if something is above its threshold in the last release, else 0.",
    "can_tell": "1 if a drift of half the largest possible size would have been found, 0 if not: "
    "then no drift found means nothing.",
    "findable": "Least total variation of a drift that half of the time is found.",
    "alarms": "Alarms, by state.",
    "open_alarm_since_period": "Period in which the drift of the last open alarm began.",
    "false_alarm_per_year": "Largest rate of false alarms of the whole series.",
    "epsilon_budget": "What one record, or one client, may lose in all.",
    "epsilon_spent": "What the most exposed record, or client, has lost.",
    "epsilon_left": "What is left of the budget.",
    "site_asked": "Rounds in which a site was asked.",
    "site_answered": "Rounds in which a site answered.",
    "faults": "Faults of the history: above 0, do not rely on it.",
}
STATES = ("released", "missed", "due")
ALARMS = ("open", "acknowledged", "rebaselined", "ended")
END = "# EOF\n"


def sample_name(metric: str, labels: Labels) -> str:
    """A metric with its labels.

    >>> sample_name("records", {"population": "sites"})
    'records{population="sites"}'
    """
    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{metric}{{{shown}}}" if shown else metric


def samples_text(samples: Mapping[str, float], described: Mapping[str, tuple[str, str]]) -> str:
    """The samples in the order of `described`, which has the kind and the words of each metric.

    >>> print(samples_text({"rounds_total": 3}, {"rounds_total": ("counter", "Rounds.")}), end="")
    # HELP rounds_total Rounds.
    # TYPE rounds_total counter
    rounds_total 3
    """
    own: dict[str, list[str]] = {name: [] for name in described}
    for name, value in samples.items():
        own[name.partition("{")[0]].append(f"{name} {_number(value)}\n")
    return "".join(
        f"# HELP {name} {words}\n# TYPE {name} {kind}\n{''.join(own[name])}"
        for name, (kind, words) in described.items()
        if own[name]
    )


def read_samples(text: str) -> Iterator[tuple[str, float]]:
    """The samples of a text, each with its name and labels as they stand there."""
    for match in map(_SAMPLE.match, text.splitlines()):
        if match:
            yield match[1], float(match[2])


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return clean(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))


def distinct_labels(names: Iterable[str]) -> Iterator[str]:
    """Labels of columns: no two alike, and none like the whole's.

    A table may have a column without a name, or one that is called like a pair of others; its
    numbers would stand in place of theirs, and a drift would not be seen.

    >>> list(distinct_labels(["", "age", "age"]))
    ['(column 1)', 'age', 'age (column 3)']
    """
    taken = {sample_name("", {"": ""})}
    for place, name in enumerate(names, start=1):
        label = name
        while (shown := sample_name("", {"": label})) in taken:
            label = f"{label} (column {place})".strip()
        taken.add(shown)
        yield label


Sample = tuple[str, dict[str, str], float]


def metrics_text(statuses: "Sequence[SeriesStatus]") -> str:
    """The metrics of one series or of several, each sample labelled by its population.

    >>> print(metrics_text([]), end="")
    # EOF
    """
    found: dict[str, float] = {}
    for status in statuses:
        for name, labels, value in _samples(status):
            labelled = sample_name(PREFIX + name, {"population": status.population} | labels)
            found.setdefault(labelled, value)  # a sample stands once
    return samples_text(found, {PREFIX + n: ("gauge", says) for n, says in METRICS.items()}) + END


def _samples(status: "SeriesStatus") -> Iterator[Sample]:
    identity = ("every", "trust", "plan", "reference", "signer")
    yield "info", {name: getattr(status, name) for name in identity}, 1
    for state in STATES:
        yield "periods", {"state": state}, sum(p.state == state for p in status.points)
    times = {"last_success": status.last_success, "next_due": status.next_due}
    for name, at in times.items():
        if at:
            yield f"{name}_timestamp_seconds", {}, datetime.fromisoformat(at).timestamp()
    if status.judged:
        yield from _last(status.judged[-1])
    yield from _findable(status.findable)
    for window in status.windows:
        labels = {"column": window.name, "length": str(window.length)}
        yield from size_samples("window_value", labels, window.sizes)
    for state in ALARMS:
        yield "alarms", {"state": state}, sum(alarm.state == state for alarm in status.alarms)
    if status.open_alarms:
        yield "open_alarm_since_period", {}, status.open_alarms[-1].since
    yield "false_alarm_per_year", {}, status.false_alarm
    if status.budget is not None:
        yield "epsilon_budget", {}, status.budget.epsilon
        yield "epsilon_spent", {}, status.budget.spent
        yield "epsilon_left", {}, status.budget.left
    for site in status.sites:
        yield "site_asked", {"site": site.name}, site.asked
        yield "site_answered", {"site": site.name}, site.answered
    yield "faults", {}, len(status.faults)


def _findable(found: "FindableInSeries | None") -> Iterator[Sample]:
    if found is not None:
        yield "can_tell", {}, found.can_tell
        if found.findable is not None:
            yield "findable", {}, found.findable


def _last(point: "PeriodPoint") -> Iterator[Sample]:
    """The whole has an empty name of a column."""
    yield "last_period", {}, point.number
    yield "records", {}, point.records
    yield "clients", {}, point.clients
    limits = {"period": point.threshold, "cumulative": point.cumulative_threshold}
    for test, limit in limits.items():
        if limit is not None:
            yield "threshold", {"test": test}, limit
    yield "drift", {"column": ""}, bool(point.exceeds)
    if point.whole is not None:
        yield from _view("", point.whole)
    names = distinct_labels(column.name for column in point.columns)
    for name, column in zip(names, point.columns, strict=True):
        yield "drift", {"column": name}, column.exceeds
        yield from _view(name, column)


def _view(column: str, view: "JudgedView") -> Iterator[Sample]:
    yield "statistic", {"column": column, "test": "period"}, view.statistic
    if view.cumulative is not None:
        yield "statistic", {"column": column, "test": "cumulative"}, view.cumulative
    yield from size_samples("value", {"column": column}, view.sizes)


def size_samples(name: str, labels: Labels, sizes: "Iterable[Answer]") -> Iterator[Sample]:
    """The value of each answer, with its interval and what no drift gives, where they are known."""
    for size in sizes:
        own = {**labels, "divergence": size.divergence}
        yield name, own, size.value
        if size.interval is not None:
            yield f"{name}_low", own, size.interval[0]
            yield f"{name}_high", own, size.interval[1]
        if size.no_drift is not None and name == "value":
            yield "value_no_drift", own, size.no_drift
