"""The state of a series as metrics: one text that is Prometheus' and OpenMetrics' at once.

Only gauges are used and the text ends with `# EOF`. So the same bytes are valid in both formats,
in a file for the node exporter's textfile collector as well as under `/metrics`. All of it is
public. What is not known is left out, never zero.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

from fedprikl.monitoring.exposition import sample_name, samples_text, told_apart
from fedprikl.monitoring.status import PeriodPoint, SeriesStatus, Size

__all__ = ["METRICS", "metrics_text"]

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
Sample = tuple[str, dict[str, str], float]


def metrics_text(statuses: Sequence[SeriesStatus]) -> str:
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


def _samples(status: SeriesStatus) -> Iterator[Sample]:
    yield "info", _identity(status), 1
    for state in STATES:
        yield "periods", {"state": state}, sum(p.state == state for p in status.points)
    yield from _times(status)
    if status.judged:
        yield from _last(status.judged[-1])
    for window in status.windows:
        labels = {"column": window.name, "length": str(window.length)}
        yield from _sizes("window_value", labels, window.sizes)
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


def _identity(status: SeriesStatus) -> dict[str, str]:
    return {
        "every": status.every,
        "trust": status.trust,
        "plan": status.plan,
        "reference": status.reference,
        "signer": status.signer,
    }


def _times(status: SeriesStatus) -> Iterator[Sample]:
    if status.last_success:
        yield "last_success_timestamp_seconds", {}, _seconds(status.last_success)
    if status.next_due:
        yield "next_due_timestamp_seconds", {}, _seconds(status.next_due)


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _last(point: PeriodPoint) -> Iterator[Sample]:
    """The whole has an empty name of a column."""
    yield "last_period", {}, point.number
    yield "records", {}, point.records
    yield "clients", {}, point.clients
    limits = {"period": point.threshold, "cumulative": point.cumulative_threshold}
    for test, limit in limits.items():
        if limit is not None:
            yield "threshold", {"test": test}, limit
    if point.speaks is not None:
        yield "drift", {"column": ""}, point.speaks
    yield from _statistics("", point.statistic, point.cumulative)
    yield from _sizes("value", {"column": ""}, point.sizes)
    names = told_apart(column.name for column in point.columns)
    for name, column in zip(names, point.columns, strict=True):
        yield "drift", {"column": name}, column.speaks
        yield from _statistics(name, column.statistic, column.cumulative)
        yield from _sizes("value", {"column": name}, column.sizes)


def _statistics(column: str, alone: float | None, together: float | None) -> Iterator[Sample]:
    for test, value in {"period": alone, "cumulative": together}.items():
        if value is not None:
            yield "statistic", {"column": column, "test": test}, value


def _sizes(name: str, labels: dict[str, str], sizes: Sequence[Size]) -> Iterator[Sample]:
    for size in sizes:
        own = labels | {"divergence": size.divergence}
        yield name, own, size.value
        if size.interval is not None:
            yield f"{name}_low", own, size.interval[0]
            yield f"{name}_high", own, size.interval[1]
        if size.no_drift is not None and name == "value":
            yield "value_no_drift", own, size.no_drift
