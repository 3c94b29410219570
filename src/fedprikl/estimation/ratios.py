"""Draws of P / Pi of populations without drift: how their clients, and Pi itself, happen to be."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.reference import Spread
from fedprikl.reference.spread import CellSpread

__all__ = ["Ratios"]

LARGEST = 9.0  # variance of a ratio; with more, hardly any population holds the cell


@dataclass(frozen=True, slots=True, eq=False)
class Ratios:
    """P / Pi in the asked cells, before records are drawn.

    With the covariance of the spread, and positive: a ratio of mean 1 and variance v is

        r = max(0, 1 - v/9 + g/3)^3,    g normal with variance v

    nearly a Gamma variable (Wilson and Hilferty, 1931), as a mean over few clients is. What the
    reference's own sampling adds is the same for all batches, and lowers the mean of cells that
    happened to be seen. How much clients differ was estimated from few clients, and in each cell
    from its holders, so draws are Student's and not normal. Clients differ unequally, so a
    population differs by more or less in all cells together (`unlike`).
    """

    spread: Spread
    pi: Floats
    alike: CellSpread
    mean: Floats  # of P / Pi
    strength: Floats  # variance between clients over the one estimated, (draws, 1)
    own: Floats  # a / Pi of each cell, (draws, terms)
    known: Floats  # the reference's own error in each cell, (draws, terms)
    common: Floats  # and in each factor, (draws, factors)

    @classmethod
    def draw(
        cls, spread: Spread, cells: Ints, pi: Floats, draws: int, rng: np.random.Generator
    ) -> "Ratios":
        """With the reference's own error, which all batches share."""
        alike = spread.of(cells, pi)
        mean = 1 - spread.discount * np.minimum(spread.counting(alike, pi), 1.0)
        strength = _over_estimate(np.array([spread.freedom]), draws, rng)
        own = alike.own * strength * _over_estimate(spread.own_freedom(alike, pi), draws, rng)
        deviates = rng.standard_normal((draws, len(alike.common)))
        common = deviates * np.sqrt(spread.between_counted * strength)
        sd = np.sqrt(_own(spread, own, pi) / mean)
        known = rng.standard_normal((draws, len(pi))) * sd
        return cls(spread, pi, alike, mean, strength, own, known, common)

    def shares(self, terms: Ints, between: float, clients: int, rng: np.random.Generator) -> Floats:
        """P of a batch in the cells it is asked, and of all others: (draws, cells + 1)."""
        pi, own, common = self.pi[terms], self.own[:, terms], self.alike.common[:, terms]
        mean = self.mean[terms]
        shape = (len(self.strength), len(pi))
        weight = between * self._unequal(clients, rng)
        error = self.known[:, terms] + rng.standard_normal(shape) * np.sqrt(weight * own)
        variance = weight * own + _own(self.spread, own, pi) / mean
        rest = max(0.0, 1 - float(pi.sum()))
        moved = np.zeros(shape[0])
        if len(common):
            scale = np.sqrt(weight * self.strength)
            factors = self.common + scale * rng.standard_normal(self.common.shape)
            error += factors @ common
            both = (weight + self.spread.between_counted) * self.strength
            variance = variance + both * np.sum(common**2, axis=0)
            moved = factors @ (common @ pi)  # what the asked cells gain, the others lose
        asked = pi * mean * gamma_like(error, variance)
        others = np.maximum(rest - moved, rest / 10) + float(pi @ (1 - mean))
        shares = np.column_stack([asked, others])
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _unequal(self, clients: int, rng: np.random.Generator) -> Floats:
        """How much these clients differ over what so many differ on average, (draws, 1)."""
        if not self.spread.unlike:
            return np.ones_like(self.strength)
        shape = max(clients / self.spread.unlike, 1.0)
        return rng.gamma(shape, 1 / shape, self.strength.shape)


def gamma_like(error: Floats, variance: Floats) -> Floats:
    """Ratios of mean 1 from normal errors of this variance; nearly Gamma variables."""
    kept = np.minimum(variance, LARGEST)
    scale = np.sqrt(kept / np.maximum(variance, 1e-300))
    root = 1 - kept / 9 + scale * error / 3
    return np.asarray(np.maximum(root, 0.0) ** 3)


def _over_estimate(freedom: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """A variance over its estimate of such degrees of freedom, (draws, estimates)."""
    known = np.isinf(freedom)
    if np.all(known):
        return np.ones((draws, 1))
    some = np.where(known, 1.0, freedom)
    return np.where(known, 1.0, some / rng.chisquare(some, (draws, len(freedom))))


def _own(spread: Spread, own: Floats, pi: Floats) -> Floats:
    """The variance of P / Pi that the reference's own sampling adds to each cell alone."""
    if not spread.counted:
        return np.zeros(len(pi))
    counting = 1 / (spread.counted * pi)
    return np.asarray(spread.between_counted * own + counting * (1 + np.minimum(counting, 1.0) / 2))
