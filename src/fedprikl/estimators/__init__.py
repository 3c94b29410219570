"""Estimators: the paper's three and ours, as functions of batch counts."""

from fedprikl.estimators.audit_cases import AuditCase, exact_case, paper_case, worst_neighbours
from fedprikl.estimators.baseline import baseline
from fedprikl.estimators.counts import BatchCounts
from fedprikl.estimators.design import (
    DRIFTS,
    EXPONENTS,
    Design,
    DesignForecast,
    DesignMoments,
    forecast_design,
    sampling_errors,
    search_designs,
)
from fedprikl.estimators.estimate import ComparedEstimate, Estimate
from fedprikl.estimators.forecast import Forecast, mean_error
from fedprikl.estimators.interval import confidence_interval, noise_quantile
from fedprikl.estimators.no_drift import (
    NoDrift,
    check_design_effect,
    null_values,
    public_simulation,
)
from fedprikl.estimators.no_privacy import no_privacy
from fedprikl.estimators.noisy_counts import (
    NoisyCounts,
    NoisyEstimate,
    estimate_noisy_counts,
    project_counts,
)
from fedprikl.estimators.noisy_forecast import (
    NoisyRound,
    forecast_noisy,
    smallest_noisy_drift,
)
from fedprikl.estimators.noisy_interval import noisy_interval
from fedprikl.estimators.noisy_verdict import (
    judge_noisy_counts,
    judge_noisy_release,
    overdispersion,
)
from fedprikl.estimators.power import smallest_drift
from fedprikl.estimators.scoring import increments_per_batch, score_sensitivity, weighted_score
from fedprikl.estimators.spectrum import Spectrum
from fedprikl.estimators.trusted_aggregator import release_mechanism, trusted_aggregator
from fedprikl.estimators.verdict import (
    Verdict,
    alarm_threshold,
    check_false_alarm,
    judge_release,
)

__all__ = [
    "DRIFTS",
    "EXPONENTS",
    "AuditCase",
    "BatchCounts",
    "ComparedEstimate",
    "Design",
    "DesignForecast",
    "DesignMoments",
    "Estimate",
    "Forecast",
    "NoDrift",
    "NoisyCounts",
    "NoisyEstimate",
    "NoisyRound",
    "Spectrum",
    "Verdict",
    "alarm_threshold",
    "baseline",
    "check_design_effect",
    "check_false_alarm",
    "confidence_interval",
    "estimate_noisy_counts",
    "exact_case",
    "forecast_design",
    "forecast_noisy",
    "increments_per_batch",
    "judge_noisy_counts",
    "judge_noisy_release",
    "judge_release",
    "mean_error",
    "no_privacy",
    "noise_quantile",
    "noisy_interval",
    "null_values",
    "overdispersion",
    "paper_case",
    "project_counts",
    "public_simulation",
    "release_mechanism",
    "sampling_errors",
    "score_sensitivity",
    "search_designs",
    "smallest_drift",
    "smallest_noisy_drift",
    "trusted_aggregator",
    "weighted_score",
    "worst_neighbours",
]
