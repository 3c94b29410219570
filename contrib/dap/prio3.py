"""The kinds of Prio3 that fit counts of a client: what they add up, and what they prove."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from contrib.dap.bits import from_bits, to_bits
from contrib.dap.report_size import ProofSize
from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["Prio3", "Prio3Histogram", "Prio3L1BoundSum", "Prio3SumVec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prio3(ABC):
    """Vectors of `length` counts, one of each report, that two aggregators add up unseen.

    A report is accepted only with a proof that its vector is a valid one. `encode` gives what is
    shared out between the aggregators, `truncate` what they add up; both are linear. Making and
    checking proofs is for a library of Prio3.
    """

    name: ClassVar[str]
    code: ClassVar[int]  # in the registry of VDAF identifiers

    length: int
    chunk_length: int  # elements that one call of the proof's gadget reads

    def __post_init__(self) -> None:
        for name, value in self.parameters().items():
            bits = 32 if name in ("length", "chunk_length") else 64
            if check_positive_int(value, name) >= 2**bits:
                raise InvalidInputError(f"{name} of {self.name} is below 2^{bits}.")

    @property
    @abstractmethod
    def encoded_length(self) -> int:
        """Field elements of an encoded vector."""

    @property
    @abstractmethod
    def provable(self) -> int:
        """The most records that one accepted report can add, whatever its sender does."""

    @property
    @abstractmethod
    def service_sensitivity(self) -> int:
        """The L1 sensitivity that libprio assumes when it adds noise to sums of this kind."""

    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """By their names in the draft, in the order of `configuration`."""

    @property
    @abstractmethod
    def configuration(self) -> bytes:
        """`vdaf_configuration` of a DAP task."""

    @property
    def proof_size(self) -> ProofSize:
        """How long its proofs are."""
        return ProofSize(self.encoded_length, self.chunk_length)

    def measurement(self, counts: Sequence[int]) -> int | list[int]:
        """What a library of Prio3 takes for these counts. SECRET."""
        return list(self._check(counts))

    @abstractmethod
    def encode(self, counts: Sequence[int]) -> tuple[int, ...]:
        """The field elements of these counts. SECRET."""

    @abstractmethod
    def truncate(self, elements: Sequence[int]) -> tuple[int, ...]:
        """The counts of an encoded vector, or their shares from its shares."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"type": self.name, **self.parameters()}

    def _check(self, counts: Sequence[int]) -> tuple[int, ...]:
        """The counts, if a report can hold them. The error shows none of them."""
        found = tuple(map(int, counts))
        fits = len(found) == self.length and all(count >= 0 for count in found)
        if not fits or sum(found) > self.provable:
            raise InvalidInputError(
                f"A report of {self.name} needs {self.length} counts of 0 or more that sum to at "
                f"most {self.provable}."
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Prio3Histogram(Prio3):
    """Exactly one record: one cell is 1 and all others are 0. VDAF draft, section 7.4.4.

    >>> kind = Prio3Histogram(length=4, chunk_length=2)
    >>> kind.encode([0, 0, 1, 0]), kind.measurement([0, 0, 1, 0])
    ((0, 0, 1, 0), 2)
    """

    name = "Prio3Histogram"
    code = 4

    @property
    def encoded_length(self) -> int:
        """One element for each cell."""
        return self.length

    @property
    def provable(self) -> int:
        """One."""
        return 1

    @property
    def service_sensitivity(self) -> int:
        """2: a report leaves one cell for another."""
        return 2

    def parameters(self) -> dict[str, int]:
        """Cells and chunk length."""
        return {"length": self.length, "chunk_length": self.chunk_length}

    @property
    def configuration(self) -> bytes:
        """`Prio3HistogramConfig`."""
        return struct.pack(">II", self.length, self.chunk_length)

    def measurement(self, counts: Sequence[int]) -> int:
        """The number of the one cell, from 0. SECRET."""
        return self.encode(counts).index(1)

    def encode(self, counts: Sequence[int]) -> tuple[int, ...]:
        """The counts themselves. SECRET."""
        found = self._check(counts)
        if sum(found) != 1:
            raise InvalidInputError("A report of Prio3Histogram counts exactly one record.")
        return found

    def truncate(self, elements: Sequence[int]) -> tuple[int, ...]:
        """All of it."""
        return tuple(elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prio3L1BoundSum(Prio3):
    """At most `max_value` records in all. draft-ietf-ppm-l1-bound-sum.

    The counts are written in bits, and their sum after them in as many.

    >>> kind = Prio3L1BoundSum(length=2, max_value=3, chunk_length=2)
    >>> kind.encode([1, 2])
    (1, 0, 0, 1, 1, 1)
    """

    name = "Prio3L1BoundSum"
    code = 7

    max_value: int

    @property
    def encoded_length(self) -> int:
        """The bits of all counts and of their sum."""
        return (self.length + 1) * self.max_value.bit_length()

    @property
    def provable(self) -> int:
        """`max_value`."""
        return self.max_value

    @property
    def service_sensitivity(self) -> int:
        """2 `max_value`: all records of a report leave one cell for another."""
        return 2 * self.max_value

    def parameters(self) -> dict[str, int]:
        """Cells, the largest sum, and chunk length."""
        return {
            "length": self.length,
            "max_value": self.max_value,
            "chunk_length": self.chunk_length,
        }

    @property
    def configuration(self) -> bytes:
        """`Prio3L1BoundSumConfig`."""
        return struct.pack(">IQI", self.length, self.max_value, self.chunk_length)

    def encode(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Bits of the counts, then of their sum. SECRET."""
        found = self._check(counts)
        return tuple(bit for count in (*found, sum(found)) for bit in to_bits(count, self.provable))

    def truncate(self, elements: Sequence[int]) -> tuple[int, ...]:
        """The counts without their sum."""
        return _read(elements, self.length, self.max_value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prio3SumVec(Prio3):
    """At most `max_measurement` records in every cell. VDAF draft, section 7.4.3.

    Nothing is proved about their sum, so a liar can fill all cells.

    >>> kind = Prio3SumVec(length=2, max_measurement=3, chunk_length=2)
    >>> kind.encode([1, 2]), kind.provable
    ((1, 0, 0, 1), 6)
    """

    name = "Prio3SumVec"
    code = 3

    max_measurement: int

    @property
    def encoded_length(self) -> int:
        """The bits of all counts."""
        return self.length * self.max_measurement.bit_length()

    @property
    def provable(self) -> int:
        """`max_measurement` in each cell."""
        return self.length * self.max_measurement

    @property
    def service_sensitivity(self) -> int:
        """2^bits - 1 in each cell: libprio rounds the maximum up to whole bits."""
        return self.length * ((1 << self.max_measurement.bit_length()) - 1)

    def parameters(self) -> dict[str, int]:
        """Cells, the largest count, and chunk length."""
        return {
            "length": self.length,
            "max_measurement": self.max_measurement,
            "chunk_length": self.chunk_length,
        }

    @property
    def configuration(self) -> bytes:
        """`Prio3SumVecConfig`."""
        return struct.pack(">IQI", self.length, self.max_measurement, self.chunk_length)

    def encode(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Bits of the counts. SECRET."""
        found = self._check(counts)
        return tuple(bit for count in found for bit in to_bits(count, self.max_measurement))

    def truncate(self, elements: Sequence[int]) -> tuple[int, ...]:
        """The counts of the bits."""
        return _read(elements, self.length, self.max_measurement)


def _read(elements: Sequence[int], length: int, maximum: int) -> tuple[int, ...]:
    """The first `length` counts that were written in bits."""
    bits = maximum.bit_length()
    return tuple(from_bits(elements[i * bits : (i + 1) * bits], maximum) for i in range(length))
