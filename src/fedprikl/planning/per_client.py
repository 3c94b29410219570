"""How many records each client contributes, where whole clients are protected."""

import math
from collections.abc import Callable

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.planning.forecast import least
from fedprikl.planning.planned_round import PlannedRound

__all__ = ["best_per_client", "check_per_client", "numbers_per_client"]

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


def check_per_client(number: int, average: float) -> int:
    """Refuses more records than a client holds on average, before a plan with them takes minutes.

    >>> check_per_client(20, 60.0)
    20
    """
    if check_positive_int(number, "per_client") > (most := max(1, math.ceil(average))):
        raise InvalidInputError(
            f"Every client would contribute {number:,} records, and holds {most:,} on average: "
            "repeating them adds noise and tells nothing more. Use at most "
            f"{most:,} (--per-client; in Python: per_client), or leave it out for the best number."
        )
    return number


def best_per_client(plan_with: Callable[[int], PlannedRound], average: float) -> PlannedRound:
    """The plan with the least predicted error; of plans that are nearly as good, the first."""
    planned = [plan_with(number) for number in numbers_per_client(average)]
    return least(planned, lambda each: each.error)
