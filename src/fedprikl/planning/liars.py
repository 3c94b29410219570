"""What lying clients can do to a result, where each contributes a fixed number of records."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import score_reach
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.scoring import Terms
from fedprikl.planning.known import Known
from fedprikl.protocol.cohort_sums import asked_views, view_score
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.reference import QueryPoints

COLUMNS = ("tv", "kl")  # divergences of every column
SHARES = (0.01, 0.05)  # of the clients


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

    def bounds(self, liars: int) -> tuple[float, float]:
        """How far so many liars move it: lying about their records, breaking the protocol."""
        own = self.per_client * liars
        return self.bound(own), self.bound(own * self.cohort)

    def bound(self, moved: int) -> float:
        """How far so many records, of whatever batches, can move it."""
        most = min(moved, int(self.records.sum()))
        return score_reach(self.points, self.records, self.score, most)

    def faked(self, share: float) -> float:
        """How far it moves from no drift if a share of the records falls into one cell."""
        terms = Terms.of(self.points, self.records)
        usual = terms.records * terms.pi
        left = (1 - share) * usual
        before, without, within = (
            terms.weights * terms.scores(np.rint(counts), self.score)
            for counts in (usual, left, left + share * terms.records)
        )
        gained = within - without
        return float(np.max(np.abs(np.sum(without) - np.sum(before) + gained)))


def liar_targets(known: Known, plan: Plan) -> list[list[LiarTarget]]:
    """All numbers that liars may aim at: each of the whole, and of each divergence all columns."""
    cohort = max(cohort_sizes(plan, math.ceil(known.clients / plan.sums.batches)))
    whole = [[each] for each in _scored(known, plan, cohort)]
    return whole + _of_columns(known, plan, cohort)


def _scored(known: Known, plan: Plan, cohort: int) -> list[LiarTarget]:
    if not plan.points:
        return []
    trust, batches = trust_of(plan), plan.sums.batches
    points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
    return [
        LiarTarget(
            divergence=question.divergence,
            column="",
            points=points,
            records=np.full(batches, max(1, known.records // batches)),
            score=trust.score_of(question),
            per_client=plan.contribution_bound,
            cohort=cohort,
        )
        for question in plan.about_whole
    ]


def _of_columns(known: Known, plan: Plan, cohort: int) -> list[list[LiarTarget]]:
    views = asked_views(plan, known.reference)
    return [
        [
            LiarTarget(
                divergence=divergence,
                column=" and ".join(view.columns),
                points=view.points(),
                records=np.array([known.records]),
                score=view_score(divergence),
                per_client=plan.contribution_bound,
                cohort=cohort,
            )
            for view in views
        ]
        for divergence in (COLUMNS if views else ())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiarBound:
    """How far so many lying clients can move one divergence, whatever the others hold.

    A client that lies about its records moves its own, and no more: `moved`. `faked` is how far
    they get if nothing has drifted and all of them claim the records that are worst. One that
    breaks the protocol, and hands impossible counts to the secure sum, can do to the sum of its
    cohort what all clients of the cohort could do together: `broken`.
    """

    share: float  # of the clients that lie
    liars: int
    divergence: str
    column: str  # empty: of the whole
    moved: float
    faked: float
    broken: float

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
    if plan.unit.kind == "record":
        return ()
    found = []
    for share in shares:
        liars = max(1, round(share * known.clients))
        for targets in liar_targets(known, plan):
            reached = [(target.bounds(liars), target) for target in targets]
            (moved, _), worst = max(reached, key=lambda each: each[0][0])
            found.append(
                LiarBound(
                    share=share,
                    liars=liars,
                    divergence=worst.divergence,
                    column=worst.column,
                    moved=moved,
                    faked=max(target.faked(liars / known.clients) for target in targets),
                    broken=max(bounds[1] for bounds, _ in reached),
                )
            )
    return tuple(found)
