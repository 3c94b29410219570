"""Ordinary periods: how much the periods of a reference differ among themselves. Public.

Weeks differ, and a week resembles the week before. Both are seen in the periods of a reference, but
few periods tell little about slow changes. So how slow they are, and how large, is drawn anew for
every simulated series, from what the reference's periods tell of it.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.worlds import TINY, Cells
from fedprikl.reference import ClientCounts, Spread

# Correlations with the period before, each as likely before anything is seen: Jeffreys' prior of an
# AR(1) process, 1 / sqrt(1 - rho^2), up to 0.97.
SLOW = np.sin(np.linspace(0.0, math.asin(0.97), 24))
LARGE = np.geomspace(0.02, 2e4, 42)  # variances over that of the sampling; each as likely
LEAST = 0.5  # records in a cell of a period: logarithms stay finite


def ordinary_ratios(
    spread: Spread, cells: Cells, shape: tuple[int, int], rng: np.random.Generator
) -> Floats:
    """P of every period over P of all: (series, periods, cells + 1), as the reference has them.

    It is compared with a Pi of as many periods as the reference has, drawn in the same way, and
    apart from these: some time may have passed since the reference.
    """
    return _directions_of(spread, cells).ratios(shape, rng)


def ordinary_variance(spread: Spread, cells: Cells) -> Floats:
    """Of P / Pi between periods of the reference, per cell; 0 where it has no times."""
    if not spread.periods:
        return np.zeros(len(cells.pi))
    return _directions_of(spread, cells).usual


def _directions_of(spread: Spread, cells: Cells) -> "_Directions":
    return _directions(spread.periods, cells.names.tobytes(), cells.pi.tobytes())


@lru_cache(maxsize=64)
def _directions(periods: str, names: bytes, pi: bytes) -> "_Directions":
    return _Directions.of(periods, Cells(np.frombuffer(names, np.int64), np.frombuffer(pi)))


@dataclass(frozen=True, slots=True, eq=False)
class _Directions:
    """The main directions in which ln(P / Pi) of periods differs. In each, an AR(1) process:

        y_t = rho y_(t-1) + e_t

    Innovations e are runs of those of the reference (a stationary bootstrap: Politis and Romano,
    1994; after whitening: Davison and Hinkley, 1997, section 8.2), so that weekdays and holidays
    are in it as far as the reference has them. rho and the variance of y are drawn for each series
    and direction from their posterior.
    """

    scores: Floats  # y of the reference's periods, and their sampling: (periods, directions)
    logs: Floats  # what a score of 1 is in ln(P / Pi): (directions, cells + 1)
    chances: Floats  # of each rho and variance, cumulative: (directions, rhos times variances)
    variances: Floats  # of y
    steps: Floats  # root mean square of e in the scores, for each rho: (rhos, directions)
    usual: Floats  # variance of ln(P / Pi), per cell

    @classmethod
    def of(cls, periods: str, cells: Cells) -> "_Directions":
        """By the principal components of the periods' ratios, weighted as in a chi-square.

        There, the sampling of a period of N records has a variance of 1 / N in every direction.
        """
        table = ClientCounts.read(periods).table(cells.names)
        sizes, usual = table.sum(axis=1, keepdims=True), table.sum(axis=0) / table.sum()
        ratios = np.log((table + LEAST) / (sizes * usual + LEAST))
        root = np.sqrt(usual)
        left, size, right = np.linalg.svd((ratios - ratios.mean(axis=0)) * root, False)
        kept = size > 1e-9 * max(float(size[0]), 1e-9)
        scores, right = (left * size)[:, kept], right[kept]
        many = float(np.count_nonzero(usual) - 1) / max(len(right), 1)
        noise = float(np.mean(1 / sizes)) * max(many, 1.0)
        likelihood = _likelihood(scores / math.sqrt(noise))
        chances = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        variances = noise * np.tile(LARGE, len(SLOW))
        middle = np.exp(chances @ np.log(variances))
        logs = np.divide(right, root, out=np.zeros_like(right), where=root > 0)
        fresh = scores[1:] - SLOW[:, None, None] * scores[:-1]
        steps = np.sqrt(np.mean(fresh**2, axis=1))
        return cls(scores, logs, np.cumsum(chances, axis=1), variances, steps, middle @ logs**2)

    def ratios(self, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
        """As `ordinary_ratios`."""
        (series, periods), (number, width) = shape, self.scores.shape
        if width == 0:
            return np.ones((series, periods, self.logs.shape[1]))
        drawn = rng.random((width, series))
        place = [np.searchsorted(*each) for each in zip(self.chances, drawn, strict=True)]
        which = np.minimum(np.array(place).T, len(self.variances) - 1)
        known, found = (
            np.exp(self._chains(which, many, rng) @ self.logs) for many in (number, periods)
        )
        return np.asarray(found / known.mean(axis=1, keepdims=True))

    def _chains(self, which: Ints, periods: int, rng: np.random.Generator) -> Floats:
        """y of so many periods, (series, periods, directions)."""
        (series, width), number = which.shape, len(self.scores)
        slow, sd = which // len(LARGE), np.sqrt(self.variances[which])
        rho = SLOW[slow]
        step = sd * np.sqrt(1 - rho**2) / np.maximum(self.steps[slow, np.arange(width)], TINY)
        place = 1 + _runs(number - 1, (series, periods), rng)
        found = (self.scores[place] - rho[:, None] * self.scores[place - 1]) * step[:, None]
        state = self.scores[rng.integers(0, number, series)]
        state = state / np.maximum(self.scores.std(axis=0), TINY) * sd
        for period in range(periods):
            state = found[:, period] = rho * state + found[:, period]
        return np.asarray(found)


def _likelihood(scores: Floats) -> Floats:
    """The log likelihood of each direction, rho and variance: (directions, rhos times variances).

    Restricted (the mean is not known: few slow periods tell little about it), of a Gaussian AR(1)
    process and sampling of variance 1, independent from period to period.
    """
    number, found = len(scores), []
    for rho in SLOW:
        values, vectors = _correlation(number, float(rho))
        seen, ones = vectors.T @ scores, vectors.sum(axis=0)
        for large in LARGE:
            weights = 1 / (large * values + 1)  # 1 over the eigenvalues of the covariance
            ones_square = float(ones**2 @ weights)
            square = weights @ seen**2 - (ones * weights @ seen) ** 2 / ones_square
            found.append((np.log(weights).sum() - math.log(ones_square) - square) / 2)
    return np.array(found).T


@lru_cache(maxsize=len(SLOW) * 4)
def _correlation(number: int, rho: float) -> tuple[Floats, Floats]:
    """Eigenvalues and eigenvectors of the correlations rho^|s - t| of so many periods."""
    place = np.arange(number)
    values, vectors = np.linalg.eigh(rho ** np.abs(place[:, None] - place))
    return np.maximum(values, 0.0), vectors


def _runs(number: int, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    """Places of a stationary bootstrap: runs of about the root of the number, in a circle."""
    first = rng.integers(0, number, shape)
    begins = rng.random(shape) < 1 / max(math.sqrt(number), 1.0)
    begins[:, 0] = True
    since = np.arange(shape[1])
    start = np.maximum.accumulate(np.where(begins, since, 0), axis=1)
    return np.asarray((np.take_along_axis(first, start, 1) + since - start) % number)
