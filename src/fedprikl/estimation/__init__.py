"""Estimation: answers from counts. Scored sums, noisy counts, intervals, verdicts."""

from fedprikl.estimation.adaptive_estimate import adaptive_estimate
from fedprikl.estimation.column_sizes import ColumnSize, column_sizes
from fedprikl.estimation.column_verdict import ColumnCase, ColumnVerdict, judge_columns
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.drift_kinds import KINDS, drifted_ratios
from fedprikl.estimation.estimate import ComparedEstimate, Estimate
from fedprikl.estimation.estimates import Estimates
from fedprikl.estimation.interval import (
    Interval,
    adaptive_interval,
    counts_interval,
    value_interval,
)
from fedprikl.estimation.moved_cells import CellShares, cell_shares, moved_cells
from fedprikl.estimation.no_drift import check_design_effect
from fedprikl.estimation.noisy_counts import NoisyCounts, estimate_noisy_counts
from fedprikl.estimation.noisy_divergence import NoisyDivergence, noisy_divergence
from fedprikl.estimation.noisy_estimates import estimates_from_counts, noise_counts
from fedprikl.estimation.noisy_verdict import judge_noisy_release, overdispersion, variation
from fedprikl.estimation.noisy_views import NoisyViews, ViewVector, noise_views
from fedprikl.estimation.score_ranges import check_adaptive, score_ranges
from fedprikl.estimation.scoring import (
    increments_per_batch,
    score_reach,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.statistic import judge_release, judge_together
from fedprikl.estimation.thresholds import check_false_alarm
from fedprikl.estimation.trials import (
    AdaptiveNoise,
    CountsNoise,
    Errors,
    ValueNoise,
    trial_errors,
)
from fedprikl.estimation.trusted_aggregator import estimate_scored_sum, trusted_aggregator
from fedprikl.estimation.verdict import Verdict, Witness

__all__ = [
    "KINDS",
    "AdaptiveNoise",
    "BatchCounts",
    "CellShares",
    "ColumnCase",
    "ColumnSize",
    "ColumnVerdict",
    "ComparedEstimate",
    "CountsNoise",
    "Errors",
    "Estimate",
    "Estimates",
    "Interval",
    "NoisyCounts",
    "NoisyDivergence",
    "NoisyViews",
    "ValueNoise",
    "Verdict",
    "ViewVector",
    "Witness",
    "adaptive_estimate",
    "adaptive_interval",
    "cell_shares",
    "check_adaptive",
    "check_design_effect",
    "check_false_alarm",
    "column_sizes",
    "counts_interval",
    "drifted_ratios",
    "estimate_noisy_counts",
    "estimate_scored_sum",
    "estimates_from_counts",
    "increments_per_batch",
    "judge_columns",
    "judge_noisy_release",
    "judge_release",
    "judge_together",
    "moved_cells",
    "noise_counts",
    "noise_views",
    "noisy_divergence",
    "overdispersion",
    "score_ranges",
    "score_reach",
    "score_sensitivity",
    "trial_errors",
    "trusted_aggregator",
    "value_interval",
    "variation",
    "weighted_score",
]
