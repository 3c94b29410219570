"""Views: one column of a reference by itself, or a pair of columns. Public."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.errors import InvalidInputError
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.spread import Spread, spread_around

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
