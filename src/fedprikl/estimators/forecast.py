"""What error to expect, from public quantities and a picture of drift.

The error of a release has three sources: the choice of points (sampling), batches that are samples
of the population and a limit on the steepest step (small-batch bias and spread), and the noise.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimators.drift import SEED, DriftPicture
from fedprikl.estimators.terms import Terms

__all__ = ["DrawnCounts", "Forecast", "Outlook", "draw_counts", "outlook"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The error to expect if the population has drifted by `divergence`, in nats."""

    divergence: float
    sampling: float  # standard deviation from the choice of points
    bias: float  # of scores of small batches, and of the limit on the steepest step
    spread: float  # standard deviation from the choice of the batches' clients
    noise: float  # standard deviation of the noise

    @property
    def error(self) -> float:
        """Root mean square of all of them."""
        return math.hypot(self.sampling, self.bias, self.spread, self.noise)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "divergence": self.divergence,
            "error": self.error,
            "sampling": self.sampling,
            "small_batch_bias": self.bias,
            "small_batch_spread": self.spread,
            "noise": self.noise,
        }


@dataclass(frozen=True, slots=True, eq=False)
class DrawnCounts:
    """Simulated counts of a picture's cells: in the batches that are asked, and everywhere."""

    asked: Floats
    everywhere: Floats
    records: Floats  # of everybody


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the scores of a design would be, at some drift."""

    mean: float  # of the estimate before noise
    variance: float  # of the estimate before noise: records and batches drawn anew
    bias: float  # against the divergence of the very records
    error_variance: float  # about that bias


def draw_counts(terms: Terms, picture: DriftPicture, *, client_effect: float = 1.0) -> DrawnCounts:
    """Counts if the population had drifted as in the picture, whose cells are positions in `terms`.

    Poisson counts of groups of `client_effect` alike records: batches are sets of clients, and
    records of one client resemble each other.
    """
    rng = np.random.default_rng(SEED)
    at = picture.cells
    records = terms.records[at]
    everybody = records / (1 - terms.outside[at])
    rate = terms.pi[at] * picture.ratios
    groups = rng.poisson(records * rate / client_effect)
    others = rng.poisson(np.maximum(everybody - records, 0.0) * rate / client_effect)
    asked = np.asarray(client_effect * groups, dtype=np.float64)
    return DrawnCounts(asked, asked + client_effect * others, everybody)


def outlook(terms: Terms, score: Score, picture: DriftPicture, drawn: DrawnCounts) -> Outlook:
    """Scores of the counts that were asked, against scores of the counts of everybody."""
    at = picture.cells
    pi, weights = terms.pi[at], terms.weights[at]
    scores = score(drawn.asked, pi, terms.records[at], outside=terms.outside[at], weights=weights)
    whole = np.maximum(1, np.round(drawn.records)).astype(np.int64)
    error = scores - Score(score.smoothing)(drawn.everywhere, pi, whole)
    shift = scores + np.log(picture.gamma + (1 - picture.gamma) * picture.ratios)
    return Outlook(
        mean=picture.divergence + float(shift.mean()),
        variance=_variance_of_sum(shift, weights),
        bias=float(error.mean()),
        error_variance=_variance_of_sum(error, weights),
    )


def _variance_of_sum(values: Floats, weights: Floats) -> float:
    """sum w^2 Var(value of the cell), from pairs of draws of the same cell."""
    return float(np.mean(weights[::2] * (values[::2] - values[1::2]) ** 2 / 2))
