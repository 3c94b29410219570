"""Estimators: the paper's three and ours, as functions of batch counts."""

from fedprikl.estimators.audit_cases import AuditCase, exact_case, paper_case, worst_neighbours
from fedprikl.estimators.baseline import baseline
from fedprikl.estimators.counts import BatchCounts
from fedprikl.estimators.estimate import ComparedEstimate, Estimate
from fedprikl.estimators.interval import confidence_interval
from fedprikl.estimators.no_drift import NoDrift, null_values, public_simulation
from fedprikl.estimators.no_privacy import no_privacy
from fedprikl.estimators.noisy_counts import (
    NoisyCounts,
    NoisyEstimate,
    estimate_noisy_counts,
    project_counts,
)
from fedprikl.estimators.noisy_verdict import judge_noisy_counts, overdispersion
from fedprikl.estimators.power import smallest_drift
from fedprikl.estimators.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimators.trusted_aggregator import release_mechanism, trusted_aggregator
from fedprikl.estimators.verdict import Verdict, alarm_threshold, judge_release

__all__ = [
    "AuditCase",
    "BatchCounts",
    "ComparedEstimate",
    "Estimate",
    "NoDrift",
    "NoisyCounts",
    "NoisyEstimate",
    "Verdict",
    "alarm_threshold",
    "baseline",
    "confidence_interval",
    "estimate_noisy_counts",
    "exact_case",
    "increments_per_batch",
    "judge_noisy_counts",
    "judge_release",
    "no_privacy",
    "null_values",
    "overdispersion",
    "paper_case",
    "project_counts",
    "public_simulation",
    "release_mechanism",
    "score_sensitivity",
    "smallest_drift",
    "trusted_aggregator",
    "weighted_score",
    "worst_neighbours",
]
