"""One kind of chart, as SVG text: values over the periods of a series, with gaps and alarms.

Shapes are drawn in periods across and pixels down, and stretched to the width of the page; letters,
dots and lines keep their size. Every period is a link for those who point at it; for the keyboard,
the same links stand in the table of all periods.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedprikl.monitoring.status import AlarmFacts
from fedprikl.reporting.bar_chart import FONT
from fedprikl.reporting.series_frame import Frame, Scale, file_of
from fedprikl.reporting.texts import escaped

__all__ = ["Curve", "timeline_chart"]

TOP, PLOT, BOTTOM = 20, 130, 22  # pixels: flags of alarms, values, dates
DOTS = 60  # periods: up to so many, each has a dot
LETTER = 2.6  # percent of the width: one letter of a flag, where the page is 400 pixels wide
Values = Sequence[float | None]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One value per period; None where there is none."""

    values: Values
    kind: str = "now"  # or "reference"
    band: Sequence[tuple[float, float] | None] = ()  # an interval around each value
    spoken: frozenset[int] = frozenset()  # places above the threshold


def timeline_chart(
    frame: Frame,
    curve: Curve,
    *,
    title: str,
    says: str,
    tips: Sequence[str],
    threshold: Values = (),
    below: Values = (),
    alarms: Sequence[AlarmFacts] = (),
    acknowledged: Sequence[int] = (),
) -> str:
    """The chart. `title` and `says` are for those who do not see it, `tips` for those who point.

    `threshold` is dashed; `below` is what no drift gives; `acknowledged` are places of periods in
    which somebody acknowledged an alarm.
    """
    marks = [value for value in threshold if value is not None]
    ends = [end for pair in curve.band if pair is not None for end in pair]
    drawn = [value for value in (*curve.values, *below) if value is not None]
    scale = Scale.of([*drawn, *ends], max(marks, default=None))
    many, height = len(frame), TOP + PLOT
    parts = [
        *_grid(scale),
        f'<svg x="0" y="0" width="100%" height="{height}" viewBox="0 0 {many} {height}" '
        'preserveAspectRatio="none" overflow="hidden">',
        *_gaps(frame, height),
        *_drift(frame, alarms, height),
        *_band(curve.band, scale),
        _steps(below, scale, "c-below"),
        _steps(threshold, scale, "c-limit"),
        _path(curve.values, scale, f"c-{curve.kind}"),
        *_hits(frame, tips, height),
        "</svg>",
        *_dots(frame, curve, scale),
        *_flags(frame, alarms, acknowledged),
        *_dates(frame, height),
    ]
    return (
        f'<div class="plot"><svg role="img" width="100%" height="{height + BOTTOM}" '
        f'style="font: {FONT}" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escaped(title)}</title><desc>{escaped(says)}</desc>\n"
        + "\n".join(part for part in parts if part)
        + "\n</svg></div>"
    )


def _y(value: float, scale: Scale) -> float:
    return TOP + PLOT * (1 - scale.height(value))


