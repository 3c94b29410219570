"""Estimation: answers from counts. Scored sums, noisy counts, intervals, verdicts."""

from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.estimate import ComparedEstimate, Estimate
from fedprikl.estimation.forecast import Forecast, mean_error
from fedprikl.estimation.interval import confidence_interval
from fedprikl.estimation.no_drift import (
    NoDrift,
    check_design_effect,
    null_values,
    public_simulation,
)
from fedprikl.estimation.noisy_counts import (
    NoisyCounts,
    NoisyEstimate,
    estimate_noisy_counts,
    project_counts,
)
from fedprikl.estimation.noisy_forecast import NoisyRound, forecast_noisy, smallest_noisy_drift
from fedprikl.estimation.noisy_interval import noisy_interval
from fedprikl.estimation.noisy_verdict import (
    judge_noisy_counts,
    judge_noisy_release,
    overdispersion,
)
from fedprikl.estimation.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimation.trusted_aggregator import estimate_scored_sum, trusted_aggregator
from fedprikl.estimation.verdict import Verdict, alarm_threshold, check_false_alarm, judge_release

__all__ = [
    "BatchCounts",
    "ComparedEstimate",
    "Estimate",
    "Forecast",
    "NoDrift",
    "NoisyCounts",
    "NoisyEstimate",
    "NoisyRound",
    "Verdict",
    "alarm_threshold",
    "check_design_effect",
    "check_false_alarm",
    "confidence_interval",
    "estimate_noisy_counts",
    "estimate_scored_sum",
    "forecast_noisy",
    "increments_per_batch",
    "judge_noisy_counts",
    "judge_noisy_release",
    "judge_release",
    "mean_error",
    "noisy_interval",
    "null_values",
    "overdispersion",
    "project_counts",
    "public_simulation",
    "score_sensitivity",
    "smallest_noisy_drift",
    "trusted_aggregator",
    "weighted_score",
]
