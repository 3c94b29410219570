"""Paper: the paper's own estimators, calibration and theory, under its own names."""

from fedprikl.paper.baseline import baseline
from fedprikl.paper.calibration import (
    classic_constant,
    paper_kl_sensitivity,
    paper_noise_gain,
    paper_term_sensitivity,
    paper_true_epsilon,
)
from fedprikl.paper.no_privacy import no_privacy
from fedprikl.paper.printed_aggregator import printed_aggregator
from fedprikl.paper.variance import (
    estimator_variance,
    jeffreys_divergence,
    optimal_control,
    optimal_control_lower_bound,
    optimal_control_with_noise,
    ratio_variance,
    variance_bound,
)

__all__ = [
    "baseline",
    "classic_constant",
    "estimator_variance",
    "jeffreys_divergence",
    "no_privacy",
    "optimal_control",
    "optimal_control_lower_bound",
    "optimal_control_with_noise",
    "paper_kl_sensitivity",
    "paper_noise_gain",
    "paper_term_sensitivity",
    "paper_true_epsilon",
    "printed_aggregator",
    "ratio_variance",
    "variance_bound",
]
