"""The state of a series, read from its history and its ledger: nothing is computed anew."""

from collections.abc import Iterable
from dataclasses import replace

from fedprikl.monitoring.findings import read_alarms, read_point, read_windows
from fedprikl.monitoring.history import SeriesHistory
from fedprikl.monitoring.status import (
    AlarmFacts,
    BudgetFacts,
    PeriodPoint,
    SeriesStatus,
    SiteHealth,
    WindowFacts,
)
from fedprikl.privacy import Account
from fedprikl.protocol import Plan

__all__ = ["broken_status", "status_of"]


def status_of(found: SeriesHistory, account: Account | None, *, at: str) -> SeriesStatus:
    """What the page, the metrics and the hooks show. Cost: a fraction of a second for years."""
    plan, series = found.plan, found.plan.series
    assert series is not None  # noqa: S101  a history is of a series
    # What was released stays in sight, also if the clock of this machine is behind.
    over = max(series.last_over(at), *found.kept, *found.missed, -1)
    windows, alarms = _newest(found)
    ahead = over + 1 < series.periods
    return replace(
        _empty(plan, found.signer, at),
        points=tuple(_point(found, n, over) for n in range(over + 1 + ahead)),
        windows=windows,
        alarms=_as_told(alarms, found),
        budget=None if account is None else _budget(account),
        sites=_sites(found),
        privacy=_privacy(found),
        next_due=series.period(over + 1).end.isoformat() if ahead else "",
        last_success="" if found.last is None else found.last.at,
    )


def broken_status(plan: Plan, signer: str, faults: Iterable[str], *, at: str) -> SeriesStatus:
    """Of a history that cannot be read: what is wrong with it."""
    return replace(_empty(plan, signer, at), faults=tuple(faults))


def _empty(plan: Plan, signer: str, at: str) -> SeriesStatus:
    return SeriesStatus(
        population=plan.population,
        every="" if plan.series is None else plan.series.every,
        trust=plan.trust,
        plan=plan.fingerprint,
        reference=plan.reference,
        signer=signer,
        false_alarm=plan.false_alarm,
        at=at,
        points=(),
    )


def _point(found: SeriesHistory, number: int, over: int) -> PeriodPoint:
    if number in found.judged:
        return read_point(found.judged[number])
    assert found.plan.series is not None  # noqa: S101  a history is of a series
    span = found.plan.series.period(number).span
    empty = PeriodPoint(number=number, start=span.start, end=span.end, state="due")
    if number in found.missed:
        return replace(empty, state="missed", reason=found.missed[number])
    if number in found.kept:  # the process ended before it was judged
        kept = found.kept[number]
        return replace(empty, state="released", released_at=kept.at, release=kept.release)
    return empty if number <= over else replace(empty, state="ahead")


def _newest(found: SeriesHistory) -> tuple[tuple[WindowFacts, ...], tuple[AlarmFacts, ...]]:
    """Windows and alarms as they were found last."""
    for number in sorted(found.judged, reverse=True):
        if "alarms" in found.judged[number]:
            return read_windows(found.judged[number]), read_alarms(found.judged[number])
    return (), ()


def _as_told(alarms: Iterable[AlarmFacts], found: SeriesHistory) -> tuple[AlarmFacts, ...]:
    """With what people did about them since."""
    told = {int(each["alarm"]): each for each in found.acknowledged}
    accepted = max((last for _, last in found.rebaselined), default=-1)
    seen = []
    for alarm in alarms:
        if alarm.number in told:
            said = told[alarm.number]
            state = "acknowledged" if alarm.state == "open" else alarm.state
            alarm = replace(alarm, state=state, acknowledged_at=said["at"], note=said["note"])
        if alarm.raised <= accepted and alarm.state in ("open", "acknowledged"):
            alarm = replace(alarm, state="rebaselined")
        seen.append(alarm)
    return tuple(seen)


def _budget(account: Account) -> BudgetFacts:
    spent = account.spent
    return BudgetFacts(
        epsilon=account.epsilon,
        delta=account.delta,
        spent=spent,
        left=max(account.epsilon - spent, 0.0),
        unit=account.unit,
    )


def _sites(found: SeriesHistory) -> tuple[SiteHealth, ...]:
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    last: dict[str, int] = {}
    for number in sorted(found.kept):
        kept = found.kept[number]
        for name in kept.asked:
            asked[name] = asked.get(name, 0) + 1
        for name in kept.answered:
            answered[name] = answered.get(name, 0) + 1
            last[name] = number
    return tuple(
        SiteHealth(name=name, asked=times, answered=answered.get(name, 0), last=last.get(name))
        for name, times in sorted(asked.items())
    )


def _privacy(found: SeriesHistory) -> str:
    if not found.judged:
        return ""
    return str(found.judged[max(found.judged)].get("privacy", ""))
