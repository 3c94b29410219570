"""The charts of a series, as SVG text: values over its periods, and a heat map of its columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fedprikl.monitoring.status import (
    AlarmFacts,
    ColumnPoint,
    PeriodPoint,
    SeriesStatus,
    counted,
    day,
    period_name,
    short_day,
)
from fedprikl.reporting.bar_chart import FONT
from fedprikl.reporting.page import clean, escaped, fold, paragraphs, shortened, table

TICKS = 3  # dates below a chart: as many as a phone has room for
BENT = 6.0  # thresholds: beyond, a linear scale would press the threshold to the ground
TOP, PLOT, BOTTOM = 20, 130, 22  # pixels: flags of alarms, values, dates
DOTS = 60  # periods: up to so many, each has a dot
LETTER = 2.6  # percent of the width: one letter of a flag, where the page is 400 pixels wide
LEVELS = ("under a third", "up to two thirds", "up to the threshold", "above", "over twice")
BOUNDS = (1 / 3, 2 / 3)
TWICE = 2.0
CELLS = 160  # across; more periods than that share cells
SHOWN = 20  # columns that are not folded
NAME = 44  # letters


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

    def place(self, number: int) -> float:
        """The left side of a period, in periods from the left side of the chart."""
        return min(max(number - self.points[0].number, 0), len(self.points) - 1)

    def middle(self, place: float) -> float:
        """The middle of the period at this place, in percent of the width."""
        return 100 * (place + 0.5) / len(self.points)

    def name(self, point: PeriodPoint) -> str:
        """The period and its first day, for people."""
        return f"{period_name(point.number, self.every)}, {day(point.start)}"

    def ticks(self) -> Iterator[tuple[float, str, str]]:
        """Dates below a chart: place in percent, anchor, words."""
        many = min(TICKS, len(self.points))
        if many == 1:
            yield 50.0, "middle", short_day(self.points[0].start)
            return
        for n in range(many):
            place = round(n * (len(self.points) - 1) / (many - 1))
            anchor = "start" if n == 0 else "end" if n == many - 1 else "middle"
            at = 0.0 if n == 0 else 100.0 if n == many - 1 else self.middle(place)
            yield at, anchor, short_day(self.points[place].start)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values up a chart: linear, or by square roots where a threshold would lie on the ground."""

    low: float
    high: float
    bent: bool = False

    @classmethod
    def of(cls, values: Sequence[float], threshold: float | None = None) -> "Scale":
        """The scale that shows all values, zero and the threshold."""
        known = [*values, *([] if threshold is None else [threshold])]
        finite = [value for value in known if math.isfinite(value)]
        high, low = max([*finite, 0.0]), min([*finite, 0.0])
        high = high * 1.08 if high > 0 else 1.0
        bent = threshold is not None and 0 < BENT * threshold < high
        return cls(max(low, -high), high, bent)

    def height(self, value: float) -> float:
        """From 0 at the bottom to 1 at the top."""
        inside = min(max(value, self.low), self.high)
        bottom, top = self._bend(self.low), self._bend(self.high)
        return (self._bend(inside) - bottom) / (top - bottom)

    def _bend(self, value: float) -> float:
        return math.copysign(math.sqrt(abs(value)), value) if self.bent else value

    def ticks(self) -> list[float]:
        """Round values, far enough from each other to be read."""
        if self.bent:
            return [0.0, _round(self.high / 20), _round(self.high / 5), _round(self.high / 1.1)]
        step = _round((self.high - self.low) / 3)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, first + 8) if self.low <= n * step <= self.high]


