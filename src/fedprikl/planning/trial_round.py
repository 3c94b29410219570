"""One round of a plan in which everybody takes part, to try out releases on. Public."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import score_sensitivity
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.trials import (
    AdaptiveNoise,
    CountsNoise,
    Release,
    ValueNoise,
    trial_errors,
)
from fedprikl.planning.drift_cases import DriftCase
from fedprikl.protocol import question_noise, trust_of
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.question_noise import noises_of
from fedprikl.protocol.round import cohort_sizes
from fedprikl.reference import QueryPoints, Reference, is_all, spread_shares

__all__ = ["TrialRound"]

NORMAL_QUANTILES = 21  # of what the choice of points adds
EFFORT = {"value": (6, 200), "adaptive": (3, 200), "counts": (6, 16)}  # populations, releases


@dataclass(frozen=True, eq=False)
class TrialRound:
    """The points, records and noise of one round of a plan."""

    plan: Plan
    pi: Floats  # of the cells with Pi > 0
    points: QueryPoints  # cells are positions in `pi`
    records: Ints  # per batch
    clients: int

    @classmethod
    def of(cls, plan: Plan, reference: Reference, *, clients: int, records: int) -> "TrialRound":
        """With points drawn like those of a round; a round draws its own."""
        pi = reference.probabilities[reference.probabilities > 0]
        points = trust_of(plan).draw_points(pi, np.random.default_rng(SEED))
        sizes = np.full(plan.batches, max(1, records // plan.batches))
        return cls(plan, pi, points, sizes, clients)

    def error(self, case: DriftCase) -> float:
        """The mean absolute error of the answer to the first question at this drift.

        Against the divergence of the population's very records, over all cells.
        """
        question = self.plan.question
        ratios = case.ratios[self._term_cells]
        errors = trial_errors(
            self.points,
            self.records,
            ratios,
            self.score,
            self.release(question),
            design_effect=self.plan.client_effect,
            effort=EFFORT[question.release],
        )
        sampling = self._sampling_sd(case)
        if sampling == 0:
            return errors.mean_absolute
        levels = (np.arange(NORMAL_QUANTILES) + 0.5) / NORMAL_QUANTILES
        added = sampling * scipy.special.ndtri(levels)
        return float(np.abs(errors.signed[..., None] + added).mean())
