"""Simulated scores: how an estimate spreads before noise, from public quantities and a drift model.

Batches are samples of the population, and scores are clipped; both add bias and spread.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score, clip_steps
from fedprikl.estimation.drift_model import SEED, DriftModel
from fedprikl.estimation.terms import Terms

__all__ = ["EstimateMoments", "SimulatedScores", "simulate_scores"]


@dataclass(frozen=True, slots=True)
class EstimateMoments:
    """Bias and variance of the estimate of a design before noise, at some drift."""

    bias: float  # against the divergence of the very records
    error_variance: float  # about that bias


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedScores:
    """Scores of simulated counts of a drift model's cells, before any clipping.

    Nearly all of a forecast's cost is spent here; looking at one more maximum step is cheap.
    """

    weights: Floats
    counts: Floats  # in the batches that are asked
    scores: Floats
    empty: Floats  # scores of empty cells
    everybody: Floats  # scores of the counts of all batches

    def moments(self, maximum_step: float = math.inf) -> EstimateMoments:
        """Of scores clipped at `maximum_step`, against the scores of everybody's counts."""
        scores = clip_steps(self.scores, self.empty, self.counts, self.weights, maximum_step)
        error = scores - self.everybody
        return EstimateMoments(
            bias=float(error.mean()),
            error_variance=_variance_of_sum(error, self.weights),
        )


def simulate_scores(
    terms: Terms, score: Score, model: DriftModel, *, client_effect: float = 1.0
) -> SimulatedScores:
    """Scores if the population had drifted as in the model, whose cells are positions in `terms`.

    Poisson counts of groups of `client_effect` alike records: batches are sets of clients, and
    records of one client are correlated. The clipping of `score` is left to `moments`.
    """
    rng, at = np.random.default_rng(SEED), model.cells
    pi, records, outside = terms.pi[at], terms.records[at], terms.outside[at]
    everybody = records / (1 - outside)
    rate = pi * model.ratios
    groups = rng.poisson(records * rate / client_effect)
    others = rng.poisson(np.maximum(everybody - records, 0.0) * rate / client_effect)
    counts = np.asarray(client_effect * groups, dtype=np.float64)
    unclipped, whole = replace(score, maximum_step=math.inf), np.maximum(1, np.round(everybody))
    return SimulatedScores(
        weights=terms.weights[at],
        counts=counts,
        scores=unclipped(counts, pi, records, outside=outside),
        empty=unclipped(0, pi, records),
        everybody=score.plain(counts + client_effect * others, pi, whole.astype(np.int64)),
    )


def _variance_of_sum(values: Floats, weights: Floats) -> float:
    """sum w^2 Var(value of the cell), from pairs of draws of the same cell."""
    return float(np.mean(weights[::2] * (values[::2] - values[1::2]) ** 2 / 2))
