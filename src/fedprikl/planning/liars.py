"""What lying clients can do to a result, where each contributes a fixed number of records."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import score_sensitivity
from fedprikl.estimation.drift_model import SEED
from fedprikl.planning.known import Known
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import asked_views, view_points, view_score
from fedprikl.reference import QueryPoints

__all__ = ["LiarBound", "liar_bounds"]

SHARES = (0.01, 0.05)  # of the clients


@dataclass(frozen=True, slots=True, kw_only=True)
class LiarBound:
    """How far so many lying clients can move one divergence, whatever the others hold.

    A client that lies about its records moves its own, and no more: `moved`. One that breaks the
    protocol, and hands impossible counts to the secure sum, can do to the sum of its cohort what
    all clients of the cohort could do together: `broken`.
    """

    share: float  # of the clients that lie
    liars: int
    divergence: str
    column: str  # empty: of the whole
    moved: float
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
        for divergence, column, target in _targets(known, plan):
            moved, broken = (
                target.bound(plan.per_client * clients)
                for clients in (liars, liars * _cohort(known, plan))
            )
            found.append(
                LiarBound(
                    share=share,
                    liars=liars,
                    divergence=divergence,
                    column=column,
                    moved=moved,
                    broken=broken,
                )
            )
    return tuple(found)


def _cohort(known: Known, plan: Plan) -> int:
    """Clients of the largest cohort."""
    return max(cohort_sizes(plan, math.ceil(known.clients / plan.batches)))


@dataclass(frozen=True, eq=False)
class _Target:
    """A number that is released."""

    points: QueryPoints
    records: Ints  # of each batch
    score: Score

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


def _targets(known: Known, plan: Plan) -> list[tuple[str, str, _Target]]:
    """Every number: its divergence, the column it is about, and how it is computed."""
    found = []
    if plan.questions:
        trust, batches = trust_of(plan), plan.batches
        points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
        records = np.full(batches, max(1, known.records // batches))
        for question in plan.questions:
            target = _Target(points, records, trust.score_of(question))
            found.append((question.divergence, "", target))
    records = np.array([known.records])
    columns = [
        (divergence, " and ".join(view.columns), _Target(view_points(view), records, score))
        for divergence in ("tv", "kl")
        for score in (view_score(divergence),)
        for view in asked_views(plan, known.reference)
    ]
    for divergence in ("tv", "kl"):
        of_kind = [each for each in columns if each[0] == divergence]
        if of_kind:
            found.append(max(of_kind, key=lambda each: each[2].bound(plan.moved)))
    return found
