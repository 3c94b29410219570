"""From counts to the number before noise, and how far one record can move it."""

import itertools
import math

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimators.counts import BatchCounts
from fedprikl.privacy import BatchIncrements, exact_sensitivity, rounding_slack
from fedprikl.reference import QueryPoints

__all__ = ["check_score", "increments_per_batch", "score_sensitivity", "weighted_score"]


def check_score(score: Score) -> Score:
    """The score itself; a bare smoothing is an easy mistake."""
    if not isinstance(score, Score):
        raise InvalidInputError(f"Expected a Score, got {score!r}; write Score({score!r}).")
    return score


def weighted_score(counts: BatchCounts, score: Score) -> float:
    """sum_t sum_x w_t(x) s(h_t(x)): the estimate before noise. SECRET.

    `math.fsum` rounds only once, which the slack in `score_sensitivity` relies on.
    """
    points = counts.points
    scores = check_score(score)(counts.counts, points.pi, counts.records_per_point)
    return math.fsum((points.weights * scores).tolist())


def score_sensitivity(points: QueryPoints, records: Ints, score: Score) -> float:
    """Delta of `weighted_score` for one substituted record, rounding included."""
    batches = increments_per_batch(points, records, score, points.weights)
    exact = exact_sensitivity(batches)
    magnitude = float(
        np.sum(np.abs(points.weights) * score.bound(points.pi, records[points.batch]))
    )
    return exact + rounding_slack(magnitude)


def increments_per_batch(
    points: QueryPoints, records: Ints, score: Score, weights: Floats
) -> list[BatchIncrements]:
    """The extreme increments `weights * (s(h+1) - s(h))` of every batch. All public."""
    extremes = check_score(score).extreme_increments(points.pi, records[points.batch])
    swap = weights < 0
    lowest = weights * np.where(swap, extremes.highest, extremes.lowest)
    highest = weights * np.where(swap, extremes.lowest, extremes.highest)
    lowest_at = np.where(swap, extremes.highest_at, extremes.lowest_at)
    highest_at = np.where(swap, extremes.lowest_at, extremes.highest_at)
    ends = np.searchsorted(points.batch, np.arange(points.batches + 1))
    return [
        BatchIncrements(
            records=int(records[t]),
            lowest=lowest[a:b],
            lowest_at=lowest_at[a:b],
            highest=highest[a:b],
            highest_at=highest_at[a:b],
            table=_Table(score, points.pi[a:b], weights[a:b], int(records[t])),
        )
        for t, (a, b) in enumerate(itertools.pairwise(ends.tolist()))
    ]


class _Table:
    """All increments of a batch, computed when asked for: (points, N_t)."""

    def __init__(self, score: Score, pi: Floats, weights: Floats, records: int) -> None:
        self._score, self._pi, self._weights, self._records = score, pi, weights, records

    def __call__(self) -> Floats:
        counts = np.arange(self._records)[None, :]
        total = np.array([[self._records]])
        return self._weights[:, None] * self._score.increments(counts, self._pi[:, None], total)
