"""What a run makes public: lines for people, and metrics for Prometheus.

A run's log is stored by the SuperLink: only public words go there, and the noised release. Some of
the words are others' (why a client refused), and the log passes through the relay: on neither side
may a character reach a terminal that does more than show itself. `fedprikl federate` finds the
lines of a run in the stream (`parse_line`).

The metrics of an aggregator are for the node exporter's textfile collector. Counters go on from the
file of the round before, and what was last released stays until there is a newer release of the
same population. The file is replaced at once, never half written, and rounds that end together take
turns. All of it is public: how rounds went, what is left of the budget, and the numbers of a
release. Times are in whole seconds, since to the millisecond they would tell how much was counted.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fedprikl.estimation import JudgedStatistic
from fedprikl.monitoring.metrics import METRICS as METRICS_OF_SERIES
from fedprikl.monitoring.metrics import (
    Sample,
    distinct_labels,
    read_samples,
    sample_name,
    samples_text,
    size_samples,
)
from fedprikl.protocol import Answer, ColumnAnswer, IdentityCheck, Release, Round, StepCount
from fedprikl.store import locked, replace_file

MARK = "[fedprikl]"
LOST, ABSENT, NOT_COUNTED, NOBODY = "; lost: ", "; absent: ", "not counted: ", "nobody"
DIGITS, MOST_NAMES = 12, 20  # of a key that are shown, and how many clients a line names
_RELEASE, _FAILURE = "release: ", "no release: "
_ESCAPES = re.compile("(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]")  # colours, the cursor


def printable(text: str) -> str:
    """The text without escape sequences; any other character that does not show is a space."""
    return "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", text))


def identity_line(check: IdentityCheck, absent: Iterable[str], seconds: float) -> str:
    """Who is there, and who of the roster is not."""
    words = (
        f"{MARK} roster: {len(check.identities)} SuperNodes are known, {check.left_out} left out, "
        f"{seconds:.0f} s"
    )
    return words + _some(ABSENT, sorted(map(short_name, absent)))


def cohorts_line(current: Round) -> str:
    """Who is asked."""
    sizes = [len(cohort.members) for cohort in current.cohorts]
    what = "cohort" if len(sizes) == 1 else "cohorts"
    return (
        f"{MARK} round {current.round_id}: {sum(sizes)} clients in {len(sizes)} {what} of "
        f"{min(sizes)} to {max(sizes)}"
    )


def step_line(count: StepCount, seconds: float, names: Mapping[str, str]) -> str:
    """How a step went, and who did not answer, which the relay sees anyway.

    Not who refused: a refusal may depend on records. `names` says who a node is: a key of the
    roster, or the node's own number; of a key the first digits.
    """
    words = (
        f"{MARK} {count.step}: {count.answered} of {count.asked} answered, {count.refused} "
        f"refused, {count.lost} lost, {seconds:.0f} s"
    )
    return words + _some(LOST, [short_name(names.get(node, node)) for node in count.silent])


def _some(mark: str, names: list[str]) -> str:
    """The first names after a mark; empty if there are none."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{mark}{', '.join(names[:MOST_NAMES])}{more}" if names else ""


def not_counted_line(keys: Iterable[str]) -> str:
    """Who of a roster is not in the sums, all of them: absent, refused and lost, not told apart.

    The relay knows it anyway, from whom the aggregator goes on asking.
    """
    names = sorted(map(short_name, keys))
    return f"{MARK} {NOT_COUNTED}{', '.join(names) or NOBODY}"


def not_counted(lines: Iterable[str]) -> frozenset[str] | None:
    """The first digits of the keys that a run named so; None if it said nothing of the kind.

    >>> sorted(not_counted(["[fedprikl] not counted: 0123456789ab, 23456789abcd"]))
    ['0123456789ab', '23456789abcd']
    """
    start = f"{MARK} {NOT_COUNTED}"
    said = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return frozenset(re.findall(f"[0-9a-f]{{{DIGITS}}}", said[-1])) if said else None


def short_name(who: str) -> str:
    """The first digits of a key, enough to find it in a roster; the number of a node as it is."""
    return who[:DIGITS] if len(who) == 64 else f"node {who}"


def named(line: str, names: Mapping[str, str]) -> str:
    """A line of progress with names in place of the first digits of keys.

    >>> named("input: 7 of 8 answered; lost: 0123456789ab, node 7", {"0123456789ab": "north"})
    'input: 7 of 8 answered; lost: north, node 7'
    """
    words, *marked = re.split(f"({LOST}|{ABSENT}|{NOT_COUNTED})", line, maxsplit=1)
    key = f"[0-9a-f]{{{DIGITS}}}"
    return words + "".join(re.sub(key, lambda k: names.get(k[0], k[0]), text) for text in marked)


def waiting_line(found: int, needed: int, seconds: float) -> str:
    """Whom a run waits for."""
    return f"{MARK} {found} of {needed} sites are connected; waiting {seconds:.0f} s for the others"


def release_line(release: Release) -> str:
    """The release itself, on one line."""
    return f"{MARK} {_RELEASE}{release.to_bytes().decode()}"


def failure_line(reason: str) -> str:
    """Why there is none."""
    return f"{MARK} {_FAILURE}{printable(reason)}"


def parse_line(line: str) -> tuple[str, str] | None:
    """("release" | "failure" | "progress", words) of a line of a run's log; None for Flower's."""
    clean = printable(line).strip()
    if not clean.startswith(f"{MARK} "):
        return None
    words = clean.removeprefix(f"{MARK} ")
    for kind, start in (("release", _RELEASE), ("failure", _FAILURE)):
        if words.startswith(start):
            return kind, words.removeprefix(start)
    return "progress", words


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

    release: Release | None = None
    repeated: bool = False  # an earlier release was told again: there was no round
    refused: int = 0
    lost: dict[str, int] = field(default_factory=dict)  # step -> clients
    seconds: dict[str, float] = field(default_factory=dict)  # step -> wall time
    left: dict[str, float] = field(default_factory=dict)  # population -> epsilon


def write_metrics(path: Path, current: RoundMetrics) -> None:
    """Adds a round to the file."""
    with locked(path):
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        samples = {name: n for name, n in read_samples(text) if _metric(name) in METRICS}
        replace_file(path, samples_text(_with_round(samples, current), METRICS).encode())


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


def _of_release(release: Release) -> Iterator[Sample]:
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


def _found(column: str, judged: Release | ColumnAnswer) -> Iterator[Sample]:
    """Whether drift was found; that is left out where it cannot be told."""
    if judged.drifted is not None:
        yield "drift", {"column": column}, judged.drifted
    if judged.outcome is not None:
        yield "can_tell", {"column": column}, judged.outcome != "cannot tell"
    if judged.findable is not None:
        yield "findable", {"column": column}, judged.findable


def _part(
    column: str, answers: Iterable[Answer], statistics: Iterable[JudgedStatistic]
) -> Iterator[Sample]:
    for statistic in statistics:
        own = {"column": column, "test": statistic.name}
        yield "statistic", own, statistic.value
        yield "threshold", own, statistic.threshold
    yield from size_samples("value", {"column": column}, answers)
