"""Estimators: the paper's three and ours, as functions of batch counts."""

from fedprikl.estimators.audit_cases import AuditCase, exact_case, paper_case, worst_neighbours
from fedprikl.estimators.baseline import baseline
from fedprikl.estimators.counts import BatchCounts
from fedprikl.estimators.estimate import ComparedEstimate, Estimate
from fedprikl.estimators.interval import confidence_interval
from fedprikl.estimators.no_privacy import no_privacy
from fedprikl.estimators.noisy_counts import (
    NoisyCounts,
    NoisyEstimate,
    estimate_noisy_counts,
    project_counts,
)
from fedprikl.estimators.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimators.trusted_aggregator import release_mechanism, trusted_aggregator

__all__ = [
    "AuditCase",
    "BatchCounts",
    "ComparedEstimate",
    "Estimate",
    "NoisyCounts",
    "NoisyEstimate",
    "baseline",
    "confidence_interval",
    "estimate_noisy_counts",
    "exact_case",
    "increments_per_batch",
    "no_privacy",
    "paper_case",
    "project_counts",
    "release_mechanism",
    "score_sensitivity",
    "trusted_aggregator",
    "weighted_score",
    "worst_neighbours",
]
