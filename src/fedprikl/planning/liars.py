"""What lying clients can do to a result, where each contributes a fixed number of records."""

from dataclasses import asdict, dataclass
from typing import Any

from fedprikl.planning.known import Known
from fedprikl.planning.liar_targets import liar_targets
from fedprikl.protocol.plan import Plan

__all__ = ["LiarBound", "liar_bounds"]

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
