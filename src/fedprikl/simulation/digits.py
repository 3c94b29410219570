"""Handwritten digits as the paper codes them: one 16-bit code per image, and who wrote it."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from fedprikl.checks import Floats, Ints, check_counts
from fedprikl.errors import InvalidInputError
from fedprikl.simulation.population import Population

__all__ = ["CLASSES", "CODES", "Digits"]

CLASSES = 10
CODES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Digits:
    """One entry per image. A writer is a client; the images of one digit are a population.

    The domain has a cell for every code that occurs in any digit, and "other" at the end.
    """

    name: str  # where the images come from, for captions
    code: Ints
    label: Ints  # 0 .. 9
    writer: Ints  # any whole numbers; renumbered 0 .. writers-1
    real: bool = True  # False: made up
    codes: Ints = field(init=False)  # the code of each cell
    cell: Ints = field(init=False)
    writers: int = field(init=False)

    def __post_init__(self) -> None:
        code, label = check_counts(self.code, "codes"), check_counts(self.label, "labels")
        writer = check_counts(self.writer, "writers")
        if not len(code) == len(label) == len(writer):
            raise InvalidInputError("Every image needs one code, one label and one writer.")
        if not np.array_equal(np.unique(label), np.arange(CLASSES)):
            raise InvalidInputError("The images must show each of the digits 0 to 9, and no more.")
        if code.max() >= CODES:
            raise InvalidInputError(f"Codes have 16 bits: they must be below {CODES}.")
        codes, cell = np.unique(code, return_inverse=True)
        names, of_image = np.unique(writer, return_inverse=True)
        values = {"code": code, "label": label, "writer": of_image, "codes": codes, "cell": cell}
        for name, value in values.items():
            object.__setattr__(self, name, value.astype(np.int64))
        object.__setattr__(self, "writers", len(names))

    def __len__(self) -> int:
        return len(self.code)

    @property
    def cells(self) -> int:
        """Size of the domain, "other" included."""
        return len(self.codes) + 1

    @property
    def sha256(self) -> str:
        """Of all codes, labels and (renumbered) writers: equal for equal data, in any format."""
        digest = hashlib.sha256()
        for part in (self.code, self.label, self.writer):
            digest.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        return digest.hexdigest()

    def population(self, digit: int) -> Population:
        """All writers with their images of this digit."""
        mine = self.label == digit
        return Population(self.writer[mine], self.cell[mine], self.cells, self.writers)

    def counts(self, digit: int) -> Ints:
        """How many images of this digit fall into each cell."""
        return np.bincount(self.cell[self.label == digit], minlength=self.cells).astype(np.int64)

    def distribution(self, digit: int) -> Floats:
        """P_digit(x): the share of this digit's images in each cell."""
        counts = self.counts(digit)
        shares: Floats = counts / counts.sum()
        return shares
