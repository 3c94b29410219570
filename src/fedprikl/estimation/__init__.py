"""Estimation: answers from counts. Scored sums, noisy counts, intervals, verdicts."""

from fedprikl.estimation.cells import cell_shares, shifted_cells
from fedprikl.estimation.estimate import (
    Answer,
    ComparedEstimate,
    Estimate,
    Estimates,
    NoisyViews,
    answers_from_counts,
    beside_counts,
    estimates_from_counts,
    noise_counts,
)
from fedprikl.estimation.noisy_counts import (
    CountedView,
    CountNoise,
    CountsDesign,
    NoisyCounts,
    estimate_noisy_counts,
    sum_counts,
)
from fedprikl.estimation.outcome import JudgedStatistic, Verdict, VerdictOutcome
from fedprikl.estimation.scoring import (
    BatchCounts,
    score_reach,
    score_sensitivity,
    weighted_score,
)
from fedprikl.estimation.trusted_aggregator import estimate_scored_sum, trusted_aggregator
from fedprikl.estimation.verdict import judge_columns, judge_together

__all__ = [
    "Answer",
    "BatchCounts",
    "ComparedEstimate",
    "CountNoise",
    "CountedView",
    "CountsDesign",
    "Estimate",
    "Estimates",
    "JudgedStatistic",
    "NoisyCounts",
    "NoisyViews",
    "Verdict",
    "VerdictOutcome",
    "answers_from_counts",
    "beside_counts",
    "cell_shares",
    "estimate_noisy_counts",
    "estimate_scored_sum",
    "estimates_from_counts",
    "judge_columns",
    "judge_together",
    "noise_counts",
    "score_reach",
    "score_sensitivity",
    "shifted_cells",
    "sum_counts",
    "trusted_aggregator",
    "weighted_score",
]
