"""Views: one column of a reference by itself, or a pair of columns. Public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.spread import Spread, spread_around
from fedprikl.reference.unseen import Unseen

__all__ = ["View"]


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
