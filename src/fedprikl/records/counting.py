"""Counting records into cells, a chunk of rows at a time."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import RecordsError
from fedprikl.records.data_files import Chunk, quoted_names
from fedprikl.reference import Indices, Reference, Table
from fedprikl.reference.columns import UNSEEN, Values
from fedprikl.reference.view_cells import ViewCounter

__all__ = ["CellReader", "RecordCounts"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RecordCounts:
    """How a client's records fall into the cells. Secret: it never leaves the client unmasked.

    Besides the counts, all of it is for the owner of the records only.
    """

    counts: Ints  # h(x) per cell, "other" last
    unknown: Mapping[str, int] = field(default_factory=dict)  # per column: values not in Pi
    unknown_records: int = 0  # with at least one such value
    unreadable: int = 0  # records that are not even a row, such as a line with a field too many
    views: tuple[Ints, ...] = ()  # per view of the reference: h(x) of its cells, "other" last

    @property
    def total(self) -> int:
        """Number of records; none is ever lost."""
        return int(self.counts.sum())

    @property
    def other(self) -> int:
        """Records the reference has no cell for: `unknown_records`, `unreadable` and `unpaired`.

        All of them if the reference has no joint cells.
        """
        return int(self.counts[-1])

    @property
    def unpaired(self) -> int:
        """Records whose values are known, but were never seen together; 0 without joint cells."""
        if len(self.counts) == 1:
            return 0
        return self.other - self.unknown_records - self.unreadable

    def __repr__(self) -> str:
        return f"RecordCounts({len(self.counts)} cells, counts not shown)"


class CellReader:
    """Counts rows into a reference's cells; one reader serves any number of files."""

    def __init__(self, reference: Reference) -> None:
        self._domain, self._joint = reference.domain, reference.joint
        self._levels: Callable[[Mapping[str, Values]], list[Ints]] | None = None
        self._views: ViewCounter | None = None
        if isinstance(reference.domain.encoder, Table):
            self._levels = reference.domain.encoder.reader()
            self._views = ViewCounter(reference.domain.encoder, reference.views)

    def columns(self, available: Sequence[str], where: object) -> tuple[str, ...]:
        """The columns that are needed, of those available."""
        match self._domain.encoder:
            case Table() as table:
                return table.names
            case Indices() if "cell" in available:
                return ("cell",)
            case Indices() if len(available) == 1:
                return tuple(available)
            case Indices():
                raise RecordsError(
                    f"Records of this reference are cell numbers, but {where} has no column 'cell' "
                    f"among {quoted_names(available)}. Name the column with the numbers 'cell'."
                )
        raise RecordsError(
            f"The reference is of images, and {where} is a table. Pass the images as an array, or "
            "use a reference built from a table."
        )

    def count(self, chunks: Iterable[Chunk]) -> RecordCounts:
        """h(x) for every cell x, and for every cell of every view."""
        counts = np.zeros(self._domain.size, dtype=np.int64)
        views = () if self._views is None else self._views.none()
        unknown: dict[str, int] = {}
        records = unreadable = 0
        for chunk in chunks:
            codes, levels = self._codes(chunk.columns)
            counts += np.bincount(self._domain.cells_of(codes), minlength=len(counts))
            if self._views is not None:
                found = self._views.count(list(levels.values()))
                views = tuple(map(np.add, views, found))
            for name, of_column in levels.items():
                unknown[name] = unknown.get(name, 0) + int(np.count_nonzero(of_column == UNSEEN))
            records += int(np.count_nonzero(codes == UNSEEN))
            unreadable += len(chunk.unreadable)
        for of_cells in (counts, *views):
            of_cells[-1] += unreadable
        return RecordCounts(counts, unknown, records, unreadable, views)

    def _codes(self, columns: Mapping[str, Values]) -> tuple[Ints, dict[str, Ints]]:
        """The code of each row, and its level in each column."""
        match self._domain.encoder:
            case Table() as table if self._levels is not None:
                levels = self._levels(columns)
                by_name = dict(zip(table.names, levels, strict=True))
                if self._joint:
                    return table.combine(levels), by_name
                return np.where(table.unseen(levels), UNSEEN, 0), by_name  # no code has a cell
            case encoder:
                ((name, values),) = columns.items()
                codes = encoder.encode(values)
                return codes, {name: codes}
