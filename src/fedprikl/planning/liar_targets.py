"""What liars may aim at: each number that is released, and how far they can move it."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import DebiasedNoise, TrimmedMean, score_reach
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.envelope import Ladder
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.terms import Terms
from fedprikl.planning.known import Known
from fedprikl.planning.trial_round import TrialRound
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import asked_views, view_points, view_score
from fedprikl.reference import QueryPoints

__all__ = ["LiarTarget", "TrimmedTarget", "liar_targets"]

DRAWS, DEALT = 200, 0.99  # simulated rounds without drift, and how many of them a bound holds in
COLUMNS = ("tv", "kl")  # divergences of every column


@dataclass(frozen=True, eq=False, kw_only=True)
class LiarTarget:
    """A scored sum of batches: its divergence, and the column it is about."""

    divergence: str
    column: str  # empty: the whole
    points: QueryPoints
    records: Ints  # of each batch
    score: Score
    per_client: int
    cohort: int  # clients of the largest cohort

    def bounds(self, liars: int) -> tuple[float, float, float | None]:
        """How far so many liars move it: lying about their records, breaking the protocol."""
        own = self.per_client * liars
        return self.bound(own), self.bound(own * self.cohort), None

    def bound(self, moved: int) -> float:
        """How far so many records, of whatever batches, can move it."""
        most = min(moved, int(self.records.sum()))
        return score_reach(self.points, self.records, self.score, most)

    def faked(self, share: float) -> float:
        """How far it moves from no drift if a share of the records falls into one cell."""
        terms = Terms.of(self.points, self.records)
        return _faked(terms, self.score, share, groups=1)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrimmedTarget:
    """A trimmed mean of cohort scores."""

    divergence: str
    mean: TrimmedMean
    score: Score
    per_client: int
    model: NoDrift
    errors: Ladder  # of the release before it is debiased
    column: str = ""

    def bounds(self, liars: int) -> tuple[float, float, float | None]:
        """Of so many liars, one in each cohort, which is the worst for them all."""
        cohorts, mean = min(liars, self.mean.cohorts), self.mean
        broken = mean.largest_shift(cohorts, self.score)
        own = liars * mean.sensitivity(self.score, self.per_client)
        shifts = mean.shifts(self._honest, cohorts, mean.extremes(self.score))
        dealt = min(broken, float(np.quantile(shifts, DEALT)))
        moved, broken, dealt = map(self.errors.most_apart, (min(own, broken), broken, dealt))
        return moved, broken, dealt

    def faked(self, share: float) -> float:
        """How far it moves from no drift if that share of every cohort falls into one cell."""
        terms = Terms.of(self.mean.points, self.mean.records)
        moved = _faked(terms, self.score, share, groups=self.mean.cohorts)
        return self.errors.most_apart(moved * self.mean.kept / self.mean.cohorts)

    @cached_property
    def _honest(self) -> Floats:
        """Scores of cohorts without drift, (draws, T)."""
        return self.mean.scores(self.model.counts(DRAWS, public_simulation()), self.score)


def _faked(terms: Terms, score: Score, share: float, *, groups: int) -> float:
    """The largest change of the weighted sum if a share of all records falls into one cell.

    `terms` are those of so many groups of clients, each with all cells.
    """
    usual = terms.records * terms.pi
    left = (1 - share) * usual
    before, without, within = (
        terms.weights * terms.scores(np.rint(counts), score)
        for counts in (usual, left, left + share * terms.records)
    )
    gained = (within - without).reshape(groups, -1).sum(axis=0)
    return float(np.max(np.abs(np.sum(without) - np.sum(before) + gained)))


def liar_targets(known: Known, plan: Plan) -> list[list[LiarTarget]] | list[list[TrimmedTarget]]:
    """All numbers that liars may aim at: each of the whole, and of each divergence all columns."""
    if plan.trim:
        return [[each] for each in _trimmed(known, plan)]
    cohort = max(cohort_sizes(plan, math.ceil(known.clients / plan.batches)))
    whole = [[each] for each in _scored(known, plan, cohort)]
    return whole + _of_columns(known, plan, cohort)


def _trimmed(known: Known, plan: Plan) -> list[TrimmedTarget]:
    trial = TrialRound.of(plan, known.reference, clients=known.clients, records=known.records)
    return [_trimmed_target(trial, each) for each in plan.questions]


def _trimmed_target(trial: TrialRound, question: Question) -> TrimmedTarget:
    score, release = trust_of(trial.plan).score_of(question), trial.release(question)
    assert trial.trimmed is not None  # noqa: S101  it trims
    assert isinstance(release, DebiasedNoise)  # noqa: S101
    return TrimmedTarget(
        divergence=question.divergence,
        mean=trial.trimmed,
        score=score,
        per_client=trial.plan.moved,
        model=trial.no_drift,
        errors=release.ladder(trial.points, score),
    )


def _scored(known: Known, plan: Plan, cohort: int) -> list[LiarTarget]:
    if not plan.questions:
        return []
    trust, batches = trust_of(plan), plan.batches
    points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
    return [
        LiarTarget(
            divergence=question.divergence,
            column="",
            points=points,
            records=np.full(batches, max(1, known.records // batches)),
            score=trust.score_of(question),
            per_client=plan.moved,
            cohort=cohort,
        )
        for question in plan.questions
    ]


def _of_columns(known: Known, plan: Plan, cohort: int) -> list[list[LiarTarget]]:
    views = asked_views(plan, known.reference)
    return [
        [
            LiarTarget(
                divergence=divergence,
                column=" and ".join(view.columns),
                points=view_points(view),
                records=np.array([known.records]),
                score=view_score(divergence),
                per_client=plan.moved,
                cohort=cohort,
            )
            for view in views
        ]
        for divergence in (COLUMNS if views else ())
    ]
