"""Paper: the paper's own estimators and calibration, under its own names."""

from fedprikl.paper.calibration import (
    classic_constant,
    paper_kl_sensitivity,
    paper_noise_gain,
    paper_term_sensitivity,
    paper_true_epsilon,
)
from fedprikl.paper.estimators import baseline, no_privacy, printed_aggregator

__all__ = [
    "baseline",
    "classic_constant",
    "no_privacy",
    "paper_kl_sensitivity",
    "paper_noise_gain",
    "paper_term_sensitivity",
    "paper_true_epsilon",
    "printed_aggregator",
]
