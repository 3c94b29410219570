"""One kind of chart, as SVG text: rows of bars with whiskers, marks and numbers.

Lengths along the bars are percentages and all else is in pixels. So a chart is as wide as its page
and its letters stay as large as they are. Colours come from the page, with defaults that can be
seen on light and on dark ground.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedprikl.divergence import divergence_named, skewed_divergence
from fedprikl.errors import FedPriKLError
from fedprikl.estimation import Witness
from fedprikl.protocol import Answer
from fedprikl.protocol.answer import CellAnswer, ColumnAnswer
from fedprikl.reporting.facts import ColumnFacts, facts_of, moved_in
from fedprikl.reporting.page import (
    cell_name,
    clean,
    decimals,
    escaped,
    letters_wide,
    number,
    percent,
    wrapped,
)

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
HALVES = (0.51, 0.55, 0.6, 0.75, 0.9, 0.99)  # what one of two equally common categories grows to
CELLS = 10  # in one chart
CLEARLY = 4.0  # standard deviations of the noise: a count of "other" beyond them is shown
ARROWS = {"up": " ▲ more", "down": " ▼ fewer", "": ""}


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


CHANGES = {  # total variation is a share of all records
    share: f"example: {words} would have to change"
    for share, words in {
        0.01: "one record in a hundred",
        0.03: "three records in a hundred",
        0.1: "ten records in a hundred",
        0.3: "thirty records in a hundred",
        0.5: "half of all records",
        1.0: "all records",
    }.items()
}


def size_chart(
    answer: Answer, *, records: int, witness: Witness | None, mark: float | None = None
) -> str:
    """The value among numbers that give it a meaning. `mark` is a threshold the user set."""
    width = 0.0 if answer.interval is None else answer.interval[1] - answer.interval[0]
    digits = decimals(width)
    unit = f" {clean(answer.unit)}".rstrip()

    def row(label: str, value: float, bar: Bar | None = None, *, strong: bool = False) -> Row:
        says = f"{number(value, digits)}{unit}"
        return Row(
            label=label, bars=(bar or Bar(value=value, says=says, kind="reference"),), strong=strong
        )

    found = Bar(
        value=answer.value,
        says=f"{number(answer.value, digits)}{unit}",
        kind="moved" if witness is not None and witness.speaks else "now",
        interval=answer.interval,
        mark=None if witness is None else witness.threshold,
    )
    rows = [row("found in this population", answer.value, found, strong=True)]
    if witness is not None:
        rows.append(row("threshold: above it, drift is found", witness.threshold))
    if mark is not None:
        rows.append(row("your own threshold, from the plan", mark))
    if answer.no_drift is not None:
        rows.append(row(f"expected without drift, {records:,} records", answer.no_drift))
    for value, label in _examples(answer):
        says = f"{value:.2g}{unit}"
        rows.append(row(label, value, Bar(value=value, says=says, kind="example")))
    says = "; ".join(f"{each.label}: {each.bars[0].says}" for each in rows)
    return bar_chart(rows, title=f"The size of the drift, {clean(answer.divergence)}", says=says)


def _examples(answer: Answer) -> list[tuple[float, str]]:
    """The known changes just below and just above the value."""
    known = sorted(_known(answer.divergence).items())
    below = [each for each in known if each[0] <= answer.value]
    above = [each for each in known if each[0] > answer.value]
    return [*below[-1:], *above[:1]]


def _known(name: str) -> dict[float, str]:
    """Divergences of changes that everybody can picture."""
    if name == "tv":
        return CHANGES
    try:
        divergence = divergence_named(name)
    except FedPriKLError:  # of somebody else's, not registered here
        return {}
    return {
        skewed_divergence([0.5, 0.5], [half, 1 - half], skew=0.0, divergence=divergence): (
            f"example: a 50:50 split becomes {100 * half:.0f}:{100 - 100 * half:.0f}"
        )
        for half in HALVES
    }


def ranking_chart(columns: Sequence[ColumnAnswer]) -> str:
    """How far each column is from the reference in total variation."""
    facts = facts_of(columns)
    rows = [
        Row(label=each.name, bars=(_size(column, each),), strong=column.drifted is True)
        for column, each in zip(columns, facts, strict=True)
    ]
    says = "; ".join(f"{each.name} {each.value}, {each.verdict}" for each in facts)
    return bar_chart(rows, title="How far each column is from the reference", says=f"{says}.")


def _size(column: ColumnAnswer, facts: ColumnFacts) -> Bar:
    answer = column.answer("tv")
    return Bar(
        value=0.0 if answer is None else answer.value,
        says=facts.value if column.drifted is False else f"{facts.value} {facts.verdict}",
        kind="moved" if column.drifted else "now",
        interval=None if answer is None else answer.interval,
    )


def cells_chart(column: ColumnAnswer, records: int) -> str:
    """The reference beside the population, cell by cell; of many cells, those that differ most."""
    cells = _shown(column)
    rows = [_cell(cell) for cell in cells]
    now = _other(column, records)
    if now is not None:
        rows.append(_pair("other: not in the reference's list", *now))
    says = "; ".join(
        f"{cell_name(cell.label)}: {percent(cell.reference)} in the reference, "
        f"{percent(cell.share)} now{ARROWS[cell.moved]}"
        for cell in cells
    )
    title = f"{clean(column.name)}: reference and population"
    return bar_chart(rows, title=title, says=f"{says}.", shares=True)


def column_story(column: ColumnAnswer) -> str:
    """What a chart of its cells shows, in a sentence or two."""
    moved = moved_in(column)
    first = (
        f"There are now {moved}." if moved else "Which categories moved cannot be told from noise."
    )
    left = len(column.cells) - len(_shown(column))
    if not left:
        return first
    verb = "is" if left == 1 else "are"
    return (
        f"{first} The {CELLS} that differ most are shown; {left:,} more {verb} in the table below."
    )


def _shown(column: ColumnAnswer) -> list[CellAnswer]:
    """The cells of a chart, in the order of the reference."""
    order = sorted(
        range(len(column.cells)),
        key=lambda n: (not column.cells[n].moved, -_difference(column.cells[n])),
    )
    return [column.cells[n] for n in sorted(order[:CELLS])]


def _difference(cell: CellAnswer) -> float:
    return abs(cell.share - cell.reference)


def _cell(cell: CellAnswer) -> Row:
    now = Bar(
        value=cell.share,
        says=f"{percent(cell.share)}{ARROWS[cell.moved]}",
        kind="moved" if cell.moved else "now",
        interval=cell.interval,
    )
    return Row(
        label=cell_name(cell.label), bars=(_before(cell.reference), now), strong=bool(cell.moved)
    )


def _pair(label: str, reference: float, share: float) -> Row:
    now = Bar(value=share, says=f"about {percent(share)}")
    return Row(label=label, bars=(_before(reference), now))


def _before(share: float) -> Bar:
    return Bar(value=share, says=percent(share), kind="reference")


def _other(column: ColumnAnswer, records: int) -> tuple[float, float] | None:
    """The shares of "other", before and now; None where they are no more than noise."""
    if records < 1:
        return None
    noise = CLEARLY * column.noise_sd / records
    before = max(0.0, 1 - sum(cell.reference for cell in column.cells))
    now = max(0.0, column.rest / records)
    return (before, now) if max(before, now) > noise else None