def _grid(scale: Scale) -> Iterator[str]:
    for value in scale.ticks():
        y = _y(value, scale)
        yield (
            f'<line class="c-grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="c-tick" x="-6" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )


def _gaps(frame: Frame, height: int) -> Iterator[str]:
    for place, point in enumerate(frame.points):
        if point.state == "missed":
            yield f'<rect class="c-gap" x="{place}" y="{TOP}" width="1" height="{height - TOP}"/>'


def _drift(frame: Frame, alarms: Sequence[AlarmFacts], height: int) -> Iterator[str]:
    """The counted periods of a drift, as its alarm dates it: until it ended, or goes on."""
    for alarm in alarms:
        last = alarm.raised if alarm.until is None else alarm.until
        if alarm.state in ("open", "acknowledged"):
            last = frame.points[-1].number
        counted = [
            (point.state == "released" and alarm.since <= point.number <= last) or None
            for point in frame.points
        ]
        for run in _runs(counted):
            yield (
                f'<rect class="c-drift" x="{run[0][0]}" y="{TOP}" width="{len(run)}" '
                f'height="{height - TOP}"/>'
            )


def _band(band: Sequence[tuple[float, float] | None], scale: Scale) -> Iterator[str]:
    for run in _runs(band):
        if len(run) == 1:
            ((place, (low, high)),) = run
            top, down = _y(high, scale), _y(low, scale)
            yield f'<path class="c-band" d="M{place + 0.3:g} {top:.1f}h.4V{down:.1f}h-.4Z"/>'
            continue
        above = [f"{place + 0.5:g} {_y(pair[1], scale):.1f}" for place, pair in run]
        under = [f"{place + 0.5:g} {_y(pair[0], scale):.1f}" for place, pair in reversed(run)]
        yield f'<path class="c-band" d="M{"L".join([*above, *under])}Z"/>'


def _path(values: Values, scale: Scale, style: str) -> str:
    """A line that breaks where there is no value; a value between two gaps is a dot."""
    pieces = []
    for run in _runs(values):
        stops = [f"{place + 0.5:g} {_y(value, scale):.1f}" for place, value in run]
        pieces.append(f"M{'L'.join(stops)}{'h0' if len(run) == 1 else ''}")
    return f'<path class="{style}" d="{"".join(pieces)}"/>' if pieces else ""


def _steps(values: Values, scale: Scale, style: str) -> str:
    """What holds for whole periods: level over each of them."""
    pieces = []
    for run in _runs(values):
        begin, _ = run[0]
        levels = "".join(f"V{_y(value, scale):.1f}H{place + 1}" for place, value in run)
        pieces.append(f"M{begin} {_y(run[0][1], scale):.1f}{levels}")
    return f'<path class="{style}" d="{"".join(pieces)}"/>' if pieces else ""


def _runs(values: Sequence[Value | None]) -> Iterator[list[tuple[int, Value]]]:
    """Values that follow each other, with their places."""
    run: list[tuple[int, Value]] = []
    for place, value in enumerate(values):
        if value is not None:
            run.append((place, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _hits(frame: Frame, tips: Sequence[str], height: int) -> Iterator[str]:
    for place, (point, tip) in enumerate(zip(frame.points, tips, strict=False)):
        area = (
            f'<rect class="c-hit" x="{place}" y="0" width="1" height="{height}">'
            f"<title>{escaped(tip)}</title></rect>"
        )
        if point.state == "released":
            yield f'<a href="{file_of(point.number)}" tabindex="-1">{area}</a>'
        else:
            yield area


def _dots(frame: Frame, curve: Curve, scale: Scale) -> Iterator[str]:
    """Dots keep round; those above the threshold are larger and of another form and colour."""
    for place, value in enumerate(curve.values):
        if value is None or (len(frame) > DOTS and place not in curve.spoken):
            continue
        x, y = frame.middle(place), _y(value, scale)
        large = 4 if len(frame) <= DOTS else 2.5
        if place in curve.spoken:
            yield f'<circle class="c-above" cx="{x:.2f}%" cy="{y:.1f}" r="{large}"/>'
        else:
            yield f'<circle class="c-dot" cx="{x:.2f}%" cy="{y:.1f}" r="2.2"/>'


def _flags(
    frame: Frame, alarms: Sequence[AlarmFacts], acknowledged: Sequence[int]
) -> Iterator[str]:
    """Where alarms were raised, and where somebody acknowledged them."""
    raised = [(frame.middle(frame.place(a.raised)), a) for a in alarms]
    for x, _ in raised:
        yield (
            f'<line class="c-flag" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP - 4}" y2="{TOP + PLOT}"/>'
        )
    for place in sorted(set(acknowledged)):
        x = frame.middle(place)
        yield (
            f'<line class="c-known" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP - 4}" y2="{TOP + PLOT}"/>'
        )
    for x, words in _labels(raised):
        anchor, _, _ = _box(x, words)
        yield (
            f'<text class="c-alarm" x="{x:.2f}%" y="12" text-anchor="{anchor}">'
            f"{escaped(words)}</text>"
        )


def _labels(raised: Sequence[tuple[float, AlarmFacts]]) -> list[tuple[float, str]]:
    """The numbers of alarms; one label for those whose labels would touch on a phone."""
    groups: list[list[tuple[float, AlarmFacts]]] = []
    for each in sorted(raised, key=lambda pair: pair[0]):
        groups.append([each])
        while len(groups) > 1 and _touch(groups[-2], groups[-1]):
            last = groups.pop()
            groups[-1] += last
    return [_label(group) for group in groups]


def _label(group: Sequence[tuple[float, AlarmFacts]]) -> tuple[float, str]:
    (left, first), (right, last) = group[0], group[-1]
    words = str(first.number) if len(group) == 1 else f"{first.number}-{last.number}"
    return (left + right) / 2, words


def _touch(
    left: Sequence[tuple[float, AlarmFacts]], right: Sequence[tuple[float, AlarmFacts]]
) -> bool:
    return _box(*_label(right))[1] - _box(*_label(left))[2] < LETTER


def _box(x: float, words: str) -> tuple[str, float, float]:
    """Where a label stands: its anchor, and its ends in percent; none sticks out of the chart."""
    wide = LETTER * len(words)
    if x < wide / 2:
        return "start", x, x + wide
    if x > 100 - wide / 2:
        return "end", x - wide, x
    return "middle", x - wide / 2, x + wide / 2


def _dates(frame: Frame, height: int) -> Iterator[str]:
    for x, anchor, words in frame.ticks():
        yield (
            f'<text class="c-tick" x="{x:.2f}%" y="{height + 16}" text-anchor="{anchor}">'
            f"{escaped(words)}</text>"
        )
