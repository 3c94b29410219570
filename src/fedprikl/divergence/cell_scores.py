"""Scores of cells that stay the same, at many counts: what does not depend on the count is kept."""

import math

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints
from fedprikl.divergence.score import Score, clip_steps
from fedprikl.divergence.smoothing import Floor
from fedprikl.errors import InvalidInputError

__all__ = ["CellScores"]


class CellScores:
    """w s(h) of some of the cells at some counts; the same number as `score` itself gives.

    >>> pi = np.array([0.2, 0.8])
    >>> scores = CellScores(Score(), pi, np.array([50, 50]), outside=0.0, weights=pi)
    >>> scores(np.array([0]), np.array([0, 5])).round(3).tolist()
    [0.921, 0.137]
    """

    def __init__(
        self,
        score: Score,
        pi: Floats,
        records: Ints,
        *,
        outside: npt.ArrayLike = 1.0,
        weights: Floats,
    ) -> None:
        if isinstance(score.smoothing, Floor):
            raise InvalidInputError("Scores with a floor are no line of the count; use `Score`.")
        self._score, self._weights = score, weights
        self._offset, self._slope = score.smoothing.line(pi, records)
        self._empty = score.control * (self._offset - 1) + score.divergence.f(self._offset)
        variance = score.correction * np.asarray(outside) * self._slope**2
        self._variance = variance if np.any(variance) else None

    def __call__(self, cells: Ints, counts: Ints) -> Floats:
        """Of `cells` (positions) at `counts`; both broadcast."""
        score, weights = self._score, self._weights[cells]
        h = np.asarray(counts, dtype=np.float64)
        v = self._offset[cells] + self._slope[cells] * h
        if self._variance is None:
            found = score.divergence.f(v)
        else:
            found = score.divergence.corrected(v, self._variance[cells] * h)
        if score.control:
            found = score.control * (v - 1) + found
        if score.maximum_step < math.inf:
            found = clip_steps(found, self._empty[cells], h, weights, score.maximum_step)
        return np.asarray(weights * found, dtype=np.float64)
