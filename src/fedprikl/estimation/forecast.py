"""What error to expect, from public quantities and a drift model.

The error of a release has three sources: the choice of points (sampling), batches that are samples
of the population and a limit on the maximum step (small-batch bias and spread), and the noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score, clip_steps
from fedprikl.estimation.drift_model import SEED, DriftModel
from fedprikl.estimation.terms import Terms

__all__ = ["EstimateMoments", "Forecast", "SimulatedScores", "mean_error", "simulate_scores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The error to expect if the population has drifted by `divergence`, in nats."""

    divergence: float
    sampling: float  # standard deviation from the choice of points
    bias: float  # of scores of small batches, and of the limit on the maximum step
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


def mean_error(forecasts: Sequence[Forecast]) -> float:
    """Root mean square of the predicted errors: what the planner minimises."""
    return math.sqrt(sum(f.error**2 for f in forecasts) / len(forecasts))


@dataclass(frozen=True, slots=True)
class EstimateMoments:
    """What the scores of a design would be, at some drift."""

    mean: float  # of the estimate before noise
    variance: float  # of the estimate before noise: records and batches drawn anew
    bias: float  # against the divergence of the very records
    error_variance: float  # about that bias


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedScores:
    """Scores of simulated counts of a model's cells, before any limit on the maximum step.

    Nearly all of a forecast's cost is spent here; looking at one more limit is cheap.
    """

    divergence: float
    weights: Floats
    counts: Floats  # in the batches that are asked
    scores: Floats
    empty: Floats  # scores of empty cells
    everybody: Floats  # scores of the counts of all batches
    modelled: Floats  # scores of the modelled ratios themselves

    def moments(self, maximum_step: float = math.inf) -> EstimateMoments:
        """Scores under a limit, against the drift that is modelled and against everybody's."""
        scores = clip_steps(self.scores, self.empty, self.counts, self.weights, maximum_step)
        error, shift = scores - self.everybody, scores - self.modelled
        return EstimateMoments(
            mean=self.divergence + float(shift.mean()),
            variance=_variance_of_sum(shift, self.weights),
            bias=float(error.mean()),
            error_variance=_variance_of_sum(error, self.weights),
        )


def simulate_scores(
    terms: Terms, score: Score, model: DriftModel, *, client_effect: float = 1.0
) -> SimulatedScores:
    """Scores if the population had drifted as in the model, whose cells are positions in `terms`.

    Poisson counts of groups of `client_effect` alike records: batches are sets of clients, and
    records of one client resemble each other. A limit of `score` is left to `moments`.
    """
    rng, at = np.random.default_rng(SEED), model.cells
    pi, records, outside = terms.pi[at], terms.records[at], terms.outside[at]
    everybody = records / (1 - outside)
    rate = pi * model.ratios
    groups = rng.poisson(records * rate / client_effect)
    others = rng.poisson(np.maximum(everybody - records, 0.0) * rate / client_effect)
    counts = np.asarray(client_effect * groups, dtype=np.float64)
    unlimited, whole = replace(score, maximum_step=math.inf), np.maximum(1, np.round(everybody))
    return SimulatedScores(
        divergence=model.divergence,
        weights=terms.weights[at],
        counts=counts,
        scores=unlimited(counts, pi, records, outside=outside),
        empty=unlimited(0, pi, records),
        everybody=Score(score.smoothing)(
            counts + client_effect * others, pi, whole.astype(np.int64)
        ),
        modelled=-np.log(model.gamma + (1 - model.gamma) * model.ratios),
    )


def _variance_of_sum(values: Floats, weights: Floats) -> float:
    """sum w^2 Var(value of the cell), from pairs of draws of the same cell."""
    return float(np.mean(weights[::2] * (values[::2] - values[1::2]) ** 2 / 2))
