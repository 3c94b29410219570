"""What a release says about columns, as a table to look into."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedprikl.errors import InvalidInputError
from fedprikl.front.frame_libraries import FrameLibrary, frame_of
from fedprikl.protocol import CellAnswer, ColumnAnswer

__all__ = ["ColumnTable"]


@dataclass(frozen=True, slots=True, repr=False)
class ColumnTable:
    """The answers about each column, and each pair of columns, of a release.

    >>> table = ColumnTable(())
    >>> len(table), table.drifted
    (0, ())
    """

    answers: tuple[ColumnAnswer, ...]

    def __iter__(self) -> Iterator[ColumnAnswer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, name: str | tuple[str, ...]) -> ColumnAnswer:
        wanted = (name,) if isinstance(name, str) else tuple(name)
        for answer in self.answers:
            if answer.columns == wanted:
                return answer
        known = ", ".join(repr(answer.name) for answer in self.answers) or "none"
        raise InvalidInputError(f"The release has no answer about {name!r}; it has {known}.")

    @property
    def drifted(self) -> tuple[str, ...]:
        """The names of those that have drifted."""
        return tuple(answer.name for answer in self.answers if answer.drifted)

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """One row per column, in a data frame of pandas, polars or pyarrow."""
        return frame_of([_row(answer) for answer in self.answers], library)

    def cells(self, library: FrameLibrary | None = None) -> Any:
        """One row per cell of every column, in a data frame."""
        rows = [_cell_row(answer, cell) for answer in self.answers for cell in answer.cells]
        return frame_of(rows, library)

    def __repr__(self) -> str:
        return f"<ColumnTable of {len(self)}: drifted are {', '.join(self.drifted) or 'none'}>"


def _row(answer: ColumnAnswer) -> dict[str, Any]:
    row: dict[str, Any] = {"column": answer.name, "drifted": answer.drifted}
    for name in ("tv", "kl"):
        size = answer.answer(name)
        low, high = (size and size.interval) or (math.nan, math.nan)
        no_drift = None if size is None else size.no_drift
        row |= {
            name: math.nan if size is None else size.value,
            f"{name}_low": low,
            f"{name}_high": high,
            f"{name}_no_drift": math.nan if no_drift is None else no_drift,
        }
    return row | {
        "up": ", ".join(cell.label for cell in answer.cells if cell.moved == "up"),
        "down": ", ".join(cell.label for cell in answer.cells if cell.moved == "down"),
    }


def _cell_row(answer: ColumnAnswer, cell: CellAnswer) -> dict[str, Any]:
    low, high = cell.interval
    return {
        "column": answer.name,
        "cell": cell.label,
        "reference": cell.reference,
        "share": cell.share,
        "low": low,
        "high": high,
        "moved": cell.moved,
        "noisy_count": cell.count,
    }
