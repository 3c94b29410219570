"""Estimation: answers from counts. Scored sums, noisy counts, intervals, verdicts."""

from fedprikl.estimation.column_verdict import ColumnCase, ColumnVerdict, judge_columns
from fedprikl.estimation.drift_model import KINDS, drifted_ratios
from fedprikl.estimation.estimate import Answer, ComparedEstimate, Estimate
from fedprikl.estimation.interval import (
    Interval,
    adaptive_interval,
    counts_interval,
    value_interval,
)
from fedprikl.estimation.noisy_counts import (
    CountNoise,
    CountsDesign,
    NoisyCounts,
    estimate_noisy_counts,
    sum_counts,
)
from fedprikl.estimation.noisy_estimates import (
    answers_from_counts,
    estimates_from_counts,
    noise_counts,
)
from fedprikl.estimation.noisy_verdict import overdispersion, variation
from fedprikl.estimation.noisy_views import Estimates, NoisyViews, ViewVector, noise_views
from fedprikl.estimation.scoring import (
    BatchCounts,
    check_adaptive,
    increments_per_batch,
    score_ranges,
    score_reach,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.shifted_cells import CellShares, cell_shares, shifted_cells
from fedprikl.estimation.statistic import (
    JudgedStatistic,
    Verdict,
    judge_release,
    judge_together,
)
from fedprikl.estimation.trials import (
    AdaptiveNoise,
    CountsNoise,
    Errors,
    ValueNoise,
    trial_errors,
)
from fedprikl.estimation.trusted_aggregator import (
    adaptive_estimate,
    estimate_scored_sum,
    trusted_aggregator,
)

__all__ = [
    "KINDS",
    "AdaptiveNoise",
    "Answer",
    "BatchCounts",
    "CellShares",
    "ColumnCase",
    "ColumnVerdict",
    "ComparedEstimate",
    "CountNoise",
    "CountsDesign",
    "CountsNoise",
    "Errors",
    "Estimate",
    "Estimates",
    "Interval",
    "JudgedStatistic",
    "NoisyCounts",
    "NoisyViews",
    "ValueNoise",
    "Verdict",
    "ViewVector",
    "adaptive_estimate",
    "adaptive_interval",
    "answers_from_counts",
    "cell_shares",
    "check_adaptive",
    "counts_interval",
    "drifted_ratios",
    "estimate_noisy_counts",
    "estimate_scored_sum",
    "estimates_from_counts",
    "increments_per_batch",
    "judge_columns",
    "judge_release",
    "judge_together",
    "noise_counts",
    "noise_views",
    "overdispersion",
    "score_ranges",
    "score_reach",
    "score_sensitivity",
    "shifted_cells",
    "sum_counts",
    "trial_errors",
    "trusted_aggregator",
    "value_interval",
    "variation",
    "weighted_score",
]
