"""What lying clients can do to a result, where each contributes a fixed number of records."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import score_reach
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.terms import Terms
from fedprikl.planning.known import Known
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import asked_views, view_points, view_score
from fedprikl.reference import QueryPoints

__all__ = ["LiarBound", "LiarTarget", "liar_bounds", "liar_targets"]

SHARES = (0.01, 0.05)  # of the clients


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
    if plan.per_client is None:
        return ()
    found = []
    for share in shares:
        liars = max(1, round(share * known.clients))
        for targets in liar_targets(known, plan):
            moved, broken = (
                max(
                    ((target.bound(plan.per_client * clients), target) for target in targets),
                    key=lambda each: each[0],
                )
                for clients in (liars, liars * _cohort(known, plan))
            )
            found.append(
                LiarBound(
                    share=share,
                    liars=liars,
                    divergence=moved[1].divergence,
                    column=moved[1].column,
                    moved=moved[0],
                    faked=max(target.faked(liars / known.clients) for target in targets),
                    broken=broken[0],
                )
            )
    return tuple(found)


def _cohort(known: Known, plan: Plan) -> int:
    """Clients of the largest cohort."""
    return max(cohort_sizes(plan, math.ceil(known.clients / plan.batches)))


@dataclass(frozen=True, eq=False, kw_only=True)
class LiarTarget:
    """A number that is released: its divergence, the column it is about, and its score."""

    divergence: str
    column: str  # empty: the whole
    points: QueryPoints
    records: Ints  # of each batch
    score: Score

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
        return float(np.max(np.abs(np.sum(without) - np.sum(before) + within - without)))


def liar_targets(known: Known, plan: Plan) -> list[list[LiarTarget]]:
    """All numbers that liars may aim at: each of the whole, and of each divergence all columns."""
    found = []
    if plan.questions:
        trust, batches = trust_of(plan), plan.batches
        points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
        records = np.full(batches, max(1, known.records // batches))
        found = [
            [
                LiarTarget(
                    divergence=question.divergence,
                    column="",
                    points=points,
                    records=records,
                    score=trust.score_of(question),
                )
            ]
            for question in plan.questions
        ]
    views = asked_views(plan, known.reference)
    for divergence in ("tv", "kl") if views else ():
        found.append(
            [
                LiarTarget(
                    divergence=divergence,
                    column=" and ".join(view.columns),
                    points=view_points(view),
                    records=np.array([known.records]),
                    score=view_score(divergence),
                )
                for view in views
            ]
        )
    return found
