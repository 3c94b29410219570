"""How many records each client contributes, where whole clients are protected."""

from collections.abc import Callable

from fedprikl.planning.forecast import least
from fedprikl.planning.planned_round import PlannedRound

__all__ = ["best_per_client", "numbers_per_client"]

TRIED = 3  # numbers of records a client, each half of the one before
MOST = 1024  # of one client: more than these hardly differ


def numbers_per_client(average: float) -> tuple[int, ...]:
    """Numbers worth trying if a client holds so many records on average.

    At most half of the average: a client that holds fewer repeats its records, which adds nothing.

    >>> numbers_per_client(112), numbers_per_client(3), numbers_per_client(1)
    ((56, 28, 14), (1,), (1,))
    """
    largest = min(MOST, int(average / 2))
    return tuple(sorted({max(1, largest >> i) for i in range(TRIED)}, reverse=True))


def best_per_client(plan_with: Callable[[int], PlannedRound], average: float) -> PlannedRound:
    """The plan with the least predicted error; of plans that are nearly as good, the first."""
    planned = [plan_with(number) for number in numbers_per_client(average)]
    return least(planned, lambda each: each.error)
