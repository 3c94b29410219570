"""Divergence room: the mathematics of the estimator. NumPy only; knows nothing of privacy."""

from fedprikl.divergence.exact import kl_divergence, skewed_divergence
from fedprikl.divergence.phi import phi
from fedprikl.divergence.score import ExtremeIncrements, Score, limit_steps
from fedprikl.divergence.smoothing import DEFAULT_SKEW, Additive, Floor, Skew, Smoothing, Unsmoothed
from fedprikl.divergence.variance import (
    estimator_variance,
    jeffreys_divergence,
    optimal_control,
    optimal_control_lower_bound,
    optimal_control_with_noise,
    ratio_variance,
    variance_bound,
)

__all__ = [
    "DEFAULT_SKEW",
    "Additive",
    "ExtremeIncrements",
    "Floor",
    "Score",
    "Skew",
    "Smoothing",
    "Unsmoothed",
    "estimator_variance",
    "jeffreys_divergence",
    "kl_divergence",
    "limit_steps",
    "optimal_control",
    "optimal_control_lower_bound",
    "optimal_control_with_noise",
    "phi",
    "ratio_variance",
    "skewed_divergence",
    "variance_bound",
]
