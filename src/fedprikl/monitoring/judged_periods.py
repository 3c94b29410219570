"""What is said about every period of a series: statistics, thresholds, who speaks. Public."""

from dataclasses import dataclass

from fedprikl.monitoring.status import AlarmFacts

__all__ = ["JudgedChannel", "JudgedPeriod", "SeriesVerdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedChannel:
    """One channel in one period. Statistics are in standard deviations from no drift."""

    name: str  # of the column; empty: the whole
    statistic: float  # of this period alone
    cumulative: float | None  # the largest of the longer windows that end here; None: no window yet
    window: int  # length of that window, in counted periods; 0: none
    period_speaks: bool  # the statistic is above the period's threshold
    cumulative_speaks: bool
    shortest: int  # counted periods of the shortest window above its threshold, 1: alone; 0: none

    @property
    def speaks(self) -> bool:
        """Whether this channel is above a threshold, in this period alone or over a window."""
        return self.period_speaks or self.cumulative_speaks

    @property
    def loudness(self) -> float:
        """The larger statistic of those above their threshold."""
        alone = self.statistic if self.period_speaks else float("-inf")
        over = self.cumulative if self.cumulative_speaks else None
        return max(alone, float("-inf") if over is None else over)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPeriod:
    """One counted period: all channels beside two thresholds that they share."""

    period: int
    channels: tuple[JudgedChannel, ...]
    threshold: float
    cumulative_threshold: float
    baseline: tuple[int, int] | None = None  # first and last period of it; None: the reference

    @property
    def speaking(self) -> tuple[str, ...]:
        """Names of the channels above a threshold, the loudest first."""
        heard = [channel for channel in self.channels if channel.speaks]
        return tuple(each.name for each in sorted(heard, key=lambda each: -each.loudness))

    @property
    def speaks(self) -> bool:
        """Whether anything is above its threshold."""
        return any(channel.speaks for channel in self.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesVerdict:
    """All judged periods and the alarms of a series."""

    judged: tuple[JudgedPeriod, ...]
    alarms: tuple[AlarmFacts, ...]
    false_alarm: float  # per year, of everything together
