"""The probabilities of a reference, rare cells in groups, so that planning costs the same for all.

On 2^20 cells most are rare and alike; a plan need not look at each.
"""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_probabilities
from fedprikl.errors import InvalidInputError

__all__ = ["Spectrum"]

SINGLE, GROUPS = 1024, 1024  # cells that stand for themselves, and groups of the others


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Probabilities above 0, falling, and how many cells have each (nearly)."""

    pi: Floats
    copies: Ints

    @classmethod
    def of(cls, probabilities: Floats) -> "Spectrum":
        """The spectrum of a reference. Cost: a sort."""
        checked = check_probabilities(probabilities, "probabilities")
        falling = np.sort(checked[checked > 0])[::-1]
        if len(falling) <= SINGLE + GROUPS:
            return cls(falling, np.ones(len(falling), np.int64))
        starts = np.concatenate(
            [np.arange(SINGLE), np.linspace(SINGLE, len(falling), GROUPS, endpoint=False)]
        ).astype(np.int64)
        copies = np.diff(starts, append=len(falling))
        return cls(np.add.reduceat(falling, starts) / copies, copies)

    @property
    def cells(self) -> int:
        """Cells with probability above 0."""
        return int(self.copies.sum())

    @property
    def mass(self) -> Floats:
        """Of all cells of each probability."""
        mass: Floats = self.pi * self.copies
        return mass

    def shares(self, points: int, exponent: float) -> Floats:
        """f(x) = min(1, k Pi^exponent) with sum m: `spread_shares` for the spectrum."""
        if points >= self.cells:
            return np.ones(len(self.pi))
        if not 0 <= exponent <= 1:
            raise InvalidInputError(f"The exponent lies between 0 and 1, got {exponent}.")
        sizes = self.pi**exponent  # falling, so those that reach 1 come first
        before = np.concatenate([[0], np.cumsum(self.copies)[:-1]])
        rest = np.cumsum((sizes * self.copies)[::-1])[::-1]
        scale = (points - before) / rest  # if all before are certain and none after
        first = int(np.argmax(scale * sizes < 1))
        shares: Floats = np.minimum(1.0, scale[first] * sizes)
        shares[:first] = 1.0
        return shares
