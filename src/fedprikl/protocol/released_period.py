"""Which period of a series a release is about, and the release before it. Public."""

from dataclasses import dataclass, replace
from itertools import takewhile

from fedprikl.privacy import PrivacyStatement, Span
from fedprikl.privacy.account import LedgerRound
from fedprikl.protocol.plan import Plan

__all__ = [
    "ReleasedPeriod",
    "charge_note",
    "charged_periods",
    "charged_span",
    "in_series",
    "released_period",
]


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


def charge_note(plan: Plan, number: int | None) -> str:
    """What a ledger notes where a charge has no span: the plan and the period it is for."""
    if plan.series is None or number is None or plan.unit == "record":
        return ""
    return f"plan {plan.fingerprint[:16]}, period {number}"


def charged_periods(known: LedgerRound, plan: Plan) -> list[int]:
    """Periods of the plan's series with records that a round was charged for.

    A charge without a span is one of the series only if its note says so.
    """
    series = plan.series
    if series is None:
        return []
    if known.span is None:
        return [n for n in range(series.periods) if known.note == charge_note(plan, n) != ""]
    if known.span.clock != series.clock:
        return []
    later = range(series.last_over(known.span.start) + 1, series.periods)
    return list(takewhile(lambda n: series.period(n).span.overlaps(known.span), later))


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
