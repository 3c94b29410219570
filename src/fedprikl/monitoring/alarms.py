"""Alarms of a series: raised once, not in every period that is above a threshold.

    open --acknowledged--> acknowledged
    open, acknowledged --4 quiet periods--> ended
    open, acknowledged --re-baselined--> rebaselined

A window that is above its threshold stays so for a while after a drift ended, because it still
holds the drift. So what counts is where the shortest such window begins: a drift that lasts moves
it on, one that ended does not. A period is *quiet* for an alarm if in none of its columns a window
above its threshold begins later than any before. After 4 quiet counted periods the alarm ends.

Until then a second one is raised only for columns that are not part of it. Afterwards the same
column may raise another, by windows that begin after the drift of the first.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fedprikl.estimation import Answer, VerdictOutcome

QUIET = 4  # counted periods without new evidence, after which an alarm ends


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedView:
    """The whole, a column or a pair of columns, in one period.

    Statistics are in standard deviations from no drift.
    """

    name: str  # of the column; empty: the whole
    statistic: float  # of this period alone
    cumulative: float | None  # the largest of the longer windows that end here; None: no window yet
    window: int  # length of that window, in counted periods; 0: none
    period_exceeds: bool  # the statistic is above the period's threshold
    cumulative_exceeds: bool
    shortest: int  # counted periods of the shortest window above its threshold, 1: alone; 0: none
    tolerated: bool = False  # it differs, by less than the plan says matters
    sizes: tuple[Answer, ...] = ()  # how large the drift of this period alone is

    @property
    def exceeds(self) -> bool:
        """Whether it is above a threshold, in this period alone or over a window."""
        return self.period_exceeds or self.cumulative_exceeds

    @property
    def excess(self) -> float:
        """The larger statistic of those above their threshold."""
        tests = ((self.statistic, self.period_exceeds), (self.cumulative, self.cumulative_exceeds))
        above = [value for value, exceeds in tests if exceeds and value is not None]
        return max(above, default=float("-inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPeriod:
    """One counted period: all views beside two thresholds that they share."""

    period: int
    views: tuple[JudgedView, ...]
    threshold: float
    cumulative_threshold: float
    baseline: tuple[int, int] | None = None  # first and last period of it; None: the reference

    @property
    def exceeding(self) -> tuple[str, ...]:
        """Names of the views above a threshold, the largest first."""
        above = sorted((view for view in self.views if view.exceeds), key=lambda v: -v.excess)
        return tuple(view.name for view in above)

    @property
    def exceeds(self) -> bool:
        """Whether anything is above its threshold."""
        return any(view.exceeds for view in self.views)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One alarm: when it was raised, since when and where, and what people did about it."""

    number: int  # from 1
    raised: int  # period
    since: int  # the period in which the drift probably began
    columns: tuple[str, ...]  # above their thresholds, largest first; empty: only the whole is
    test: Literal["period", "cumulative"]
    state: Literal["open", "acknowledged", "rebaselined", "ended"]
    acknowledged_at: str = ""
    note: str = ""
    until: int | None = None  # of an ended one: the last period with new evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """Somebody has seen an alarm."""

    alarm: int  # its number
    note: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindableInSeries:
    """Which lasting drifts the periods counted so far would have shown (`findable_series.py`)."""

    can_tell: bool  # in any view, half of the largest possible size would have been found
    findable: float | None  # the least total variation, in any view, that half of the time is
    # found; None: none is
    untold: tuple[str, ...] = ()  # views in which half of the largest possible size is not
    ordinary: bool = False  # the reference has times: how much its periods differ is ordinary


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesVerdict:
    """All judged periods and the alarms of a series."""

    judged: tuple[JudgedPeriod, ...]
    alarms: tuple[Alarm, ...]
    findable: FindableInSeries | None  # None: nothing is counted yet

    @property
    def outcome(self) -> VerdictOutcome | None:
        """What was found; None: nothing is counted yet."""
        return series_outcome(self.alarms, self.findable) if self.judged else None


