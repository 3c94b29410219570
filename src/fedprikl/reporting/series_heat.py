"""The heat map of a series: columns down, periods across, colour by statistic over threshold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedprikl.monitoring.status import ColumnPoint, PeriodPoint, SeriesStatus
from fedprikl.monitoring.words import counted, day, period_name
from fedprikl.reporting.bar_chart import FONT
from fedprikl.reporting.page import fold, paragraphs, table
from fedprikl.reporting.series_frame import Frame, file_of
from fedprikl.reporting.texts import clean, escaped, shortened

__all__ = ["heat_map", "relative"]

LEVELS = ("under a third", "up to two thirds", "up to the threshold", "above", "over twice")
BOUNDS = (1 / 3, 2 / 3)
TWICE = 2.0
CELLS = 160  # across; more periods than that share cells
SHOWN = 20  # columns that are not folded
NAME = 44  # letters


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
