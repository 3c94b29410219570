"""The terms of an estimate: one per score, each with the counts of one or several batches."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.reference import QueryPoints

__all__ = ["Terms"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Terms:
    """The estimate is `sum weights * score(counts)` over terms. Public.

    Usually a term is a point. Where points are pooled, the points of one cell in several batches
    are one term: their counts are added, and it is as if one larger batch had been asked.
    """

    of_point: Ints  # the term of each point
    pi: Floats
    weights: Floats
    records: Ints  # records of the batches that were asked
    outside: Floats  # share of all records that lie in other batches

    @classmethod
    def of(cls, points: QueryPoints, records: Ints) -> "Terms":
        """The terms of these points for batches of so many records."""
        return _terms(points, tuple(records.tolist()))

    def pool(self, values: npt.ArrayLike) -> Ints:
        """Whole values per point, added up per term; in every row, if there are rows."""
        found = np.asarray(values, dtype=np.int64)
        pooled = np.zeros((*found.shape[:-1], len(self.pi)), np.int64)
        if len(self.of_point) == len(self.pi):  # every term has one point; this is faster
            pooled[..., self.of_point] = found
        else:
            np.add.at(pooled.T, self.of_point, found.T)
        return pooled

    def scores(self, counts: npt.ArrayLike, score: Score) -> Floats:
        """s(h) of each term."""
        return score(counts, self.pi, self.records, outside=self.outside, weights=self.weights)


@lru_cache(maxsize=32)  # trials of one round ask for them thousands of times
def _terms(points: QueryPoints, sizes: tuple[int, ...]) -> Terms:
    records = np.array(sizes, dtype=np.int64)
    if not points.pooled:
        counted = records[points.batch]
        of_point, pi, weights = np.arange(len(points)), points.pi, points.weights
    else:
        _, first, of_point = np.unique(points.cells, return_index=True, return_inverse=True)
        pi, weights = points.pi[first], points.weights[first]
        counted = np.zeros(len(first), np.int64)
        np.add.at(counted, of_point, records[points.batch])
    outside: Floats = 1 - counted / records.sum()
    return Terms(of_point=of_point, pi=pi, weights=weights, records=counted, outside=outside)
