"""Estimators: the paper's three and ours, as functions of batch counts."""

from fedprikl.estimators.baseline import baseline
from fedprikl.estimators.counts import BatchCounts
from fedprikl.estimators.estimate import Estimate
from fedprikl.estimators.no_privacy import no_privacy
from fedprikl.estimators.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimators.trusted_aggregator import trusted_aggregator

__all__ = [
    "BatchCounts",
    "Estimate",
    "baseline",
    "increments_per_batch",
    "no_privacy",
    "score_sensitivity",
    "trusted_aggregator",
    "weighted_score",
]
