"""From counts to the number before noise, and how far one record can move it."""

import itertools
import math

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import BatchIncrements, exact_sensitivity, rounding_slack
from fedprikl.reference import QueryPoints

__all__ = ["check_score", "increments_per_batch", "score_sensitivity", "weighted_score"]


def check_score(score: Score) -> Score:
    """The score itself; a bare smoothing is an easy mistake."""
    if not isinstance(score, Score):
        raise InvalidInputError(f"Expected a Score, got {score!r}; write Score({score!r}).")
    return score


def weighted_score(counts: BatchCounts, score: Score) -> float:
    """sum_j w_j s(h_j) over the terms: the estimate before noise. SECRET.

    `math.fsum` rounds only once, which the slack in `score_sensitivity` relies on.
    """
    terms = Terms.of(counts.points, counts.records)
    scores = terms.scores(terms.pool(counts.counts), check_score(score))
    return math.fsum((terms.weights * scores).tolist())


def score_sensitivity(points: QueryPoints, records: Ints, score: Score) -> float:
    """Delta of `weighted_score` for one substituted record, rounding included."""
    batches = increments_per_batch(points, records, score)
    terms = Terms.of(points, records)
    magnitude = float(np.sum(np.abs(terms.weights) * score.bound(terms.pi, terms.records)))
    return exact_sensitivity(batches) + rounding_slack(magnitude)


def increments_per_batch(
    points: QueryPoints, records: Ints, score: Score, weights: Floats | None = None
) -> list[BatchIncrements]:
    """The extreme increments `w (s(h+1) - s(h))` of every batch. All public.

    One record is in one batch, so it moves terms of that batch only, each by one step of its
    pooled count. `weights` (per point) replaces those of the design.
    """
    terms = Terms.of(points, records)
    extremes = check_score(score).extreme_increments(
        terms.pi, terms.records, outside=terms.outside, weights=terms.weights
    )
    at = terms.of_point
    weight = points.weights if weights is None else weights
    up = weight >= 0
    lowest = weight * np.where(up, extremes.lowest[at], extremes.highest[at])
    highest = weight * np.where(up, extremes.highest[at], extremes.lowest[at])
    lowest_at = np.where(up, extremes.lowest_at[at], extremes.highest_at[at])
    highest_at = np.where(up, extremes.highest_at[at], extremes.lowest_at[at])
    ends = np.searchsorted(points.batch, np.arange(points.batches + 1))
    return [
        BatchIncrements(
            records=terms.records[at[a:b]],
            lowest=lowest[a:b],
            lowest_at=lowest_at[a:b],
            highest=highest[a:b],
            highest_at=highest_at[a:b],
            table=None if points.pooled else _Table(score, terms, at[a:b], weight[a:b]),
        )
        for a, b in itertools.pairwise(ends.tolist())
    ]


class _Table:
    """All increments of a batch, computed when asked for: (points, N_t)."""

    def __init__(self, score: Score, terms: Terms, at: Ints, weights: Floats) -> None:
        self._score, self._terms, self._at, self._weights = score, terms, at, weights

    def __call__(self) -> Floats:
        terms, at = self._terms, self._at
        records = terms.records[at]
        return self._weights[:, None] * self._score.increments(
            np.arange(int(records[0]))[None, :],
            terms.pi[at][:, None],
            records[:, None],
            outside=terms.outside[at][:, None],
            weights=terms.weights[at][:, None],
        )
