"""The columns of a release as lines of text, and the words that pages use for them too."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedprikl.estimation.verdict import UNSEEN
from fedprikl.protocol.column_answer import CellAnswer, ColumnAnswer
from fedprikl.reporting.headline import ranked
from fedprikl.reporting.texts import (
    cell_name,
    clean,
    columns_wide,
    decimals,
    listed,
    number,
    padded,
    shortened,
)

__all__ = [
    "HEAD",
    "NOTE",
    "UNRELATED",
    "ColumnFacts",
    "column_lines",
    "facts_of",
    "moved_cells",
    "moved_in",
    "takes_unrelated",
]

HEAD = ("column", "tv", "no drift", "95% interval", "moved")
SHOWN = 15  # columns in a table of text; those that have moved are always shown
NAME, CELL, CELLS = 32, 28, 3  # letters of names; cells that are named
UNKNOWN = "-"
NEW = "values that the reference never saw"
NOTE = (
    "tv: the share of all records that would have to change to look like the reference; "
    "no drift: the tv to expect without any drift. Both are read off the noisy counts; the verdict "
    "rests on other numbers, each beside its threshold"
)


UNRELATED = (
    "The false-alarm rate over columns holds if records of one client are unrelated: no client ids "
    "show how alike they are."
)


def takes_unrelated(column: ColumnAnswer) -> bool:
    """Whether its verdict takes records of one client as unrelated, for want of client ids."""
    return column.drifted is not None and column.design_effect is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One column in words: how far it is from the reference, in total variation."""

    name: str
    value: str
    no_drift: str
    interval: str
    verdict: str  # "moved", "not moved" or "not judged"
    cells: str  # which of them moved
    found_by: str  # which statistics lie above their thresholds

    @classmethod
    def of(cls, column: ColumnAnswer, digits: int = 3) -> "ColumnFacts":
        """What a release says of a column, with so many digits after the point."""
        answer = column.answer("tv")
        value = no_drift = interval = UNKNOWN
        if answer is not None:
            if answer.interval is not None:
                low, high = answer.interval
                interval = f"{number(low, digits)} to {number(high, digits)}"
            value = number(answer.value, digits)
            if answer.no_drift is not None:
                no_drift = number(answer.no_drift, digits)
        return cls(
            name=clean(column.name),
            value=value,
            no_drift=no_drift,
            interval=interval,
            verdict={True: "moved", False: "not moved", None: "not judged"}[column.drifted],
            cells=moved_in(column) if column.drifted else "",
            found_by=_found_by(column),
        )

    @property
    def row(self) -> tuple[str, ...]:
        """As `HEAD` has it."""
        moved = ": ".join(part for part in (self.verdict, self.cells) if part)
        moved += f" (found by {self.found_by})" if self.found_by else ""
        return self.name, self.value, self.no_drift, self.interval, moved


def facts_of(columns: Sequence[ColumnAnswer]) -> list[ColumnFacts]:
    """What a release says of columns, with digits that suit the widest interval among them."""
    sizes = [answer for column in columns if (answer := column.answer("tv")) is not None]
    ends = [answer.interval for answer in sizes if answer.interval is not None]
    digits = decimals(max((high - low for low, high in ends), default=0.0))
    return [ColumnFacts.of(column, digits) for column in columns]


def moved_cells(cells: Sequence[CellAnswer]) -> str:
    """Which cells have more records than in the reference, and which fewer; the largest first."""
    parts = []
    for direction, word in (("up", "more"), ("down", "fewer")):
        moved = [cell for cell in cells if cell.moved == direction]
        moved.sort(key=lambda cell: -abs(cell.share - cell.reference))
        if moved:
            names = [shortened(cell_name(cell.label), CELL) for cell in moved]
            parts.append(f"{word} in {listed(names, CELLS)}")
    return "; ".join(parts)


def moved_in(column: ColumnAnswer) -> str:
    """Which cells of a column have moved, and whether values are new to the reference."""
    new = any(each.speaks for each in column.witnesses if each.name == UNSEEN)
    return "; ".join(part for part in (moved_cells(column.cells), new * NEW) if part)


def column_lines(columns: Sequence[ColumnAnswer]) -> tuple[str, ...]:
    """A table in lines of text; beyond `SHOWN` columns, those that have not moved are folded.

    >>> column_lines(())
    ()
    """
    if not columns:
        return ()
    order = ranked(columns)
    moved = sum(1 for column in order if column.drifted)
    shown = order[: max(SHOWN, moved)]
    rows = [HEAD, *(each.row for each in facts_of(shown))]
    short = [(shortened(row[0], NAME), *row[1:]) for row in rows]
    widths = [max(columns_wide(row[place]) for row in short) for place in range(len(HEAD))]
    lines = [
        "  ".join(
            padded(text, width, right=0 < place < 3)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in short
    ]
    if left := len(order) - len(shown):
        lines.append(f"and {left:,} more, none of which has moved")
    return (*lines, NOTE, *([UNRELATED] if any(map(takes_unrelated, columns)) else []))


def _found_by(column: ColumnAnswer) -> str:
    """The statistics above their thresholds: numbers of their own, not read off the counts."""
    spoke = [each for each in column.witnesses if each.speaks]
    return listed(
        [f"{clean(each.name)} {each.statistic:.4g} > {each.threshold:.4g}" for each in spoke]
    )