def _round(value: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is no larger."""
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(n * power for n in (5, 2, 1) if n * power <= value * (1 + 1e-9))


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


@dataclass(frozen=True, slots=True)
class Cell:
    """One column over one period, or over a few that share a cell: the largest of them."""

    relative: float | None  # to the threshold; None: no release
    speaks: bool
    period: int  # of that value
    first: int  # of those that speak; else of all

    @property
    def level(self) -> int | None:
        """The place in `LEVELS`; the verdict decides what is above."""
        if self.relative is None:
            return None
        if self.speaks:
            return 4 if self.relative > TWICE else 3
        return sum(self.relative >= bound for bound in BOUNDS)


def relative(point: PeriodPoint, column: ColumnPoint) -> float | None:
    """A column's statistic over its threshold, of the period alone or of a window that ends here.

    The larger of both; None if the period was not judged.
    """
    pairs = (
        (column.statistic, point.threshold),
        (column.cumulative, point.cumulative_threshold),
    )
    found = [value / limit for value, limit in pairs if value is not None and limit]
    return max(found, default=None)


def heat_map(status: SeriesStatus) -> list[str]:
    """The map with its key, a sentence, and all of its numbers in a table."""
    frame = Frame.of(status)
    if not status.columns or not len(frame):
        return []
    step = -(-len(frame) // CELLS)
    groups = [frame.points[n : n + step] for n in range(0, len(frame), step)]
    rows = _rows(status.columns, groups)
    order = sorted(rows, key=lambda name: _urgency(rows[name]), reverse=True)
    shown, more = order[:SHOWN], order[SHOWN:]
    parts = [paragraphs(_note(status, step), "note"), _key(), _drawn(frame, rows, shown)]
    if more:
        parts.append(fold(counted(len(more), "more column"), [_drawn(frame, rows, more)]))
    numbers = fold("The same in numbers", [_table(status, rows, order, groups)], printed=False)
    return ["<h2 id=columns>Columns over time</h2>", f'<div class="card">{"".join(parts)}</div>',
            numbers]  # fmt: skip


def _rows(names: Sequence[str], groups: Sequence[Sequence[PeriodPoint]]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {name: [] for name in names}
    for group in groups:
        best: dict[str, Cell] = {}
        for point in group:
            for column in point.columns:
                number, before = point.number, best.get(column.name)
                cell = Cell(relative(point, column), column.speaks, number, number)
                if before is None or _larger(cell, before):
                    first = before.first if before is not None and before.speaks else number
                    best[column.name] = replace(cell, first=first)
        for name, cells in found.items():
            cells.append(best.get(name, Cell(None, False, group[0].number, group[0].number)))
    return found


def _larger(one: Cell, other: Cell) -> bool:
    return (one.speaks, one.relative or 0.0) > (other.speaks, other.relative or 0.0)


def _urgency(cells: Sequence[Cell]) -> tuple[bool, float]:
    """Columns that stand out in the last release are the most urgent ones."""
    known = [(cell.speaks, cell.relative) for cell in cells if cell.relative is not None]
    return known[-1] if known else (False, 0.0)


def _note(status: SeriesStatus, step: int) -> str:
    each = f"Each cell is a {status.every}"
    if step > 1:
        each = f"Each cell stands for {step} {status.every}s, with the largest value of them"
    return (
        f"{each}. Its colour is how large the column's statistic is beside its threshold: of the "
        f"{status.every} alone or of a window that ends there, whichever is larger. Columns that "
        f"stand out now come first."
    )


def _key() -> str:
    items = "".join(f'<li class="k{n}">{words}</li>' for n, words in enumerate(LEVELS))
    return f'<ul class="key">{items}<li class="gap">no release</li></ul>'


def _drawn(frame: Frame, rows: dict[str, list[Cell]], names: Sequence[str]) -> str:
    lines = ['<div class="heat">']
    for name in names:
        short = shortened(clean(name), NAME)
        lines.append(
            f'<div class="name" title="{escaped(name)}">{escaped(short)}'
            f"{_says(frame, rows[name])}</div>"
        )
        lines.append(_row(frame, name, rows[name]))
    dates = "".join(
        f'<text class="c-tick" x="{x:.2f}%" y="15" text-anchor="{anchor}">{escaped(words)}</text>'
        for x, anchor, words in frame.ticks()
    )
    lines.append(
        f'<svg class="dates" aria-hidden="true" width="100%" height="22" style="font: {FONT}">'
        f"{dates}</svg></div>"
    )
    return "\n".join(lines)


def _says(frame: Frame, cells: Sequence[Cell]) -> str:
    """Whether a column stands out, in words: colours alone say nothing to some."""
    above = [cell for cell in cells if cell.speaks]
    if not above:
        return ""
    known = [cell for cell in cells if cell.relative is not None]
    first = known[-1]
    for cell in reversed(known):
        if not cell.speaks:
            break
        first = cell
    if known[-1].speaks:
        words = f"above since {period_name(first.first, frame.every)}"
    else:
        words = f"last above in {period_name(above[-1].period, frame.every)}"
    return f' <span class="says">{escaped(words)}</span>'


def _row(frame: Frame, name: str, cells: Sequence[Cell]) -> str:
    parts = [
        f'<svg aria-hidden="true" width="100%" height="15" viewBox="0 0 {len(cells)} 1" '
        'preserveAspectRatio="none" shape-rendering="crispEdges">'
    ]
    for level in (None, 0, 1, 2):
        style = "hm" if level is None else f"h{level}"
        if path := "".join(_spans(cells, level)):
            parts.append(f'<path class="{style}" d="{path}"/>')
    for place, cell in enumerate(cells):
        if cell.level in (3, 4) and cell.relative is not None:
            tip = (
                f"{clean(name)}, {period_name(cell.period, frame.every)}: "
                f"{cell.relative:.2g} times its threshold"
            )
            parts.append(
                f'<a href="{file_of(cell.period)}" tabindex="-1"><rect class="h{cell.level}" '
                f'x="{place}" width="1" height="1"><title>{escaped(tip)}</title></rect></a>'
            )
    return "".join([*parts, "</svg>"])


def _spans(cells: Sequence[Cell], level: int | None) -> Iterator[str]:
    """Neighbours of one level as one piece of a path."""
    start = None
    for place, cell in enumerate([*cells, None]):
        same = cell is not None and cell.level == level
        if same and start is None:
            start = place
        elif not same and start is not None:
            top, down = ("0", "1") if level is not None else (".4", ".2")  # no release: a thin line
            yield f"M{start} {top}h{place - start}v{down}H{start}z"
            start = None


def _table(
    status: SeriesStatus,
    rows: dict[str, list[Cell]],
    names: Sequence[str],
    groups: Sequence[Sequence[PeriodPoint]],
) -> str:
    def shown(cell: Cell) -> str:
        if cell.relative is None:
            return "no release"
        return f"{cell.relative:.2f}{' above' if cell.speaks else ''}"

    lines = [
        [f"{period_name(group[0].number, status.every)}, {day(group[0].start)}",
         *(shown(rows[name][place]) for name in names)]
        for place, group in enumerate(groups)
    ]  # fmt: skip
    caption = "Statistics as multiples of their thresholds: 1 is the threshold"
    return table([f"{status.every} (first of a cell)", *map(clean, names)], lines, caption=caption)
