"""Counting records into cells, a chunk of rows at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import RecordsError
from fedprikl.records.data_files import Chunk, quoted_names
from fedprikl.records.drawing import Draw, Sample
from fedprikl.records.reference_draws import draw_reference
from fedprikl.reference import Indices, Reference, Table
from fedprikl.reference.columns import UNSEEN, Values
from fedprikl.reference.view_cells import ViewCounter

__all__ = ["CellReader", "RecordCounts"]

UNREADABLE = -2  # beside levels and `UNSEEN`: of a drawn record that is not even a row


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Levels:
    """Some rows: their level in each column; and how many records beside them are no rows."""

    of_columns: dict[str, Ints]
    unreadable: int


class CellReader:
    """Counts rows into a reference's cells; one reader serves any number of files."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
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

    def count(self, chunks: Iterable[Chunk], draw: Draw | None = None) -> RecordCounts:
        """h(x) for every cell x, and for every cell of every view: of all records, or of a draw.

        A draw is of whole records: the joint cell of each and its cells in all views belong
        together. It sums to k everywhere. Without any record to draw from it is of the reference,
        or empty where the client is to stay away.
        """
        if draw is None:
            return self._sum(map(self._read, chunks))
        found = self._sum(self._drawn(chunks, draw))
        return self._or_reference(found, draw)

    def count_array(self, records: Any, draw: Draw | None = None) -> RecordCounts:
        """The same of records that are no table: an array of images, or of cell numbers."""
        codes = self._domain.encoder.encode(records)
        if draw is not None:
            codes = codes[draw.places(len(codes))]
        counts = np.bincount(self._domain.cells_of(codes), minlength=self._domain.size)
        found = RecordCounts(counts.astype(np.int64), {}, int(np.count_nonzero(codes == UNSEEN)))
        return found if draw is None else self._or_reference(found, draw)

    def _or_reference(self, found: RecordCounts, draw: Draw) -> RecordCounts:
        """What was drawn; of a client without records, what the plan says."""
        if found.total or draw.empty == "away":
            return found
        counts, views = draw_reference(self._reference, draw.records, draw.randomness)
        return RecordCounts(counts, views=views)

    def _sum(self, parts: Iterable[_Levels]) -> RecordCounts:
        counts = np.zeros(self._domain.size, dtype=np.int64)
        views = () if self._views is None else self._views.none()
        unknown: dict[str, int] = {}
        records = unreadable = 0
        for part in parts:
            levels = list(part.of_columns.values())
            codes = self._codes(levels)
            counts += np.bincount(self._domain.cells_of(codes), minlength=len(counts))
            if self._views is not None:
                views = tuple(map(np.add, views, self._views.count(levels)))
            for name, of_column in part.of_columns.items():
                unknown[name] = unknown.get(name, 0) + int(np.count_nonzero(of_column == UNSEEN))
            records += int(np.count_nonzero(codes == UNSEEN))
            unreadable += part.unreadable
        for of_cells in (counts, *views):
            of_cells[-1] += unreadable
        return RecordCounts(counts, unknown, records, unreadable, views)

    def _drawn(self, chunks: Iterable[Chunk], draw: Draw) -> Iterator[_Levels]:
        """The drawn records, if there are any. Only what may be drawn is read beyond its line."""
        names: tuple[str, ...] = ()
        sample: Sample | None = None
        for chunk in chunks:
            names = names or self._names(chunk)
            sample = sample or draw.sample(len(names))
            sample.offer(chunk.rows + len(chunk.unreadable), partial(self._rows, chunk))
        if sample is None:
            return
        rows = sample.drawn()
        broken = rows[:, 0] == UNREADABLE
        levels = dict(zip(names, rows[~broken].T, strict=True))
        yield _Levels(levels, int(np.count_nonzero(broken)))

    def _rows(self, chunk: Chunk, places: Ints) -> Ints:
        """The levels of some records of a chunk, one row each; lines that are no rows come last."""
        inside = np.zeros(chunk.rows + len(chunk.unreadable), dtype=np.bool_)
        inside[places] = True
        read = self._read(Chunk(chunk.taken(inside[: chunk.rows])))
        levels = np.column_stack(list(read.of_columns.values()))
        broken = np.full((len(places) - len(levels), levels.shape[1]), UNREADABLE)
        return np.concatenate([levels, broken])

    def _read(self, chunk: Chunk) -> _Levels:
        """The level of each row in each column."""
        if self._levels is not None:
            levels = self._levels(chunk.columns)
        else:
            (values,) = chunk.columns.values()
            levels = [self._domain.encoder.encode(values)]
        of_columns = dict(zip(self._names(chunk), levels, strict=True))
        return _Levels(of_columns, len(chunk.unreadable))

    def _names(self, chunk: Chunk) -> tuple[str, ...]:
        encoder = self._domain.encoder
        return encoder.names if isinstance(encoder, Table) else tuple(chunk.columns)

    def _codes(self, levels: Sequence[Ints]) -> Ints:
        """The code of each row."""
        match self._domain.encoder:
            case Table() as table if self._joint:
                return table.combine(levels)
            case Table() as table:
                return np.where(table.unseen(levels), UNSEEN, 0)  # no code has a cell
        return levels[0]
