"""What so many substituted records can make of a scored sum: where adaptive noise comes from."""

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import KL, CellScores, Score
from fedprikl.divergence.smoothing import Floor
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.scoring import check_score
from fedprikl.estimation.terms import Terms
from fedprikl.privacy import Ranges, reachable_ranges

__all__ = ["check_adaptive", "score_ranges"]


def check_adaptive(score: Score, weights: Floats) -> Score:
    """The score, if it is convex and does not rise with the count, however much is counted."""
    score = check_score(score)
    if (
        score.divergence is not KL
        or score.control != 0
        or isinstance(score.smoothing, Floor)
        or not score.finite
    ):
        raise InvalidInputError(
            "Adaptive noise needs a score that falls with the count and is convex: kl with a skew "
            f"and without lambda, got {score!r}. Use Laplace noise instead."
        )
    if np.any(weights < 0):
        raise InvalidInputError("Adaptive noise needs weights of at least 0; use Laplace noise.")
    return score


def score_ranges(counts: BatchCounts, score: Score, *, steps: int, moved: int = 1) -> Ranges:
    """The ranges of `weighted_score` for 1, 2, ..., steps - 1 times `moved` substituted records.
    SECRET.

    One record is in one batch, so a substitution lowers at most one term's count and raises at
    most one. That is all that is used, so batches of any sizes, pooled or not, are served.
    """
    terms = Terms.of(counts.points, counts.records)
    check_adaptive(score, terms.weights)

    scores = CellScores(
        score, terms.pi, terms.records, outside=terms.outside, weights=terms.weights
    )
    # k more records than there are may be counted in a cell: v grows by less than a factor of
    # 1 + steps moved, and the logarithm by the logarithm of that.
    reach = score.bound(terms.pi, terms.records) + np.log1p(steps * moved)
    return reachable_ranges(
        terms.pool(counts.counts),
        terms.records,
        scores,
        magnitude=float(np.sum(terms.weights * reach)),
        steps=steps,
        moved=moved,
    )
