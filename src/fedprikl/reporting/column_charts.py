"""Charts of columns: all of them ranked, and the cells of one that has drifted."""

from collections.abc import Sequence

from fedprikl.protocol.column_answer import CellAnswer, ColumnAnswer
from fedprikl.reporting.bar_chart import Bar, Row, bar_chart
from fedprikl.reporting.column_facts import ColumnFacts, facts_of, moved_in
from fedprikl.reporting.texts import cell_name, clean, percent

__all__ = ["cells_chart", "column_story", "ranking_chart"]

CELLS = 10  # in one chart
CLEARLY = 4.0  # standard deviations of the noise: a count of "other" beyond them is shown
ARROWS = {"up": " ▲ more", "down": " ▼ fewer", "": ""}


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
