"""How a cohort ended."""

from dataclasses import dataclass

__all__ = ["Outcome"]


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
