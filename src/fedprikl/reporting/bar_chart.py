"""One kind of chart, as SVG text: rows of bars with whiskers, marks and numbers.

Lengths along the bars are percentages and all else is in pixels. So a chart is as wide as its page
and its letters stay as large as they are. Colours come from the page, with defaults that can be
seen on light and on dark ground.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedprikl.reporting.texts import escaped, letters_wide, percent, wrapped

__all__ = ["Bar", "Row", "bar_chart"]

Kind = Literal["now", "reference", "moved", "example"]

FILLS = {
    "now": "var(--now, #3f83c9)",
    "moved": "var(--moved, #cc6f1f)",
    "reference": "var(--reference, #87909c)",
    "example": "none",
}
LINES = "var(--lines, #87909c)"
INK = "currentColor"
FONT = "13px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
PLOT = 64.0  # percent of the width for bars; the rest is for numbers
LETTERS = 40  # average ones, of a label on one line where a page is 400 pixels wide
LINE, BAR, BETWEEN = 18, 16, 12  # pixels: a line of a label, a bar with its number, rows
TICKS = 5  # at most
TINY, LARGEST = 1e-9, 1e300  # a chart of nothing but zeros has a scale too


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar, with the number beside it."""

    value: float
    says: str
    kind: Kind = "now"
    interval: tuple[float, float] | None = None  # drawn as a whisker
    mark: float | None = None  # drawn as a line across: a threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What stands under one label."""

    label: str
    bars: tuple[Bar, ...]
    strong: bool = False  # the label in bold

    @property
    def lines(self) -> list[str]:
        """The label, in one line or two."""
        return wrapped(self.label, LETTERS - 5 if self.strong else LETTERS, measure=letters_wide)

    @property
    def height(self) -> int:
        """In pixels."""
        return LINE * len(self.lines) + BAR * len(self.bars) + BETWEEN


def bar_chart(rows: Sequence[Row], *, title: str, says: str, shares: bool = False) -> str:
    """The chart. `title` and `says` are for those who do not see it.

    >>> row = Row(label="carrier", bars=(Bar(value=0.2, says="0.200", mark=0.1),))
    >>> chart = bar_chart([row], title="Columns", says="carrier: 0.200")
    >>> chart.startswith('<svg role="img"'), chart.count("<rect")
    (True, 1)
    """
    top = _top(rows)
    height = sum(row.height for row in rows)
    parts = list(_axis(top, height, shares=shares))
    y = 0
    for row in rows:
        parts += _row(row, y, top)
        y += row.height
    return (
        f'<svg role="img" width="100%" height="{height + 20}" style="font: {FONT}" '
        'xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escaped(title)}</title><desc>{escaped(says)}</desc>\n"
        + "\n".join(parts)
        + "\n</svg>"
    )


def _top(rows: Sequence[Row]) -> float:
    """The largest number that is drawn."""
    bars = [bar for row in rows for bar in row.bars]
    drawn = [bar.value for bar in bars] + [bar.mark for bar in bars if bar.mark is not None]
    drawn += [end for bar in bars if bar.interval is not None for end in bar.interval]
    return min(max([TINY, *drawn]), LARGEST)


def _row(row: Row, y: int, top: float) -> Iterator[str]:
    weight = ' font-weight="600"' if row.strong else ""
    for line in row.lines:
        yield f'<text x="0" y="{y + 13}" fill="{INK}"{weight}>{escaped(line)}</text>'
        y += LINE
    for bar in row.bars:
        yield from _bar(bar, y, top)
        y += BAR


def _bar(bar: Bar, y: int, top: float) -> Iterator[str]:
    length, fill = _place(bar.value, top), FILLS[bar.kind]
    edge = f' stroke="{FILLS["reference"]}" stroke-dasharray="3 2"' if bar.kind == "example" else ""
    yield (
        f'<rect x="0" y="{y + 1}" width="{max(length, 0.3):.2f}%" height="10" rx="1.5" '
        f'fill="{fill}"{edge}/>'
    )
    if bar.interval is not None:
        low, high = (_place(end, top) for end in bar.interval)
        yield _line(low, y + 6, high, y + 6)
        yield _line(low, y + 2, low, y + 10)
        yield _line(high, y + 2, high, y + 10)
    if bar.mark is not None and bar.mark > 0:
        place = _place(bar.mark, top)
        yield _line(place, y - 1, place, y + 13, ' stroke-width="2" stroke-dasharray="4 2"')
    strong = ' font-weight="600"' if bar.kind == "moved" else ""
    yield (
        f'<text x="100%" y="{y + 11}" text-anchor="end" fill="{INK}"{strong}>'
        f"{escaped(bar.says)}</text>"
    )


def _line(x1: float, y1: int, x2: float, y2: int, more: str = ' stroke-width="1.4"') -> str:
    return (
        f'<line x1="{x1:.2f}%" y1="{y1}" x2="{x2:.2f}%" y2="{y2}" '
        f'stroke="var(--ink, {INK})"{more}/>'
    )


def _place(value: float, top: float) -> float:
    """Where a value lies, in percent of the width."""
    return PLOT * min(max(value / top, 0.0), 1.0)


def _axis(top: float, height: int, *, shares: bool) -> Iterator[str]:
    """A faint line at each round number, with the number below."""
    step = _step(top)
    for tick in (n * step for n in range(TICKS + 1)):
        if tick > top:
            break
        place, anchor = _place(tick, top), "middle" if tick else "start"
        says = percent(tick).replace(".0%", "%") if shares else f"{tick:g}"
        yield (
            f'<line x1="{place:.2f}%" y1="0" x2="{place:.2f}%" y2="{height}" '
            f'stroke="{LINES}" stroke-opacity="0.35"/>'
            f'<text x="{place:.2f}%" y="{height + 14}" text-anchor="{anchor}" '
            f'fill="var(--muted, {INK})" font-size="12">{says}</text>'
        )


def _step(top: float) -> float:
    """The smallest round step with at most `TICKS` steps up to the top."""
    power: float = 10.0 ** math.floor(math.log10(top / TICKS))
    return next((n * power for n in (1, 2, 5) if n * power * TICKS >= top), 10 * power)
