"""Alarms of a series: raised once, not in every period that speaks; acknowledged or re-baselined.

    open --acknowledged--> acknowledged --4 quiet periods--> ended
    open, acknowledged --re-baselined--> rebaselined

An alarm lasts while something of it speaks, and until nothing of it has for 4 counted periods. A
second one is raised meanwhile only for a column that is not part of a lasting one. An alarm that
nobody acknowledged stays open, also after it fell silent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fedprikl.monitoring.judged_periods import JudgedPeriod
from fedprikl.monitoring.status import AlarmFacts, AlarmState

__all__ = ["QUIET", "Acknowledgement", "Trace", "follow_alarms"]

QUIET = 4  # counted periods in which nothing of an alarm speaks, after which it is over

Acknowledgement = tuple[int, str, str]  # the alarm's number, when, and a note
# Period of the alarm and who speaks, loudest first -> since when, and columns, largest first.
Trace = Callable[[int, Sequence[str]], tuple[int, tuple[str, ...]]]


@dataclass(slots=True)
class _Lasting:
    """An alarm while it lasts."""

    number: int
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
    over: set[int] = set()  # numbers of alarms that fell silent
    lasting: list[_Lasting] = []
    baseline: tuple[int, int] | None = None
    for period in judged:
        if period.baseline != baseline:  # everything begins anew
            baseline, lasting = period.baseline, []
        speaking = period.speaking
        lasting, silent = _listen(lasting, set(speaking))
        over |= silent
        part = set[str]().union(*(alarm.names for alarm in lasting))
        fresh = [name for name in speaking if name not in part]
        if lasting and "" in fresh:  # the whole says nothing new of columns that have drifted
            lasting[-1].names.add("")
            fresh.remove("")
        if fresh:
            alarms.append(_raise(period, fresh, len(alarms) + 1, trace))
            lasting.append(_Lasting(len(alarms), set(fresh)))
    said = {number: (at, note) for number, at, note in acknowledged}
    accepted = max((last for _, last in rebaselined), default=-1)
    return tuple(_as_it_stands(alarm, said, over, accepted) for alarm in alarms)


def _listen(
    lasting: Sequence[_Lasting], speaking: set[str]
) -> tuple[list[_Lasting], set[int]]:
    """Alarms that still last after a period, and the numbers of those that are over."""
    kept = [
        _Lasting(each.number, set(each.names), 0 if each.names & speaking else each.quiet + 1)
        for each in lasting
    ]
    silent = {each.number for each in kept if each.quiet >= QUIET}
    return [each for each in kept if each.number not in silent], silent


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
    alarm: AlarmFacts, said: dict[int, tuple[str, str]], over: set[int], accepted: int
) -> AlarmFacts:
    at, note = said.get(alarm.number, ("", ""))
    known = alarm.number in said
    state: AlarmState = "acknowledged" if known else "open"
    if known and alarm.number in over:
        state = "ended"
    elif alarm.raised <= accepted:
        state = "rebaselined"
    return replace(alarm, state=state, acknowledged_at=at, note=note)
