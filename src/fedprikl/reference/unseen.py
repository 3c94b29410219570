"""What a finite reference has missed: the share of records in cells that it never saw. Public."""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints

__all__ = ["Unseen", "missed_share"]


def missed_share(cell: Ints, held: Floats) -> tuple[float, float]:
    """The share of records that the next client has in cells not seen so far, and its error.

    From the records of every (client, cell) pair that occurs. Without a client, the reference would
    not have seen the cells that this client alone holds (Good, 1953, with clients for records):

        share = S1 / N,   error^2 = (sum_1 h^2 + sum_2 2 h h') / N^2

    S1 and sum_1 go over the cells of one holder; sum_2 over those of two, which hold h and h'.

    >>> missed_share(np.array([0, 0, 0, 1, 1, 2]), np.array([3.0, 1.0, 2.0, 1.0, 1.0, 2.0]))
    (0.2, 0.2449489742783178)
    """
    holders, total = np.bincount(cell), float(held.sum())
    mass, squares = np.bincount(cell, held), np.bincount(cell, held**2)
    once, twice = holders == 1, holders == 2
    variance = float(squares[once].sum() + (mass[twice] ** 2 - squares[twice]).sum())
    return float(mass[once].sum()) / total, math.sqrt(variance) / total


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """How many records of a population without drift lie in none of the reference's cells.

        R ~ Poisson(N G),   G ~ Gamma of mean known + u and variance (known + u) (d - 1) / N
        u ~ Gamma(shape) scale

    u is what the reference has missed. Its law has the mean and the variance of Good's estimate,
    with one more holder: a reference without any cell of one holder may have missed a cell of a
    share u with probability exp(-N_reference u / d). Then R of unrelated records is at least r
    with probability (N / (N + N_reference))^r, as in an exact test of one cell with no record of
    the reference. d is by how much a client's records come together in a rare cell.

    >>> law = Unseen.of(share=0.0, error=0.0, counted=10_000, reference_effect=1.0, effect=1.0)
    >>> law.shape, law.scale
    (1.0, 0.0001)
    """

    shape: float
    scale: float  # 0: the reference is exact
    effect: float  # d of the population
    known: float = 0.0  # the reference's own share of records in none of its cells

    @classmethod
    def of(
        cls,
        *,
        share: float,
        error: float,
        counted: int,
        reference_effect: float,
        effect: float,
        known: float = 0.0,
    ) -> "Unseen":
        """From `missed_share` of a reference of so many records, and both design effects."""
        one = reference_effect / counted
        mean, variance = share + one, error**2 + one**2
        shape = max(mean**2 / variance, 1.0)
        return cls(shape=shape, scale=math.sqrt(variance / shape), effect=effect, known=known)

    def draw(self, records: int, draws: int, rng: np.random.Generator) -> Floats:
        """R of so many populations of N records."""
        mean = self.known + self.scale * rng.gamma(self.shape, size=draws)
        together = (self.effect - 1) / records
        if together > 0:
            mean = together * rng.gamma(mean / together)
        return np.minimum(rng.poisson(records * mean), records).astype(np.float64)
