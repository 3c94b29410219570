"""When reports belong to which batch: the periods of a plan in the time of a DAP task."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from fedprikl.checks import check_instant
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import Plan, Series

__all__ = ["Interval", "Timing", "timing_of"]

DAY = 86_400  # seconds
TIME_INTERVAL, LEADER_SELECTED = 1, 2  # codes of DAP's batch modes


@dataclass(frozen=True, slots=True)
class Interval:
    """From `start` up to, and without, `start + duration`. Both in units of the time precision."""

    start: int
    duration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time precision, life and batches of a DAP task.

    Each period of a series is a batch by time. All reports about a period carry its first unit as
    their time: a report is written when the period is over, and the moment says something
    about its client. Without a series the leader chooses the batch.
    """

    precision: int  # seconds
    life: Interval | None  # the extension `task_interval`; None: for ever
    batches: tuple[Interval, ...] = ()  # one for each period; empty: the leader chooses

    @property
    def mode(self) -> int:
        """DAP's code of the batch mode."""
        return TIME_INTERVAL if self.batches else LEADER_SELECTED

    def query(self, number: int) -> dict[str, Any]:
        """What the collector asks for: the period of this number. Without a series it is 0, for the
        next batch of the leader's choice.
        """
        if not 0 <= number < max(1, len(self.batches)):
            raise InvalidInputError(f"The task has no batch {number!r:.20}.")
        query: dict[str, Any] = {"batch_mode": self.mode}
        if self.batches:
            query["batch_interval"] = asdict(self.batches[number])
        return query


def timing_of(plan: Plan) -> Timing:
    """The timing of a plan's tasks, exact to the second: the precision divides all its instants.

    >>> from fedprikl.protocol import AskedView, Budget, Question
    >>> series = Series(every="week", first="2027-01-04", periods=2)
    >>> asked = {"views": (AskedView(points=3),), "questions": (Question(release="counts"),)}
    >>> who = {"population": "p", "reference": 64 * "0"}
    >>> plan = Plan(budget=Budget(epsilon=1), when=series, **who, **asked)
    >>> timing_of(plan).batches
    (Interval(start=20822, duration=7), Interval(start=20829, duration=7))
    """
    if plan.is_series:
        return _periods(plan.series)
    ends = (plan.validity.valid_from, plan.validity.valid_until)
    if ends == ("", ""):
        return Timing(precision=DAY, life=None)
    if "" in ends:
        raise InvalidInputError(
            "A DAP task has a beginning and an end, or neither: give the plan both valid_from and "
            "valid_until."
        )
    begin, end = map(_seconds, map(check_instant, ends))
    precision = _precision((begin, end))
    return Timing(precision=precision, life=_interval(begin, end, precision))


def _periods(series: Series) -> Timing:
    if series.window > 1:
        raise InvalidInputError(
            "DAP collects a report once, so windows that overlap are not possible. Use window=1; "
            "noisy counts of several periods may be added up."
        )
    begins = [_seconds(series.period(number).start) for number in range(series.periods)]
    bounds = [*begins, _seconds(series.end)]
    precision = _precision(bounds)
    return Timing(
        precision=precision,
        life=_interval(bounds[0], bounds[-1], precision),
        batches=tuple(
            _interval(begin, end, precision) for begin, end in zip(begins, bounds[1:], strict=True)
        ),
    )


def _seconds(at: datetime) -> int:
    """Since 1970, in UTC."""
    seconds = at.timestamp()
    if seconds < 0 or not seconds.is_integer():
        raise InvalidInputError("Times of a DAP task are whole seconds from 1970 on.")
    return int(seconds)


def _precision(instants: Iterable[int]) -> int:
    """The longest unit in which all these are whole numbers."""
    return math.gcd(*instants) or DAY


def _interval(begin: int, end: int, precision: int) -> Interval:
    return Interval(begin // precision, (end - begin) // precision)
