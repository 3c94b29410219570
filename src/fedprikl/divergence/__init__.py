"""Divergence room: the mathematics of the estimator. NumPy only; knows nothing of privacy."""

from fedprikl.divergence.exact import kl_divergence, skewed_divergence
from fedprikl.divergence.phi import phi
from fedprikl.divergence.score import ExtremeIncrements, Score, clip_steps
from fedprikl.divergence.smoothing import DEFAULT_SKEW, Additive, Floor, Skew, Smoothing, Unsmoothed

__all__ = [
    "DEFAULT_SKEW",
    "Additive",
    "ExtremeIncrements",
    "Floor",
    "Score",
    "Skew",
    "Smoothing",
    "Unsmoothed",
    "clip_steps",
    "kl_divergence",
    "phi",
    "skewed_divergence",
]
