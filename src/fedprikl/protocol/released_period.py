"""Which period of a series a release is about, and the release before it. Public."""

from dataclasses import dataclass, replace

from fedprikl.privacy import PrivacyStatement, Span
from fedprikl.protocol.plan import Plan

__all__ = ["ReleasedPeriod", "charged_span", "in_series", "released_period"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPeriod:
    """The place of a release in its series. The releases of a series are a chain."""

    number: int  # from 0
    start: str  # of the records that are counted; ISO 8601 with an offset
    end: str
    previous: str  # fingerprint of the release before; empty: it is the first

    def is_of(self, plan: Plan) -> bool:
        """Whether it is a period of the plan's series."""
        series = plan.series
        if series is None or not 0 <= self.number < series.periods:
            return False
        span = series.counted_by(self.number).span
        return (self.start, self.end) == (span.start, span.end)


def released_period(plan: Plan, number: int | None, previous: str) -> ReleasedPeriod | None:
    """Of a round of the plan; None if the plan has no series."""
    if plan.series is None or number is None:
        return None
    span = plan.series.counted_by(number).span
    return ReleasedPeriod(number=number, start=span.start, end=span.end, previous=previous)


def charged_span(plan: Plan, number: int | None) -> Span | None:
    """The moments of the records that a round is charged for; None: of all of them.

    A record has one moment, and pays for the periods that count it. A client is in every period.
    """
    if plan.series is None or number is None or plan.unit == "client":
        return None
    return plan.series.counted_by(number).span


def in_series(statement: PrivacyStatement, plan: Plan) -> PrivacyStatement:
    """The statement on a release, with what all releases of the plan's series protect."""
    if plan.series is None:
        return statement
    epsilon, delta = plan.budget
    return replace(
        statement,
        counted=plan.exposures(plan.series),
        series_epsilon=epsilon,
        series_delta=delta,
    )
