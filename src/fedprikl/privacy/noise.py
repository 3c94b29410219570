"""Noise. Release noise comes from OpenDP only, which survives floating-point attacks.

Every value is rounded to the grid 2^GRID_EXPONENT and gets exact discrete noise on that grid, so
the low bits of a release carry nothing about the data.
"""

from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.privacy.libraries import opendp

__all__ = ["GRID_EXPONENT", "SECURE_NOISE", "InsecureSeededNoise", "NoiseSource", "SecureNoise"]

GRID_EXPONENT = -40


class NoiseSource(Protocol):
    """Adds independent noise to each value of a list."""

    insecure: ClassVar[bool]

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale)."""
        ...

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2)."""
        ...

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + discrete Gaussian with parameter sigma."""
        ...


class SecureNoise:
    """OpenDP's discrete samplers on a fixed grid, fed by the operating system's randomness.

    Cost: about 10 microseconds a value.
    """

    insecure: ClassVar[bool] = False

    def laplace(self, values: npt.ArrayLike, *, scale: float) -> Floats:
        """values + Laplace(scale), on the grid."""
        clean, size = _clean(values, scale, "scale")
        return np.array(_opendp_laplace(size, len(clean))(clean.tolist()), dtype=np.float64)

    def gaussian(self, values: npt.ArrayLike, *, sigma: float) -> Floats:
        """values + N(0, sigma^2), on the grid."""
        clean, size = _clean(values, sigma, "sigma")
        return np.array(_opendp_gaussian(size, len(clean))(clean.tolist()), dtype=np.float64)

    def integer_gaussian(self, counts: npt.ArrayLike, *, sigma: float) -> Ints:
        """counts + discrete Gaussian with parameter sigma."""
        clean, size = _clean(counts, sigma, "sigma")
        if np.any(clean != np.floor(clean)) or np.any(np.abs(clean) > 2**53):
            raise InvalidInputError("Integer noise is added to whole numbers only.")
        whole = clean.astype(np.int64)
        return np.array(_opendp_integer_gaussian(size)(whole.tolist()), dtype=np.int64)

    def __repr__(self) -> str:
        return "SecureNoise()"


SECURE_NOISE = SecureNoise()


class InsecureSeededNoise:
    """NOT PRIVATE: numpy noise from a seed, for simulations and repeatable experiments only.

    Anyone who knows or guesses the seed can subtract it, and numpy's floats leak the value through
    their low bits. Every result made with it is marked insecure.
    """

    insecure: ClassVar[bool] = True

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

    def __repr__(self) -> str:
        return "InsecureSeededNoise(...)"


def _clean(values: npt.ArrayLike, scale: float, name: str) -> tuple[Floats, float]:
    """OpenDP accepts nan and infinity and adds noise to them: refuse them here."""
    clean = np.asarray(values, dtype=np.float64)
    if clean.ndim != 1 or not np.all(np.isfinite(clean)):
        raise InvalidInputError("Noise is added to one list of finite numbers only.")
    check_positive_int(len(clean), "the number of values")
    if check_finite(scale, name) <= 0:
        raise InvalidInputError(f"The noise {name} must be above 0, got {scale}.")
    return clean, float(scale)


def _vector(size: int) -> Any:
    dp = opendp()
    return dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)


@lru_cache(maxsize=64)
def _opendp_laplace(scale: float, size: int) -> Any:
    dp = opendp()
    return dp.m.make_laplace(_vector(size), dp.l1_distance(T=float), scale, k=GRID_EXPONENT)


@lru_cache(maxsize=64)
def _opendp_gaussian(sigma: float, size: int) -> Any:
    dp = opendp()
    return dp.m.make_gaussian(_vector(size), dp.l2_distance(T=float), sigma, k=GRID_EXPONENT)


@lru_cache(maxsize=64)
def _opendp_integer_gaussian(sigma: float) -> Any:
    dp = opendp()
    return dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), sigma
    )
