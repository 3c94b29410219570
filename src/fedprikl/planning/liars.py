"""What lying clients can do to a result, where each contributes a fixed number of records."""

from dataclasses import dataclass

import numpy as np

from fedprikl.divergence import Score
from fedprikl.estimation import score_reach
from fedprikl.estimation.scoring import Terms
from fedprikl.planning.known import Known
from fedprikl.planning.simulated_round import SimulatedRound
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import view_score
from fedprikl.protocol.sums import asked_views, trust_of

COLUMNS = ("tv", "kl")  # divergences of every column
SHARES = (0.01, 0.05)  # of the clients
Target = tuple[SimulatedRound, Score]  # a number about a view of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class LiarBound:
    """How far so many lying clients can change one divergence, whatever the others hold.

    A client that lies about its records changes its own, and no more: `shift`. `faked` is how far
    they get if nothing has drifted and all of them claim the records that are worst. One that
    breaks the protocol, and hands impossible counts to the secure sum, can do to the sum of its
    cohort what all clients of the cohort could do together: `broken`.
    """

    share: float  # of the clients that lie
    liars: int
    divergence: str
    column: str  # empty: of the whole
    shift: float
    faked: float
    broken: float


def liar_bounds(
    known: Known, plan: Plan, shares: tuple[float, ...] = SHARES
) -> tuple[LiarBound, ...]:
    """The bounds for every divergence that is asked; () unless clients contribute equally many.

    The worst case over all populations: the sensitivity to as many records as the liars have
    together. So a drift of which they hide all must be smaller than that. For columns it is that of
    the column that can be changed furthest.
    """
    if plan.unit.kind == "record":
        return ()
    found, targets = [], liar_targets(known, plan)
    for share in shares:
        liars = max(1, round(share * known.clients))
        own, broken = (liars * plan.unit.records * size for size in (1, known.largest_cohort(plan)))
        for group in targets:
            reached = [(reach(each, own), each) for each in group]
            shift, (about, score) = max(reached, key=lambda each: each[0])
            found.append(
                LiarBound(
                    share=share,
                    liars=liars,
                    divergence=score.divergence.name,
                    column=about.view.name,
                    shift=shift,
                    faked=max(_faked(each, liars / known.clients) for each in group),
                    broken=max(reach(each, broken) for each in group),
                )
            )
    return tuple(found)


def liar_targets(known: Known, plan: Plan) -> list[list[Target]]:
    """All numbers that liars may aim at: each of the whole, and of each divergence all columns."""
    found: list[list[Target]] = []
    if plan.points:
        whole, trust = SimulatedRound.of(plan, known), trust_of(plan)
        found += [[(whole, trust.score_of(question))] for question in plan.about_whole]
    views = asked_views(plan, known.reference)
    if views:
        columns = [SimulatedRound(plan, known, view, view.points()) for view in views]
        found += [[(each, view_score(name)) for each in columns] for name in COLUMNS]
    return found


def reach(target: Target, records: int) -> float:
    """How far so many records, of whatever batches, can change a number."""
    about, score = target
    most = min(records, int(about.records.sum()))
    return score_reach(about.points, about.records, score, most)


def _faked(target: Target, share: float) -> float:
    """How far it goes from no drift if a share of the records falls into one cell."""
    about, score = target
    terms = Terms.of(about.points, about.records)
    usual = terms.records * terms.pi
    left = (1 - share) * usual
    before, without, within = (
        terms.weights * terms.scores(np.rint(counts), score)
        for counts in (usual, left, left + share * terms.records)
    )
    gained = within - without
    return float(np.max(np.abs(np.sum(without) - np.sum(before) + gained)))
