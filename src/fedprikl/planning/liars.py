"""What lying clients can do to a result, where each contributes a fixed number of records."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import DebiasedNoise, TrimmedMean, score_sensitivity
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.envelope import Ladder
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.planning.known import Known
from fedprikl.planning.trial_round import TrialRound
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import asked_views, view_points, view_score
from fedprikl.reference import QueryPoints

__all__ = ["LiarBound", "liar_bounds"]

SHARES = (0.01, 0.05)  # of the clients
DRAWS, DEALT = 200, 0.99  # simulated rounds without drift, and how many of them a bound holds in


@dataclass(frozen=True, slots=True, kw_only=True)
class LiarBound:
    """How far so many lying clients can move one divergence, whatever the others hold.

    A client that lies about its records moves its own, and no more: `moved`. One that breaks the
    protocol, and hands impossible counts to the secure sum, can do to the sum of its cohort what
    all clients of the cohort could do together: `broken`. Where scores of cohorts are trimmed,
    that is far less if the cohorts are alike: `dealt`, for clients that were dealt at random and
    have not drifted, in 99% of simulated rounds.
    """

    share: float  # of the clients that lie
    liars: int
    divergence: str
    column: str  # empty: of the whole
    moved: float
    broken: float
    dealt: float | None = None  # known where scores of cohorts are trimmed

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def liar_bounds(
    known: Known, plan: Plan, shares: tuple[float, ...] = SHARES
) -> tuple[LiarBound, ...]:
    """The bounds for every divergence that is asked; () unless clients contribute equally many.

    The worst case over all populations: the sensitivity to as many records as the liars have
    together. So a drift of which they hide all must be smaller than that. For columns it is that of
    the column that can be moved furthest.
    """
    if plan.per_client is None:
        return ()
    found = []
    for share in shares:
        liars = max(1, round(share * known.clients))
        for divergence, column, target in _targets(known, plan):
            moved, broken, dealt = target.bounds(liars)
            found.append(
                LiarBound(
                    share=share,
                    liars=liars,
                    divergence=divergence,
                    column=column,
                    moved=moved,
                    broken=broken,
                    dealt=dealt,
                )
            )
    return tuple(found)


def _cohort(known: Known, plan: Plan) -> int:
    """Clients of the largest cohort."""
    return max(cohort_sizes(plan, math.ceil(known.clients / plan.batches)))


class _Bounded(Protocol):
    """A number that is released."""

    def bounds(self, liars: int) -> tuple[float, float, float | None]:
        """`moved`, `broken` and `dealt` of so many liars."""
        ...


@dataclass(frozen=True, eq=False)
class _Target:
    """A scored sum of batches."""

    points: QueryPoints
    records: Ints  # of each batch
    score: Score
    per_client: int
    cohort: int  # clients of the largest cohort

    def bounds(self, liars: int) -> tuple[float, float, float | None]:
        """Of so many liars."""
        own, together = self.per_client * liars, self.per_client * liars * self.cohort
        return self.bound(own), self.bound(together), None

    def bound(self, moved: int) -> float:
        """How far so many records, of whatever batches, can move it.

        Those of one batch move it by at most the sensitivity to all of them; and no more than each
        by itself.
        """
        most = min(moved, int(self.records.sum()))
        one = score_sensitivity(self.points, self.records, self.score)
        if most == 1:
            return one
        together = score_sensitivity(self.points, self.records, self.score, moved=most)
        return min(most * one, len(self.records) * together)


@dataclass(frozen=True, eq=False)
class _TrimmedTarget:
    """A trimmed mean of cohort scores."""

    mean: TrimmedMean
    score: Score
    per_client: int
    model: NoDrift
    errors: Ladder  # of the release before it is debiased

    def bounds(self, liars: int) -> tuple[float, float, float | None]:
        """Of so many liars, one in each cohort, which is the worst for them all."""
        cohorts, mean = min(liars, self.mean.cohorts), self.mean
        broken = mean.largest_shift(cohorts, self.score)
        own = liars * mean.sensitivity(self.score, self.per_client)
        shifts = mean.shifts(self._honest, cohorts, mean.extremes(self.score))
        dealt = min(broken, float(np.quantile(shifts, DEALT)))
        moved, broken, dealt = map(self.errors.most_apart, (min(own, broken), broken, dealt))
        return moved, broken, dealt

    @cached_property
    def _honest(self) -> Floats:
        """Scores of cohorts without drift, (draws, T)."""
        return self.mean.scores(self.model.counts(DRAWS, public_simulation()), self.score)


def _targets(known: Known, plan: Plan) -> list[tuple[str, str, _Bounded]]:
    """Every number: its divergence, the column it is about, and how it is computed."""
    if plan.trim:
        trial = TrialRound.of(plan, known.reference, clients=known.clients, records=known.records)
        return [(each.divergence, "", _trimmed(trial, each)) for each in plan.questions]
    return _scored_targets(known, plan)


def _trimmed(trial: TrialRound, question: Question) -> _TrimmedTarget:
    score, release = trust_of(trial.plan).score_of(question), trial.release(question)
    assert trial.trimmed is not None  # noqa: S101  it trims
    assert isinstance(release, DebiasedNoise)  # noqa: S101
    errors = release.ladder(trial.points, score)
    return _TrimmedTarget(trial.trimmed, score, trial.plan.moved, trial.no_drift, errors)


def _scored_targets(known: Known, plan: Plan) -> list[tuple[str, str, _Bounded]]:
    """The same of scored sums."""
    found: list[tuple[str, str, _Bounded]] = []
    client = plan.moved, _cohort(known, plan)
    if plan.questions:
        trust, batches = trust_of(plan), plan.batches
        points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
        records = np.full(batches, max(1, known.records // batches))
        for question in plan.questions:
            target = _Target(points, records, trust.score_of(question), *client)
            found.append((question.divergence, "", target))
    records = np.array([known.records])
    columns = [
        (
            divergence,
            " and ".join(view.columns),
            _Target(view_points(view), records, score, *client),
        )
        for divergence in ("tv", "kl")
        for score in (view_score(divergence),)
        for view in asked_views(plan, known.reference)
    ]
    for divergence in ("tv", "kl"):
        of_kind = [each for each in columns if each[0] == divergence]
        if of_kind:
            found.append(max(of_kind, key=lambda each: each[2].bound(plan.moved)))
    return found
