"""What the reference's count of a cell tells of its share: the cells that were seen were lucky.

Of the cells that there are, a sample shows those that it happened to see, some of them more often
than they deserve (Good, 1953). How many cells were seen once, twice and so on tells by how much
(empirical Bayes; Robbins, 1956). Public.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.libraries import scipy

Seen = tuple[tuple[int, int], ...]  # (records of a cell, cells with so many)
SHAPE = 16.0  # of the Gamma laws: each is as wide as a fourth of its mean
STEP = 0.25  # between their means, as logarithms
LEAST = 0.05  # the smallest mean, in records of the reference
PRIOR = 20.0  # cells: so much it counts that all laws are equally likely
STEPS = 200  # of the search for weights


def seen_of(counts: Ints) -> Seen:
    """How many cells have how many records, of those that have any.

    >>> seen_of(np.array([5, 1, 0, 1]))
    ((1, 2), (5, 1))
    """
    values, cells = np.unique(counts[counts > 0], return_counts=True)
    return tuple(zip(values.tolist(), cells.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class TrueCounts:
    """What cells of these counts would hold on average in samples of the reference's size.

    With counts c of cells that were seen, and laws j of means l_j and weights w_j,

        lambda ~ Gamma(SHAPE, mean l_j),   c ~ Poisson(lambda) given c > 0

    the mean and the variance of lambda given c. The laws are wide, and true shares may be closer
    together; so lambda is at least as far from c, in square, as a count from its mean. Cells are
    equally likely here, so a cell that was seen three times does not deserve it:

    >>> drawn = np.random.default_rng(1).poisson(0.5, 8000)
    >>> true_counts(seen_of(drawn)).of(np.array([1.0, 3.0]))[0].round(1).tolist()
    [0.5, 0.9]
    """

    counts: Floats
    mean: Floats
    variance: Floats

    def of(self, counts: Floats) -> tuple[Floats, Floats]:
        """Mean and variance; between the counts that were seen as they are there."""
        return np.interp(counts, self.counts, self.mean), np.interp(
            counts, self.counts, self.variance
        )


@lru_cache(maxsize=64)
def true_counts(seen: Seen) -> TrueCounts:
    """Cost: distinct counts times the logarithm of the largest, 200 times."""
    counts, cells = np.array(seen, dtype=np.float64).T
    centres = np.exp(np.arange(np.log(LEAST), np.log(counts[-1]) + 2 * STEP, STEP))
    rate = SHAPE / centres + 1
    gammaln = scipy.special.gammaln
    likelihood = gammaln(counts[:, None] + SHAPE) - gammaln(SHAPE) - gammaln(counts[:, None] + 1)
    likelihood = likelihood - SHAPE * np.log1p(centres / SHAPE) - counts[:, None] * np.log(rate)
    likelihood = np.exp(likelihood) / -np.expm1(-SHAPE * np.log1p(centres / SHAPE))
    weights = np.full(len(centres), 1 / len(centres))
    prior, total = PRIOR * weights, PRIOR + cells.sum()
    for _ in range(STEPS):
        each = np.maximum(likelihood @ weights, 1e-300)
        weights = (weights * ((cells / each) @ likelihood) + prior) / total
    chances = likelihood * weights
    chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1e-300)
    known = (SHAPE + counts[:, None]) / rate
    middle = np.sum(chances * known, axis=1)
    once = cells[counts == 1].sum()  # as many records as lie in cells that were not seen (Good)
    less = max(counts @ cells - once, 1.0) / (middle @ cells)
    mean = less * middle
    variance = less**2 * (np.sum(chances * (known / rate + known**2), axis=1) - middle**2)
    return TrueCounts(counts, mean, np.maximum(variance, mean - (counts - mean) ** 2))
