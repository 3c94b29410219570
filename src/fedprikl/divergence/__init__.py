"""Divergence: the mathematics of the estimator. NumPy only; knows nothing of privacy."""

from fedprikl.divergence.divergences import (
    HELLINGER,
    JS,
    KL,
    PSI,
    REVERSE_KL,
    TV,
    Divergence,
    check_skew,
    divergence_named,
    register,
    skewed_divergence,
)
from fedprikl.divergence.score import (
    DEFAULT_SKEW,
    Additive,
    CellScores,
    Floor,
    Score,
    Skew,
    Smoothing,
    clip_steps,
)

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
    "register",
    "skewed_divergence",
]
