"""Views: one column of a reference by itself, or a pair of columns. Public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.correlation import Correlation, Unseen
from fedprikl.reference.domain import Domain, Encoder, Table
from fedprikl.reference.spread import Spread, spread_around

FEW = 2**16  # levels that are counted without a search


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The distribution of one column, or of a pair of columns, in the reference.

    Its cells are the levels (of a pair: the combinations of levels) that the reference has seen;
    every record belongs to one of them or to "other".
    """

    columns: tuple[str, ...]  # one, or two
    labels: tuple[str, ...]  # per cell, without "other"
    mass: Floats  # per cell, "other" last
    correlation: Correlation | None = None  # of one client's records, if the data had client ids
    codes: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # see `view_of`

    def __post_init__(self) -> None:
        if np.shape(self.mass) != (len(self.labels) + 1,) or not self.labels:
            raise InvalidInputError("A view needs a mass for each of its cells, and for 'other'.")

    @property
    def size(self) -> int:
        """Number of cells, without "other"."""
        return len(self.labels)

    @property
    def probabilities(self) -> Floats:
        """Pi(x) per cell, "other" last; sums to 1."""
        found: Floats = self.mass / self.mass.sum()
        return found

    def spread(self, *, clients: Sequence[int]) -> Spread:
        """How counts of a population vary around N Pi if it has not drifted, cell by cell.

        `clients` are those of each batch, as for `Reference.spread`.
        """
        return spread_around(self.mass, self.correlation, clients)

    def unseen(self, *, clients: int, records: int, design_effect: float | None = None) -> Unseen:
        """How many records of such a population lie in "other" if it has not drifted.

        A `design_effect` stands for the reference's own correlation, as in a plan.
        """
        kind, counted = self.correlation, round(float(self.mass.sum()))
        known = float(self.probabilities[-1])
        own = effect = design_effect or 1.0
        if kind is not None and design_effect is None:
            own = kind.rare_effect(clients=kind.clients, records=max(counted, 1))
            effect = kind.rare_effect(clients=clients, records=records)
        if counted <= 1:  # probabilities
            return Unseen(shape=1.0, scale=0.0, effect=effect, known=known)
        share, error = (0.0, 0.0) if kind is None else (kind.missed, kind.missed_error)
        if kind is None:  # every record a client of its own
            once, twice = (np.count_nonzero(self.mass[:-1] == held) for held in (1, 2))
            share, error = once / counted, math.sqrt(once + 2 * twice) / counted
        return Unseen.of(
            share=share,
            error=error,
            counted=counted,
            reference_effect=own,
            effect=effect,
            known=known,
        )


def view_of(
    table: Table,
    columns: Sequence[str],
    codes: Ints,
    mass: Floats,
    correlation: Correlation | None = None,
) -> View:
    """The view of some columns; `codes` are those of its cells in a table of these columns alone.

    A cell of one column is called by its level alone, one of a pair like a cell of a table.
    """
    part = table.part(columns)
    label = part.columns[0].label if len(columns) == 1 else part.label
    labels = tuple(label(code) for code in codes.tolist())
    return View(tuple(columns), labels, mass, correlation, codes)


def check_pairs(names: Sequence[str], pairs: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The pairs, if each names two of the compared columns, and none is named twice."""
    found: list[tuple[str, str]] = []
    for pair in pairs:
        if isinstance(pair, str) or len(pair) != 2 or pair[0] == pair[1]:
            raise InvalidInputError(
                f"A pair is two different columns, like ('age', 'plan'); got {pair!r:.60}."
            )
        unknown = [name for name in pair if name not in names]
        if unknown:
            raise InvalidInputError(
                f"The pair {pair[0]!r}, {pair[1]!r} is not of compared columns: there is no "
                f"{', '.join(map(repr, unknown))} among {', '.join(map(repr, names))}."
            )
        found.append((pair[0], pair[1]))
    if len(set(map(frozenset, found))) < len(found):
        raise InvalidInputError("A pair of columns is named twice. Name it once.")
    return found


def check_views(encoder: Encoder, mass: Floats, views: Sequence[View]) -> None:
    """Refuses views that are not of this table, or that do not hold all of its records."""
    if not views:
        return
    if not isinstance(encoder, Table):
        raise InvalidInputError("Only a reference of a table has views of columns.")
    if len({frozenset(view.columns) for view in views}) < len(views):
        raise InvalidInputError("A reference has each view of its columns once.")
    total = float(mass.sum())
    for view in views:
        if not 1 <= len(set(view.columns)) == len(view.columns) <= 2:
            raise InvalidInputError("A view is of one column, or of two different ones.")
        if not set(view.columns) <= set(encoder.names) or len(view.codes) != view.size:
            raise InvalidInputError("A view must be of the reference's columns and their levels.")
        Domain(encoder.part(view.columns), view.codes)  # distinct, sorted and in range
        held = view.mass
        if not (np.all(held[:-1] > 0) and held[-1] >= 0 and np.isclose(held.sum(), total, 1e-9)):
            raise InvalidInputError("Every view must hold all records, some in each of its cells.")


@dataclass(frozen=True, slots=True, eq=False)
class ViewRows:
    """The codes of a table's rows in the view of some of its columns."""

    part: Table
    places: tuple[int, ...]  # of the view's columns among the table's

    @classmethod
    def of(cls, table: Table, columns: Sequence[str]) -> "ViewRows":
        """Of these columns."""
        return cls(table.part(columns), tuple(table.names.index(name) for name in columns))

    def codes(self, levels: Sequence[Ints]) -> Ints:
        """From one array of levels per column of the table; `UNSEEN` where a level is."""
        if len(self.places) == 1:
            return levels[self.places[0]]
        return self.part.combine([levels[place] for place in self.places])


class ViewCounter:
    """Counts rows into the cells of all views at once. Cost: a few passes per column."""

    def __init__(self, table: Table, views: Sequence[View]) -> None:
        self._views = [
            (rows, Domain(rows.part, view.codes))
            for view in views
            for rows in (ViewRows.of(table, view.columns),)
        ]

    def none(self) -> tuple[Ints, ...]:
        """The counts of no rows."""
        return tuple(np.zeros(domain.size, dtype=np.int64) for _, domain in self._views)

    def count(self, levels: Sequence[Ints]) -> tuple[Ints, ...]:
        """Per view: how many rows fall into each cell, "other" last."""
        return tuple(_counted(domain, rows.codes(levels)) for rows, domain in self._views)


def _counted(domain: Domain, codes: Ints) -> Ints:
    if domain.encoder.size > FEW:
        return np.bincount(domain.cells_of(codes), minlength=domain.size).astype(np.int64)
    tally = np.bincount(codes + 1, minlength=domain.encoder.size + 1)  # `UNSEEN` is -1
    cells = tally[domain.codes + 1]
    return np.append(cells, len(codes) - cells.sum()).astype(np.int64)
