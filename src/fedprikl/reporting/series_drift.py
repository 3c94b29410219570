"""Whether and since when there is drift: statistics over time, alarms, and periods without data."""

from collections.abc import Iterator
from datetime import datetime

from fedprikl.monitoring.alarms import QUIET
from fedprikl.monitoring.status import AlarmFacts, PeriodPoint, SeriesStatus
from fedprikl.monitoring.words import alarm_words, counted, day, period_name
from fedprikl.reporting.page import paragraphs
from fedprikl.reporting.series_frame import Frame
from fedprikl.reporting.series_timeline import Curve, timeline_chart
from fedprikl.reporting.texts import clean, escaped, listed

__all__ = ["drift_section", "largest"]

NAMED = 8  # missed periods of one reason that are named
STATES = {
    "open": "Open.",
    "rebaselined": "Ended by a new baseline.",
    "ended": "Ended by itself: no new evidence of it in {} {}s.",
}
TESTS = {"period": "one {} alone", "cumulative": "several {}s together"}


def largest(point: PeriodPoint, *, cumulative: bool) -> tuple[float, str] | None:
    """The largest statistic of a period, and whose it is; an empty name is the whole."""
    whole = point.cumulative if cumulative else point.statistic
    found = [(whole, "")] + [
        (column.cumulative if cumulative else column.statistic, column.name)
        for column in point.columns
    ]
    return max(((value, name) for value, name in found if value is not None), default=None)


def drift_section(status: SeriesStatus) -> list[str]:
    """Two charts, of each period alone and of periods together, with alarms and what to know."""
    frame = Frame.of(status)
    every = status.every
    what = "the whole or of a column" if status.columns else "the whole"
    return [
        "<h2 id=drift>Is there drift?</h2>",
        paragraphs(
            f"How far {status.population} is from the reference, in standard deviations from no "
            f"drift: the largest statistic of {what}. An alarm is raised above the dashed line. It "
            f"lies so high that the whole series raises a false alarm in at most "
            f"{100 * status.false_alarm:.3g}% of all years.",
            "note",
        ),
        _key(status, frame),
        f'<section class="card"><h3>Each {every} alone</h3>',
        _chart(status, frame, cumulative=False),
        "</section>",
        f'<section class="card"><h3>Several {every}s together</h3>',
        paragraphs(
            f"A small drift that stays shows in the sum of many {every}s: the largest of all "
            "windows that end here.",
            "note",
        ),
        _chart(status, frame, cumulative=True),
        "</section>",
        *_alarms(status),
        *_missed(status),
    ]


def _chart(status: SeriesStatus, frame: Frame, *, cumulative: bool) -> str:
    found = [largest(point, cumulative=cumulative) for point in frame.points]
    limits = [p.cumulative_threshold if cumulative else p.threshold for p in frame.points]
    spoken = frozenset(
        place
        for place, (pair, limit) in enumerate(zip(found, limits, strict=True))
        if pair is not None and limit is not None and pair[0] > limit
    )
    raised = {alarm.raised: f"; alarm {alarm.number} was raised" for alarm in status.alarms}
    tips = [
        _tip(frame, point, pair, limit) + raised.get(point.number, "")
        for point, pair, limit in zip(frame.points, found, limits, strict=True)
    ]
    which = f"several {status.every}s together" if cumulative else f"each {status.every} alone"
    last = next((tip for tip, pair in zip(tips[::-1], found[::-1], strict=True) if pair), "none")
    return timeline_chart(
        frame,
        Curve(values=[None if pair is None else pair[0] for pair in found], spoken=spoken),
        title=f"Statistic over time, {which}",
        says=f"{counted(len(spoken), status.every)} above the threshold. The last: {last}.",
        tips=tips,
        threshold=limits,
        alarms=status.alarms,
        acknowledged=_acknowledged(status, frame),
    )


def _tip(
    frame: Frame, point: PeriodPoint, pair: tuple[float, str] | None, limit: float | None
) -> str:
    name = frame.name(point)
    if point.state == "missed":
        return f"{name}: missed, {clean(point.reason) or 'no reason is known'}"
    if pair is None:
        return f"{name}: {'not counted yet' if point.state == 'due' else 'not judged'}"
    value, column = pair
    where = f" ({clean(column)})" if column else ""
    beside = "" if limit is None else f", threshold {limit:.2f}"
    return f"{name}: {value:.2f}{where}{beside}"


def _key(status: SeriesStatus, frame: Frame) -> str:
    items = {"now": "largest statistic", "limit": "threshold"}
    if any(point.speaks for point in frame.points):
        items["dot"] = "above the threshold"
    if status.alarms:
        items |= {"flag": "alarm raised, with its number", "drift": "drift, as the alarm dates it"}
    if any(alarm.acknowledged_at for alarm in status.alarms):
        items["known"] = "acknowledged"
    if any(point.state == "missed" for point in frame.points):
        items["gap"] = "missed"
    shown = "".join(f'<li class="{style}">{escaped(words)}</li>' for style, words in items.items())
    return f'<ul class="key">{shown}</ul>'


def _acknowledged(status: SeriesStatus, frame: Frame) -> list[int]:
    """The places of the periods in which alarms were acknowledged."""
    starts = [datetime.fromisoformat(point.start) for point in frame.points]
    at = [datetime.fromisoformat(a.acknowledged_at) for a in status.alarms if a.acknowledged_at]
    return [max(sum(start <= when for start in starts) - 1, 0) for when in at]


def _alarms(status: SeriesStatus) -> Iterator[str]:
    """All alarms, the last first."""
    if not status.alarms:
        return
    yield "<h3 id=alarms>Alarms</h3>"
    for alarm in reversed(status.alarms):
        raised = period_name(alarm.raised, status.every)
        words = f"{alarm_words(alarm, status)} {_more(alarm.columns)}".strip()
        how = f"Raised in {raised} by {TESTS[alarm.test].format(status.every)}."
        state = ' class="bad"' if alarm.state == "open" else ""
        yield (
            f'<section class="card"><p><strong>Alarm {alarm.number}: {escaped(words)}</strong></p>'
            f"<p>{escaped(how)} <span{state}>"
            f"{escaped(_state(alarm, status.every))}</span></p></section>"
        )


def _more(columns: tuple[str, ...]) -> str:
    return f"Also {listed([clean(name) for name in columns[1:]])}." if columns[1:] else ""


def _state(alarm: AlarmFacts, every: str) -> str:
    """How it stands, and what people said about it."""
    stands = "" if alarm.state == "acknowledged" else STATES[alarm.state].format(QUIET, every)
    if not alarm.acknowledged_at:
        return stands
    said = f": {alarm.note}" if alarm.note else "."
    return f"{stands} Acknowledged on {day(alarm.acknowledged_at)}{said}".strip()


def _missed(status: SeriesStatus) -> Iterator[str]:
    """Periods without a release, by reason."""
    reasons: dict[str, list[int]] = {}
    for point in status.points:
        if point.state == "missed":
            reasons.setdefault(point.reason or "no reason is known", []).append(point.number)
    if not reasons:
        return
    yield "<h3 id=missed>Missed</h3><ul>"
    for reason, numbers in reasons.items():
        which = listed([str(number) for number in numbers], NAMED)
        yield (
            f"<li>{escaped(counted(len(numbers), status.every))} ({escaped(which)}): "
            f"{escaped(reason)}</li>"
        )
    yield "</ul>"
