"""Noise. Release noise comes from OpenDP, which survives floating-point attacks, or, for shares of
discrete Laplace noise, which OpenDP lacks, from an integer table and the system's random bytes.

Every real value is rounded to the grid 2^GRID_EXPONENT and gets exact discrete noise on that grid,
so the low bits of a release carry nothing about the data.
"""

import math
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.libraries import opendp

SCALES = (0.004, 2_500.0)  # epsilon from 0.0008 to 500, where one record moves two counts
MOST_SHARES = 2**32
ROUNDING_BITS = 60  # a threshold is kept so many bits finer than the tail that is cut off
GRID_EXPONENT = -40


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
    """The table of one share among `shares`, for counts of which one record moves so many.

    By the recurrence P(k + 1) = P(k) p (k + r) / (k + 1), at most a second.
    """
    low, high = SCALES
    if not low <= check_finite(scale, "scale") <= high:
        raise InvalidInputError(
            f"Discrete Laplace noise is drawn for a scale from {low:g} to {high:g}, got {scale:g}. "
            "Use Gaussian noise."
        )
    if check_positive_int(shares, "shares") > MOST_SHARES:
        raise InvalidInputError(f"Noise is split into at most {MOST_SHARES:,} shares.")
    bits = 64 * math.ceil((tail_bits(scale, coordinates) + ROUNDING_BITS) / 64)
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
    return PolyaTable(bits, tuple(thresholds), upper)


# Rounding two neighbouring values to the sampler's grid can move them apart by one step, and the
# discrete Gaussian's tail is off the continuous one by at most one more; four steps cover both.
GRID_SLACK = 4 * 2.0**GRID_EXPONENT


class NoiseSource(Protocol):
    """Adds independent noise to each value of a list."""

    insecure: ClassVar[bool]

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale)."""

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2)."""

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + discrete Gaussian with parameter sigma."""

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        """counts + discrete Laplace: P(k) proportional to exp(-|k| / scale)."""

    def laplace_share(
        self, entries: int, *, scale: float, shares: int, coordinates: int = 2
    ) -> Ints:
        """Noise of which `shares` independent draws add up to discrete Laplace noise.

        Drawn finely enough for entries of which one record moves `coordinates` by 1.
        """

    def below(self, end: int) -> int:
        """0, 1, ..., end - 1, each with the same probability; `end` may be of any size."""


class SecureNoise:
    """Exact discrete samplers on a fixed grid, fed by the operating system's randomness.

    Cost: about 10 microseconds a value; a share of Laplace noise, well under 1.
    """

    insecure: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "SecureNoise()"

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale), on the grid."""
        clean, size = _clean(values, scale, "scale")
        return np.array(_sampler("laplace", size, len(clean))(clean.tolist()), dtype=np.float64)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2), on the grid."""
        clean, size = _clean(values, sigma, "sigma")
        return np.array(_sampler("gaussian", size, len(clean))(clean.tolist()), dtype=np.float64)

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + discrete Gaussian with parameter sigma."""
        clean, size = _clean(counts, sigma, "sigma")
        return np.array(_sampler("gaussian", size, None)(_whole(clean)), dtype=np.int64)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        """counts + discrete Laplace with parameter scale."""
        clean, size = _clean(counts, scale, "scale")
        return np.array(_sampler("laplace", size, None)(_whole(clean)), dtype=np.int64)

    def laplace_share(
        self, entries: int, *, scale: float, shares: int, coordinates: int = 2
    ) -> Ints:
        """The difference of two Polya variables of shape 1 / shares, for each entry."""
        table = polya_table(scale, shares, coordinates)
        both = table.draw(2 * check_positive_int(entries, "entries"), os.urandom)
        return both[:entries] - both[entries:]

    def below(self, end: int) -> int:
        """Exactly uniform, from the operating system's randomness, by rejection."""
        return secrets.randbelow(end)


SECURE_NOISE = SecureNoise()


class InsecureSeededNoise:
    """NOT PRIVATE: numpy noise from a seed, for simulations and repeatable experiments only.

    Anyone who knows or guesses the seed can subtract it, and numpy's floats leak the value through
    their low bits. Every result made with it is marked insecure.

    >>> noise = InsecureSeededNoise(1)
    >>> first = noise.laplace([0.0], scale=1.0)
    >>> bool(first == InsecureSeededNoise(1).laplace([0.0], scale=1.0))
    True
    >>> noise.insecure
    True
    """

    insecure: ClassVar[bool] = True

    def __repr__(self) -> str:
        return "InsecureSeededNoise(...)"

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale)."""
        clean, size = _clean(values, scale, "scale")
        return clean + self._rng.laplace(0, size, len(clean))

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2)."""
        clean, size = _clean(values, sigma, "sigma")
        return clean + self._rng.normal(0, size, len(clean))

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + rounded Gaussian."""
        return np.rint(self.gaussian(counts, sigma=sigma)).astype(np.int64)

    def integer_laplace(self, counts: npt.ArrayLike, *, scale: float) -> Ints:
        """counts + the difference of two geometric variables."""
        clean, size = _clean(counts, scale, "scale")
        return clean.astype(np.int64) + self.laplace_share(len(clean), scale=size, shares=1)

    def laplace_share(
        self,
        entries: int,
        *,
        scale: float,
        shares: int,
        coordinates: int = 2,  # noqa: ARG002  floats are as fine as they are
    ) -> Ints:
        """The difference of two negative binomial variables, for each entry."""
        shape, success = 1 / check_positive_int(shares, "shares"), -np.expm1(-1 / scale)
        above, below = self._rng.negative_binomial(shape, success, (2, entries))
        difference: Ints = above - below
        return difference

    def below(self, end: int) -> int:
        """By rejection, from the seed."""
        bits = end.bit_length()
        while True:
            drawn = int.from_bytes(self._rng.bytes(bits // 8 + 1)) >> (8 - bits % 8)
            if drawn < end:
                return drawn


def _clean(values: npt.ArrayLike, scale: float, name: str) -> tuple[Floats, float]:
    """OpenDP accepts nan and infinity and adds noise to them: refuse them here."""
    clean = np.asarray(values, dtype=np.float64)
    if clean.ndim != 1 or not np.all(np.isfinite(clean)):
        raise InvalidInputError("Noise is added to one list of finite numbers only.")
    check_positive_int(len(clean), "the number of values")
    if check_finite(scale, name) <= 0:
        raise InvalidInputError(f"The noise {name} must be above 0, got {scale}.")
    return clean, float(scale)


def _whole(clean: Floats) -> list[int]:
    if np.any(clean != np.floor(clean)) or np.any(np.abs(clean) > 2**53):
        raise InvalidInputError("Integer noise is added to whole numbers only.")
    whole: list[int] = clean.astype(np.int64).tolist()
    return whole


@lru_cache(maxsize=64)
def _sampler(law: Literal["laplace", "gaussian"], scale: float, size: int | None) -> Any:
    """OpenDP's noise on a list: of so many reals, on the grid, or of whole numbers (None)."""
    dp = opendp()
    make, distance = (
        (dp.measurements.make_laplace, dp.metrics.l1_distance)
        if law == "laplace"
        else (dp.measurements.make_gaussian, dp.metrics.l2_distance)
    )
    vector, entry = dp.domains.vector_domain, dp.domains.atom_domain
    if size is None:
        return make(vector(entry(T="i64")), distance(T=float), scale)
    reals = vector(entry(T=float, nan=False), size=size)
    return make(reals, distance(T=float), scale, k=GRID_EXPONENT)