def series_outcome(alarms: Iterable[Alarm], findable: FindableInSeries | None) -> VerdictOutcome:
    """Drift while an alarm lasts, acknowledged or not; else whether it could have been found."""
    if any(alarm.state in ("open", "acknowledged") for alarm in alarms):
        return "drift"
    return "none found" if findable is None or findable.can_tell else "cannot tell"


# Period of the alarm, the views above a threshold (largest first), and the last period of an
# earlier drift of the first of them -> since when, and columns, largest first.
Trace = Callable[[int, Sequence[str], int], tuple[int, tuple[str, ...]]]


@dataclass(slots=True)
class _Lasting:
    """An alarm while it lasts."""

    number: int
    seen: int  # the last period in which there was new evidence of it
    names: set[str] = field(default_factory=set)  # views that belong to it
    quiet: int = 0


def follow_alarms(judged: Sequence[JudgedPeriod], trace: Trace) -> tuple[Alarm, ...]:
    """The alarms of judged periods, in the order in which they were raised."""
    alarms: list[Alarm] = []
    over: dict[int, int] = {}  # alarms that ended, with the last period in which they were seen
    lasting: list[_Lasting] = []
    ended: dict[str, int] = {}  # the last period of an earlier drift, by view
    begins: dict[str, int] = {}  # the latest place where a window above its threshold began
    baseline: tuple[int, int] | None = None
    for place, period in enumerate(judged):
        if period.baseline != baseline:  # everything begins anew
            baseline, lasting, begins = period.baseline, [], {}
        latest = {c.name: place + 1 - c.shortest for c in period.views if c.exceeds}
        new = {name for name, start in latest.items() if start > begins.get(name, -1)}
        begins |= {name: latest[name] for name in new}
        for each in lasting:
            if each.names & new:
                each.seen, each.quiet = period.period, 0
            else:
                each.quiet += 1
            if each.quiet >= QUIET:
                over[each.number] = each.seen
                ended |= dict.fromkeys(each.names, each.seen)
        lasting = [each for each in lasting if each.number not in over]
        part = set[str]().union(*(alarm.names for alarm in lasting))
        fresh = [name for name in period.exceeding if name in new - part]
        if lasting and "" in fresh:  # the whole says nothing new of columns that have drifted
            lasting[-1].names.add("")
            fresh.remove("")
        if fresh:
            after = ended.get(fresh[0], -1)
            alarms.append(_raise(period, fresh, len(alarms) + 1, trace, after))
            lasting.append(_Lasting(len(alarms), period.period, set(fresh)))
    return tuple(
        replace(each, state="ended", until=over[each.number]) if each.number in over else each
        for each in alarms
    )


def _raise(
    period: JudgedPeriod, fresh: Sequence[str], number: int, trace: Trace, after: int
) -> Alarm:
    since, columns = trace(period.period, fresh, after)
    largest = next(each for each in period.views if each.name == fresh[0])
    return Alarm(
        number=number,
        raised=period.period,
        since=since,
        columns=columns,
        test="period" if largest.period_exceeds else "cumulative",
        state="open",
    )


def after_people(
    alarms: Iterable[Alarm],
    acknowledged: Iterable[Acknowledgement],
    rebaselined: Iterable[tuple[int, int]],
) -> tuple[Alarm, ...]:
    """The alarms with what people did about them.

    Of several acknowledgements of an alarm the last one counts; one of an alarm that does not
    exist, or not any more (a later baseline may explain it), is ignored.
    """
    seen = {each.alarm: each for each in acknowledged}
    accepted = max((last for _, last in rebaselined), default=-1)
    found = []
    for alarm in alarms:
        if alarm.number in seen:
            said = seen[alarm.number]
            state = "acknowledged" if alarm.state == "open" else alarm.state
            alarm = replace(alarm, state=state, acknowledged_at=said.at, note=said.note)
        if alarm.raised <= accepted and alarm.state != "ended":
            alarm = replace(alarm, state="rebaselined")
        found.append(alarm)
    return tuple(found)
