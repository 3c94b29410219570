"""How a cohort ended."""

from collections.abc import Iterable
from dataclasses import dataclass

from fedprikl.protocol.plan import Plan
from fedprikl.reference import Reference, Spread

__all__ = ["Outcome", "spread_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cohort ended: its counts are in the sum of its batch, or it was dropped. Public.

    >>> Outcome(batch=0, clients=9, included=8)
    Outcome(batch=0, clients=9, included=8, reason='')
    """

    batch: int
    clients: int
    included: int  # clients whose counts are in the sum; 0 if the cohort was dropped
    reason: str = ""  # why it was dropped


def spread_of(plan: Plan, reference: Reference, outcomes: Iterable[Outcome]) -> float | Spread:
    """How counts vary without drift: by the plan, or by the reference for who was counted."""
    if plan.design_effect is not None:
        return plan.design_effect
    clients = [0] * plan.batches
    for outcome in outcomes:
        clients[outcome.batch] += outcome.included
    return reference.spread(clients=clients)
