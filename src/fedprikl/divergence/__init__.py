"""Divergence: the mathematics of the estimator. NumPy only; knows nothing of privacy."""

from fedprikl.divergence.exact import kl_divergence, skewed_divergence
from fedprikl.divergence.f_divergence import Divergence, divergence_named, register
from fedprikl.divergence.hellinger import HELLINGER
from fedprikl.divergence.js import JS
from fedprikl.divergence.kl import KL
from fedprikl.divergence.phi import phi
from fedprikl.divergence.psi import PSI
from fedprikl.divergence.reverse_kl import REVERSE_KL
from fedprikl.divergence.score import CellScores, Score, clip_steps
from fedprikl.divergence.smoothing import (
    DEFAULT_SKEW,
    Additive,
    Floor,
    Skew,
    Smoothing,
    check_skew,
)
from fedprikl.divergence.tv import TV

__all__ = [
    "DEFAULT_SKEW",
    "HELLINGER",
    "JS",
    "KL",
    "PSI",
    "REVERSE_KL",
    "TV",
    "Additive",
    "CellScores",
    "Divergence",
    "Floor",
    "Score",
    "Skew",
    "Smoothing",
    "check_skew",
    "clip_steps",
    "divergence_named",
    "kl_divergence",
    "phi",
    "register",
    "skewed_divergence",
]
