"""Estimators: the paper's three and ours, as functions of batch counts."""

from fedprikl.estimators.audit_cases import AuditCase, exact_case, paper_case, worst_neighbours
from fedprikl.estimators.baseline import baseline
from fedprikl.estimators.counts import BatchCounts
from fedprikl.estimators.estimate import ComparedEstimate, Estimate
from fedprikl.estimators.no_privacy import no_privacy
from fedprikl.estimators.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimators.trusted_aggregator import trusted_aggregator

__all__ = [
    "AuditCase",
    "BatchCounts",
    "ComparedEstimate",
    "Estimate",
    "baseline",
    "exact_case",
    "increments_per_batch",
    "no_privacy",
    "paper_case",
    "score_sensitivity",
    "trusted_aggregator",
    "weighted_score",
    "worst_neighbours",
]
