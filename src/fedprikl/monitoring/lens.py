"""Lenses: the same counts, cell by cell, in groups that often drift together, and the rest."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints

__all__ = ["Lens", "lenses_of", "rest_lens"]

RARE, NEAR = 4, 8  # groups


@dataclass(frozen=True, slots=True, eq=False)
class Lens:
    """Which counts are added up. Values have the rest last: records in no cell of the reference.

    The noise of a group's cells averages out, a common drift adds up: a drift of many rare cells,
    each of them drowned in noise, is seen in their group.
    """

    groups: Floats | None = None  # 1 where a count is in a group, (cells + 1, groups); None: cells
    rest: bool = False  # whether it looks at the rest alone

    def sums(self, values: Floats) -> Floats:
        """Values of cells and the rest, along the last axis, added up in every group.

        >>> values = np.array([3.0, 4.0, 9.0])
        >>> Lens(np.array([[1.0], [1.0], [0.0]])).sums(values), Lens().sums(values)
        (array([7.]), array([3., 4.]))
        """
        return values[..., :-1] if self.groups is None else np.asarray(values @ self.groups)


def lenses_of(pi: Floats, cells: Ints) -> tuple[Lens, ...]:
    """Equally rare cells in groups, and neighbours in the order of the reference."""
    if len(pi) < 2 * NEAR:
        return ()
    rare, near = np.argsort(pi, kind="stable"), np.argsort(cells)
    return Lens(_groups(rare, RARE)), Lens(_groups(near, NEAR))


def rest_lens(cells: int) -> Lens:
    """The records in no cell."""
    return Lens(np.eye(cells + 1)[:, -1:], rest=True)


def _groups(order: Ints, groups: int) -> Floats:
    found = np.zeros((len(order) + 1, groups))
    found[order, np.arange(len(order)) * groups // len(order)] = 1.0
    return found
