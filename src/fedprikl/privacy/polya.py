"""Polya (negative binomial) variables of fractional shape: shares of discrete Laplace noise.

    P(X = k) = Gamma(k + r) / (k! Gamma(r)) p^k (1 - p)^r,    r = 1 / shares,  p = exp(-1 / scale)

numpy samples them in floating point, from a generator that is not cryptographic. Here the
distribution function is tabulated in decimal arithmetic, far beyond the precision that matters, and
inverted with random bits.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["MOST_SHARES", "PolyaTable", "polya_reach", "polya_table", "tail_bits"]

SCALES = (0.004, 2_500.0)  # epsilon from 0.0008 to 500, where one record moves two counts
MOST_SHARES = 2**32
ROUNDING_BITS = 60  # a threshold is kept so many bits finer than the tail that is cut off


@dataclass(frozen=True, slots=True, eq=False)
class PolyaTable:
    """Thresholds T_0 <= T_1 <= ... of 2^bits: X is the number of them at or below a uniform draw.

    Off the true distribution by a total variation of less than 2^-(tail_bits - 1): less than
    2^-tail_bits lies beyond the table and is lumped at its end, and each of its fewer than 2^21
    thresholds is off by less than 2^(1 - bits), with bits >= tail_bits + 60.
    """

    bits: int
    thresholds: tuple[int, ...] = field(repr=False)
    upper: npt.NDArray[np.uint64] = field(repr=False)  # the first 64 bits of each threshold

    @classmethod
    def build(cls, scale: float, shares: int, coordinates: int = 2) -> "PolyaTable":
        """By the recurrence P(k + 1) = P(k) p (k + r) / (k + 1), at most a second."""
        precise = tail_bits(scale, coordinates) + ROUNDING_BITS
        bits = 64 * math.ceil(precise / 64)
        thresholds = []
        with localcontext(Context(prec=math.ceil(bits * math.log10(2)) + 20)):
            ratio = (-1 / Decimal(scale)).exp()
            mass = ((1 - ratio).ln() / shares).exp()
            below, whole = Decimal(0), Decimal(2**bits)
            for k in range(polya_reach(scale, coordinates)):
                below += mass
                thresholds.append(min(int(below * whole), 2**bits - 1))
                mass = mass * ratio * (k * shares + 1) / (shares * (k + 1))
        upper = np.array([t >> (bits - 64) for t in thresholds], dtype=np.uint64)
        return cls(bits, tuple(thresholds), upper)

    def draw(self, size: int, randomness: Callable[[int], bytes]) -> Ints:
        """So many independent variables from random bytes. Cost: about 20 ns each.

        64 bits settle all but one draw in 2^64 per threshold; that one gets all its bits.
        """
        first = np.frombuffer(randomness(8 * size), dtype="<u8").astype(np.uint64)
        found = np.searchsorted(self.upper, first, side="left")
        tied = np.flatnonzero(found != np.searchsorted(self.upper, first, side="right"))
        for i in tied.tolist():
            rest = int.from_bytes(randomness(self.bits // 8 - 8), "little")
            found[i] = bisect_right(self.thresholds, (int(first[i]) << (self.bits - 64)) | rest)
        return found.astype(np.int64)


def tail_bits(scale: float, coordinates: int = 2) -> int:
    """The table leaves out less than 2^-tail_bits <= 2^-99 e^-epsilon / coordinates, where one
    record moves so many counts: epsilon = coordinates / scale.
    """
    more = (max(coordinates, 2) - 1).bit_length() - 1  # of coordinates / 2, rounded up
    return 100 + more + math.ceil(max(coordinates, 2) / (scale * math.log(2)))


def polya_reach(scale: float, coordinates: int = 2) -> int:
    """The largest value drawn: beyond it lies less than 2^-tail_bits.

    A Polya variable of shape r <= 1 is at most a geometric one (add another of shape 1 - r), which
    exceeds k with probability p^(k + 1) = exp(-(k + 1) / scale).
    """
    return math.ceil(tail_bits(scale, coordinates) * math.log(2) * scale)


@lru_cache(maxsize=64)
def polya_table(scale: float, shares: int, coordinates: int = 2) -> PolyaTable:
    """The table of one share among `shares`, for counts of which one record moves so many."""
    low, high = SCALES
    if not low <= check_finite(scale, "scale") <= high:
        raise InvalidInputError(
            f"Discrete Laplace noise is drawn for a scale from {low:g} to {high:g}, got {scale:g}. "
            "Use Gaussian noise."
        )
    if check_positive_int(shares, "shares") > MOST_SHARES:
        raise InvalidInputError(f"Noise is split into at most {MOST_SHARES:,} shares.")
    return PolyaTable.build(float(scale), int(shares), int(coordinates))
