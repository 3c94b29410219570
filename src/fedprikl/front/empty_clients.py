"""Clients without records, where the plan lets them stay away: who they are, and whether it works.

That they are left out is told in the open. Under such a plan, whether a client has records is no
secret: the number of clients that are counted is public, and with it N = k x clients.
"""

from collections.abc import Mapping

from fedprikl.errors import ReleaseRefused
from fedprikl.protocol import Plan
from fedprikl.protocol.client import NO_RECORDS
from fedprikl.records import RecordCounts

__all__ = ["check_enough", "stay_away", "stay_away_words"]

SMALLEST = 3  # clients of a secure sum


def stay_away(plan: Plan, counted: Mapping[str, RecordCounts]) -> dict[str, str]:
    """The clients that take no part in the round, each with the reason; none in most plans."""
    if plan.per_client is None or plan.empty != "away":
        return {}
    return {name: NO_RECORDS for name, found in counted.items() if found.total == 0}


def stay_away_words(away: int, clients: int) -> str:
    """For people."""
    return f"{away} of {clients} clients hold no records and stay away, as the plan says."


def check_enough(plan: Plan, away: int, clients: int) -> None:
    """Refuses a round that too few clients are left for; nothing was sent or charged."""
    if clients - away < SMALLEST * plan.batches:
        raise ReleaseRefused(
            f"{stay_away_words(away, clients)} {clients - away} are left, and the secure sums of "
            f"the plan need {SMALLEST * plan.batches}. Nothing was sent and nothing was charged. "
            "Let more clients take part, or plan with empty='reference'."
        )
