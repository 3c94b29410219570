"""Divergence room: the mathematics of the estimator. NumPy only; knows nothing of privacy."""

from fedprikl.divergence.exact import kl_divergence, skewed_divergence
from fedprikl.divergence.f_divergence import Divergence, divergence_named, register
from fedprikl.divergence.kl import KL
from fedprikl.divergence.phi import phi
from fedprikl.divergence.score import Score, clip_steps
from fedprikl.divergence.smoothing import DEFAULT_SKEW, Additive, Floor, Skew, Smoothing, Unsmoothed

__all__ = [
    "DEFAULT_SKEW",
    "KL",
    "Additive",
    "Divergence",
    "Floor",
    "Score",
    "Skew",
    "Smoothing",
    "Unsmoothed",
    "clip_steps",
    "divergence_named",
    "kl_divergence",
    "phi",
    "register",
    "skewed_divergence",
]
