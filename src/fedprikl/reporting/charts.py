"""Charts as SVG: rows of bars, values over the periods of a series, a heat map of its columns.

A chart is as wide as its page: places across it are percentages, or periods in a part that is
stretched, and heights are pixels. So letters stay as large as they are. Bars bring their colours,
which can be seen on light and on dark ground: a notebook has no style sheet.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Literal, TypeVar

from fedprikl.documents import clean
from fedprikl.monitoring.alarms import Alarm
from fedprikl.monitoring.status import (
    PeriodPoint,
    SeriesStatus,
    counted,
    day,
    period_name,
)
from fedprikl.reporting.facts import letters_wide, percent, shortened, wrapped
from fedprikl.reporting.html import Html, joined, tag

FONT = "font: 13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
XMLNS = "http://www.w3.org/2000/svg"
INK = "currentColor"
TINY, LARGEST = 1e-9, 1e300  # a chart of nothing but zeros has a scale too
BENT = 6.0  # thresholds: beyond, a linear scale would press the threshold to the ground


@dataclass(frozen=True, slots=True)
class Scale:
    """Values along an axis: linear, or by square roots or logarithms.

    >>> Scale(0.0, 10.0).place(2.5), Scale(0.0, 10.0).ticks(5)
    (0.25, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    >>> Scale(1.0, 100.0, "log").place(10.0)
    0.5
    """

    low: float
    high: float
    bend: Literal["linear", "roots", "log"] = "linear"

    @classmethod
    def of(cls, values: Sequence[float], threshold: float | None = None) -> "Scale":
        """The scale that shows zero, all values and the threshold, well above the ground."""
        known = [*values, *([] if threshold is None else [threshold])]
        finite = [value for value in known if math.isfinite(value)]
        high, low = max([*finite, 0.0]), min([*finite, 0.0])
        high = high * 1.08 if high > 0 else 1.0
        bent = threshold is not None and 0 < BENT * threshold < high
        return cls(max(low, -high), high, "roots" if bent else "linear")

    def place(self, value: float) -> float:
        """From 0 at the low end to 1 at the high one."""
        inside = min(max(value, self.low), self.high)
        low, high = self._bent(self.low), self._bent(self.high)
        return (self._bent(inside) - low) / (high - low)

    def _bent(self, value: float) -> float:
        if self.bend == "log":
            return math.log10(value)
        return math.copysign(math.sqrt(abs(value)), value) if self.bend == "roots" else value

    def ticks(self, most: int) -> list[float]:
        """Round values that cut the axis into at most so many steps."""
        if self.bend == "log":
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            return [10.0**n for n in range(first, last + 1)]
        if self.bend == "roots":
            return [0.0, *(_round(self.high / part) for part in (40, 10, 2.5))]
        step = _round((self.high - self.low) / most)
        first = math.ceil(self.low / step)
        multiples = (n * step for n in range(first, first + most + 1))
        return [value for value in multiples if value <= self.high]


def _round(value: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is no smaller."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next((n * power for n in (1, 2, 5) if n * power >= value), 10 * power)


def _percent(place: float) -> str:
    return f"{place:.2f}%"


def _line(x1: float, y1: float, x2: float, y2: float, **look: object) -> Html:
    """Across in percent, down in pixels."""
    return tag("line", x1=_percent(x1), y1=y1, x2=_percent(x2), y2=y2, **look)


def _words(x: float, y: float, text: str, anchor: str = "start", **look: object) -> Html:
    return tag("text", text, x=_percent(x), y=y, text_anchor=anchor, **look)


def _drawing(height: int, title: str, says: str, *parts: Html) -> Html:
    """The whole picture. `title` and `says` are for those who do not see it."""
    inner = joined(tag("title", title), tag("desc", says), *parts)
    return tag("svg", inner, role="img", width="100%", height=height, style=FONT, xmlns=XMLNS)


def _stretched(across: int, down: int, *parts: Html, **look: object) -> Html:
    """A part that is as wide as the whole, however many units across it has."""
    shape = {"viewBox": f"0 0 {across} {down}", "preserveAspectRatio": "none"}
    return tag("svg", *parts, width="100%", **shape, **look)


Kind = Literal["now", "drifted", "untold", "reference", "example"]
FILLS = {
    "now": "var(--now, #3f83c9)",
    "drifted": "var(--drifted, #cc6f1f)",
    "untold": "var(--untold, #8a5fb0)",
    "reference": "var(--reference, #87909c)",
    "example": "none",
}
LINES = "var(--lines, #87909c)"
PLOT = 64.0  # percent of the width for bars; the rest is for numbers
LETTERS = 40  # average ones, of a label on one line where a page is 400 pixels wide
BREAK = (5.0, 3.5)  # percent before the end of a bar where its gap begins and ends
ALONG = 5  # steps between the numbers below bars, at most
LINE, BAR, BETWEEN = 18, 16, 12  # pixels: a line of a label, a bar with its number, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar, with the number beside it."""

    value: float
    says: str
    kind: Kind = "now"
    interval: tuple[float, float] | None = None  # drawn as a whisker
    mark: float | None = None  # drawn as a dashed line across: a threshold
    chance: float | None = None  # drawn as a solid one: what no drift gives
    tolerated: float | None = None  # drawn as a dotted one
    thin: bool = False
    broken: bool = False  # drawn with a gap: it is longer than there is room for

    @property
    def lines(self) -> list[tuple[float, str]]:
        """Places of lines across the bar, each with its dashes."""
        known = ((self.mark, "4 2"), (self.chance, ""), (self.tolerated, "2 2"))
        return [(place, dashes) for place, dashes in known if place is not None and place > 0]


def bar_chart(
    rows: Sequence[tuple[str, Sequence[Bar]]],
    *,
    title: str,
    scale: Scale | None = None,
    shares: bool = False,
) -> Html:
    """Bars below their labels, from zero to the largest number unless a scale is given.

    >>> chart = bar_chart([("carrier", [Bar(value=0.2, says="0.200", mark=0.1)])], title="Columns")
    >>> chart.startswith('<svg role="img"'), chart.count("<rect")
    (True, 1)
    """
    scale = scale or Scale(0.0, largest([bar for _, bars in rows for bar in bars]))
    parts, y = [], 0
    for label, bars in rows:
        strong = any(bar.kind == "drifted" for bar in bars)
        weight = "600" if strong else None
        for line in wrapped(label, LETTERS - 5 * strong, measure=letters_wide):
            parts.append(_words(0, y + 13, line, fill=INK, font_weight=weight))
            y += LINE
        for bar in bars:
            parts += _bar(bar, y, scale)
            y += BAR
        y += BETWEEN
    says = "; ".join(f"{label}: {', '.join(bar.says for bar in bars)}" for label, bars in rows)
    return _drawing(y + 20, title, f"{says}.", *_axis(scale, y, shares=shares), *parts)


def largest(bars: Sequence[Bar]) -> float:
    """The largest number that is drawn."""
    drawn = [bar.value for bar in bars]
    drawn += [place for bar in bars for place, _ in bar.lines]
    drawn += [end for bar in bars if bar.interval is not None for end in bar.interval]
    return min(max([TINY, *drawn]), LARGEST)


def _bar(bar: Bar, y: int, scale: Scale) -> Iterator[Html]:
    left, right = sorted(PLOT * scale.place(end) for end in (0.0, bar.value))
    look = {"height": 4 if bar.thin else 10, "rx": 1.5, "fill": FILLS[bar.kind]}
    if bar.kind == "example":
        look |= {"stroke": FILLS["reference"], "stroke_dasharray": "3 2"}
    top = y + (4 if bar.thin else 1)
    end = right - BREAK[0] if bar.broken else right
    yield tag("rect", x=_percent(left), y=top, width=_percent(max(end - left, 0.3)), **look)
    if bar.broken:
        yield tag("rect", x=_percent(right - BREAK[1]), y=top, width=_percent(BREAK[1]), **look)
    ink = {"stroke": f"var(--ink, {INK})", "stroke_width": 1.4}
    if bar.interval is not None:
        low, high = (PLOT * scale.place(end) for end in bar.interval)
        yield _line(low, y + 6, high, y + 6, **ink)
        yield _line(low, y + 2, low, y + 10, **ink)
        yield _line(high, y + 2, high, y + 10, **ink)
    for value, dashes in bar.lines:
        place = PLOT * scale.place(value)
        across = ink | {"stroke_width": 2, "stroke_dasharray": dashes}
        yield _line(place, y - 1, place, y + 13, **across)
    weight = "600" if bar.kind == "drifted" else None
    yield _words(100, y + 11, bar.says, "end", fill=INK, font_weight=weight)


def _axis(scale: Scale, height: int, *, shares: bool) -> Iterator[Html]:
    """A faint line at each round number, with the number below."""
    for tick in scale.ticks(ALONG):
        place = PLOT * scale.place(tick)
        says = percent(tick).replace(".0%", "%") if shares else f"{tick:g}"
        look = {"fill": f"var(--muted, {INK})", "font_size": 12}
        yield _line(place, 0, place, height, stroke=LINES, stroke_opacity=0.35)
        yield _words(place, height + 14, says, "middle" if place > 2 else "start", **look)


# A column over one period, or the largest of a few that share a cell: whether it exceeds its
# threshold, how many times its threshold it is, and in which period. None: no release.
Cell = tuple[bool, float, int] | None
CELLS = 160  # across a heat map; more periods than that share cells
TOP, HEIGHT, BOTTOM = 20, 130, 22  # pixels: flags of alarms, values, dates
UP = 7  # steps between the numbers beside values, at most
DOTS = 60  # periods: up to so many, each has a dot
LETTER = 2.6  # percent of the width: one letter of a flag, where the page is 400 pixels wide
Value = TypeVar("Value")
Values = Sequence[float | None]  # one for each period; None where there is none


def file_of(number: int) -> str:
    """The name of a period's report, beside the page of its series.

    >>> file_of(23)
    'periods/0023.html'
    """
    return f"periods/{number:04d}.html"


@dataclass(frozen=True, slots=True)
class Frame:
    """The periods of a chart, from the first to the last that is over."""

    points: tuple[PeriodPoint, ...]
    every: str

    @classmethod
    def of(cls, status: SeriesStatus) -> "Frame":
        """All periods that are over; what is due stands at the end, without a value."""
        return cls(tuple(p for p in status.points if p.state != "ahead"), status.every)

    def __len__(self) -> int:
        return len(self.points)

    def middle(self, place: int) -> float:
        """The middle of the period at this place, in percent of the width."""
        return 100 * (min(max(place, 0), len(self) - 1) + 0.5) / len(self)

    def name(self, point: PeriodPoint) -> str:
        """The period and its first day, for people."""
        return f"{period_name(point.number, self.every)}, {day(point.start)}"

    @property
    def groups(self) -> list[tuple[PeriodPoint, ...]]:
        """The periods that share a cell of a heat map, where there are too many of them."""
        step = -(-len(self) // CELLS)
        return [self.points[n : n + step] for n in range(0, len(self), step)]

    def cells(self, judged: Iterable[tuple[bool, float, int]]) -> list[Cell]:
        """The largest of each group."""
        known = {cell[2]: cell for cell in judged}
        return [
            max((known[p.number] for p in group if p.number in known), default=None)
            for group in self.groups
        ]

    def dates(self) -> Iterator[tuple[float, str, str]]:
        """Dates below a chart, as many as a phone has room for: place in percent, words, anchor."""
        last = len(self) - 1
        between = round(last / 2)
        places = {between: (self.middle(between), "middle")}
        if last:
            places |= {0: (0.0, "start"), last: (100.0, "end")}
        for place, (at, anchor) in sorted(places.items()):
            yield at, day(self.points[place].start, "%b %Y"), anchor


def timeline_chart(
    frame: Frame,
    values: Values,
    tips: Sequence[str],
    *,
    title: str,
    band: Sequence[tuple[float, float] | None] = (),
    threshold: Values = (),
    below: Values = (),
    alarms: Sequence[Alarm] = (),
    pointed: bool = True,
) -> Html:
    """Values over periods. `tips` say each of them, to those who point at a period.

    `band` are intervals around the values; `threshold` is dashed; `below` is what no drift gives.
    """
    ends = [end for pair in band if pair is not None for end in pair]
    drawn = [value for value in (*values, *below) if value is not None]
    limits = [limit for limit in threshold if limit is not None]
    scale = Scale.of([*drawn, *ends], max(limits, default=None))
    height = TOP + HEIGHT
    stretched = _stretched(
        len(frame),
        height,
        *_shades(frame, alarms),
        *_band(band, scale),
        _steps(below, scale, "c-below"),
        _steps(threshold, scale, "c-limit"),
        _path(values, scale),
        *(_hits(frame, tips) if pointed else ()),
        height=height,
        overflow="hidden",
    )
    above = _above(values, threshold)
    over = f"{counted(len(above), frame.every)} above the threshold. " if threshold else ""
    said = [tip for tip, value in zip(tips, values, strict=True) if value is not None]
    chart = _drawing(
        height + BOTTOM,
        title,
        f"{over}The last: {said[-1] if said else 'none'}.",
        *_grid(scale),
        stretched,
        *_dots(frame, values, above, scale),
        *_flags(frame, alarms),
        *(_words(x, height + 16, says, end, class_="c-tick") for x, says, end in frame.dates()),
    )
    return tag("div", chart, class_="plot")


def _above(values: Values, threshold: Values) -> set[int]:
    """The places where a value exceeds its threshold."""
    pairs = enumerate(zip(values, threshold, strict=False))
    return {n for n, (value, limit) in pairs if value is not None and limit and value > limit}


def _y(value: float, scale: Scale) -> float:
    return TOP + HEIGHT * (1 - scale.place(value))


def _grid(scale: Scale) -> Iterator[Html]:
    for value in scale.ticks(UP):
        y = _y(value, scale)
        yield _line(0, y, 100, y, class_="c-grid")
        yield tag("text", f"{value:g}", class_="c-tick", x=-6, y=y + 4, text_anchor="end")


def _shades(frame: Frame, alarms: Sequence[Alarm]) -> Iterator[Html]:
    """Missed periods, and the counted periods of a drift as its alarm dates it."""
    for place, point in enumerate(frame.points):
        if point.state == "missed":
            yield _shade("c-gap", place, 1)
    for alarm in alarms:
        last = alarm.raised if alarm.until is None else alarm.until
        if alarm.state in ("open", "acknowledged"):
            last = frame.points[-1].number
        drifting = [
            (point.state == "released" and alarm.since <= point.number <= last) or None
            for point in frame.points
        ]
        for run in _runs(drifting):
            yield _shade("c-drift", run[0][0], len(run))


def _shade(style: str, place: int, periods: int) -> Html:
    return tag("rect", class_=style, x=place, y=TOP, width=periods, height=HEIGHT)


def _runs(values: Sequence[Value | None]) -> Iterator[list[tuple[int, Value]]]:
    """Values that follow each other, with their places."""
    for missing, run in groupby(enumerate(values), key=lambda pair: pair[1] is None):
        if not missing:
            yield [(place, value) for place, value in run if value is not None]


def _band(band: Sequence[tuple[float, float] | None], scale: Scale) -> Iterator[Html]:
    for run in _runs(band):
        if len(run) == 1:
            ((place, (low, high)),) = run
            top, down = _y(high, scale), _y(low, scale)
            outline = f"M{place + 0.3:g} {top:.1f}h.4V{down:.1f}h-.4Z"
        else:
            above = [_stop(place, high, scale) for place, (_, high) in run]
            under = [_stop(place, low, scale) for place, (low, _) in reversed(run)]
            outline = f"M{'L'.join([*above, *under])}Z"
        yield tag("path", class_="c-band", d=outline)


def _stop(place: int, value: float, scale: Scale) -> str:
    return f"{place + 0.5:g} {_y(value, scale):.1f}"


def _path(values: Values, scale: Scale) -> Html:
    """A line that breaks where there is no value; a value between two gaps is a dot."""
    lines = [[_stop(*each, scale) for each in run] for run in _runs(values)]
    pieces = [f"M{'L'.join(stops)}{'h0' if len(stops) == 1 else ''}" for stops in lines]
    return tag("path", class_="c-now", d="".join(pieces)) if pieces else Html()


def _steps(values: Values, scale: Scale, style: str) -> Html:
    """What holds for whole periods: level over each of them."""
    pieces = [
        f"M{run[0][0]} {_y(run[0][1], scale):.1f}"
        + "".join(f"V{_y(value, scale):.1f}H{place + 1}" for place, value in run)
        for run in _runs(values)
    ]
    return tag("path", class_=style, d="".join(pieces)) if pieces else Html()


def _hits(frame: Frame, tips: Sequence[str]) -> Iterator[Html]:
    """Areas that say what they show, and lead to the report of their period."""
    for place, (point, tip) in enumerate(zip(frame.points, tips, strict=True)):
        look = {"class_": "c-hit", "x": place, "y": 0, "width": 1, "height": TOP + HEIGHT}
        area = tag("rect", tag("title", tip), **look)
        yield _link(point.number, area) if point.state == "released" else area


def _link(number: int, area: Html) -> Html:
    """By the mouse only: the table of all periods has the same links for the keyboard."""
    return tag("a", area, href=file_of(number), tabindex="-1")


def _dots(frame: Frame, values: Values, above: set[int], scale: Scale) -> Iterator[Html]:
    """Dots keep round; those above the threshold are larger and of another form and colour."""
    large = 4.0 if len(frame) <= DOTS else 2.5
    for place, value in enumerate(values):
        if value is None or (len(frame) > DOTS and place not in above):
            continue
        style, radius = ("c-above", large) if place in above else ("c-dot", 2.2)
        x, y = _percent(frame.middle(place)), _y(value, scale)
        yield tag("circle", class_=style, cx=x, cy=y, r=radius)


def _flags(frame: Frame, alarms: Sequence[Alarm]) -> Iterator[Html]:
    """Where alarms were raised, and where somebody acknowledged them."""
    starts = [datetime.fromisoformat(point.start) for point in frame.points]
    known = [datetime.fromisoformat(a.acknowledged_at) for a in alarms if a.acknowledged_at]
    raised = [frame.middle(alarm.raised - frame.points[0].number) for alarm in alarms]
    seen = {frame.middle(sum(start <= at for start in starts) - 1) for at in known}
    for style, places in (("c-flag", raised), ("c-known", sorted(seen))):
        for x in places:
            yield _line(x, TOP - 4, x, TOP + HEIGHT, class_=style)
    # One label for alarms whose labels would touch on a phone.
    groups: list[list[tuple[float, int]]] = []
    for each in sorted(zip(raised, (alarm.number for alarm in alarms), strict=True)):
        groups.append([each])
        while len(groups) > 1 and _label(groups[-1])[0] - _label(groups[-2])[1] < LETTER:
            last = groups.pop()
            groups[-1] += last
    for left, right, says in map(_label, groups):
        yield _words((left + right) / 2, 12, says, "middle", class_="c-alarm")


def _label(group: Sequence[tuple[float, int]]) -> tuple[float, float, str]:
    """The numbers of alarms, and where they stand in percent; none sticks out of the chart."""
    (left, first), (right, last) = group[0], group[-1]
    says = str(first) if len(group) == 1 else f"{first}-{last}"
    wide = LETTER * len(says)
    start = min(max((left + right - wide) / 2, 0.0), 100 - wide)
    return start, start + wide, says


LEVELS = {
    "heat0": "under a third",
    "heat1": "up to two thirds",
    "heat2": "up to the threshold",
    "heat3": "above",
    "heat4": "over twice",
    "gap": "no release",
}
NAME = 44  # letters


def heat_map(frame: Frame, rows: Mapping[str, Sequence[Cell]], says: Mapping[str, str]) -> Html:
    """A row for each column. `says` tells in words what colours alone do not tell everybody."""
    look = {"aria_hidden": "true", "height": 15, "shape_rendering": "crispEdges"}
    parts = []
    for name, cells in rows.items():
        words = (" ", tag("span", says[name], class_="says")) if says[name] else ()
        parts.append(tag("div", shortened(clean(name), NAME), *words, class_="name", title=name))
        drawn = (_heat_cell(frame, name, place, cell) for place, cell in enumerate(cells))
        parts.append(_stretched(len(cells), 1, *drawn, **look))
    dates = (_words(x, 15, words, anchor, class_="c-tick") for x, words, anchor in frame.dates())
    look = {"class_": "dates", "aria_hidden": "true", "width": "100%", "height": 22}
    return tag("div", *parts, tag("svg", *dates, style=FONT, **look), class_="heat")


def _heat_cell(frame: Frame, name: str, place: int, cell: Cell) -> Html:
    """The verdict decides what is above; a period without a release is a thin line."""
    if cell is None:
        return tag("rect", class_="gap", x=place, y="0.4", width=1, height="0.2")
    above, relative, period = cell
    if not above:
        level = sum(relative >= bound for bound in (1 / 3, 2 / 3))
        return tag("rect", class_=f"heat{level}", x=place, width=1, height=1)
    says = f"{name}, {period_name(period, frame.every)}: {relative:.2g} times its threshold"
    style = "heat4" if relative > 2 else "heat3"
    area = tag("rect", tag("title", says), class_=style, x=place, width=1, height=1)
    return _link(period, area)
