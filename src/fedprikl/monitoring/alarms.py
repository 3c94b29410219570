"""Alarms of a series: raised once, not in every period that is above a threshold.

    open --acknowledged--> acknowledged
    open, acknowledged --4 quiet periods--> ended
    open, acknowledged --re-baselined--> rebaselined

An alarm lasts while something of it is above a threshold, and ends after 4 counted periods in which
nothing is. Meanwhile a second one is raised only for a column that is not part of it; afterwards
the same column may raise another.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fedprikl.monitoring.judged_periods import JudgedPeriod
from fedprikl.monitoring.status import AlarmFacts, AlarmState

__all__ = ["QUIET", "Acknowledgement", "Trace", "follow_alarms"]

QUIET = 4  # counted periods in which nothing of an alarm is above a threshold: then it ends

Acknowledgement = tuple[int, str, str]  # the alarm's number, when, and a note
# Period of the alarm and who speaks, loudest first -> since when, and columns, largest first.
Trace = Callable[[int, Sequence[str]], tuple[int, tuple[str, ...]]]


@dataclass(slots=True)
class _Lasting:
    """An alarm while it lasts."""

    number: int
    spoke: int  # the last period in which something of it was above a threshold
    names: set[str] = field(default_factory=set)  # channels that belong to it
    quiet: int = 0


def follow_alarms(
    judged: Sequence[JudgedPeriod],
    trace: Trace,
    *,
    rebaselined: Sequence[tuple[int, int]] = (),
    acknowledged: Sequence[Acknowledgement] = (),
) -> tuple[AlarmFacts, ...]:
    """The alarms of judged periods, in the order in which they were raised.

    Of several acknowledgements of an alarm the last one counts; one of an alarm that does not
    exist, or not any more (a later baseline may explain it), is ignored.
    """
    alarms: list[AlarmFacts] = []
    over: dict[int, int] = {}  # alarms that ended, with the last period in which they spoke
    lasting: list[_Lasting] = []
    baseline: tuple[int, int] | None = None
    for period in judged:
        if period.baseline != baseline:  # everything begins anew
            baseline, lasting = period.baseline, []
        speaking = period.speaking
        lasting = [_listen(each, period.period, set(speaking)) for each in lasting]
        over |= {each.number: each.spoke for each in lasting if each.quiet >= QUIET}
        lasting = [each for each in lasting if each.number not in over]
        part = set[str]().union(*(alarm.names for alarm in lasting))
        fresh = [name for name in speaking if name not in part]
        if lasting and "" in fresh:  # the whole says nothing new of columns that have drifted
            lasting[-1].names.add("")
            fresh.remove("")
        if fresh:
            alarms.append(_raise(period, fresh, len(alarms) + 1, trace))
            lasting.append(_Lasting(len(alarms), period.period, set(fresh)))
    said = {number: (at, note) for number, at, note in acknowledged}
    accepted = max((last for _, last in rebaselined), default=-1)
    return tuple(_as_it_stands(alarm, said, over, accepted) for alarm in alarms)


def _listen(alarm: _Lasting, period: int, speaking: set[str]) -> _Lasting:
    """The alarm after one more period."""
    if alarm.names & speaking:
        return replace(alarm, spoke=period, quiet=0)
    return replace(alarm, quiet=alarm.quiet + 1)


def _raise(period: JudgedPeriod, fresh: Sequence[str], number: int, trace: Trace) -> AlarmFacts:
    since, columns = trace(period.period, fresh)
    loudest = next(each for each in period.channels if each.name == fresh[0])
    return AlarmFacts(
        number=number,
        raised=period.period,
        since=since,
        columns=columns,
        test="period" if loudest.period_speaks else "cumulative",
        state="open",
    )


def _as_it_stands(
    alarm: AlarmFacts, said: dict[int, tuple[str, str]], over: dict[int, int], accepted: int
) -> AlarmFacts:
    at, note = said.get(alarm.number, ("", ""))
    state: AlarmState = "acknowledged" if alarm.number in said else "open"
    if alarm.number in over:
        state = "ended"
    elif alarm.raised <= accepted:
        state = "rebaselined"
    until = over.get(alarm.number)
    return replace(alarm, state=state, acknowledged_at=at, note=note, until=until)
