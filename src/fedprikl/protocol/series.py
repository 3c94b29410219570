"""A series: which period each of many releases is about, for all parties alike. Public."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal
from zoneinfo import ZoneInfo

from fedprikl.checks import check_instant, check_positive_int
from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import TimeInterval, Unit

Every = Literal["day", "week", "month", "quarter"]
PER_YEAR: dict[Every, int] = {"day": 365, "week": 52, "month": 12, "quarter": 4}
MONTHS = {"month": 1, "quarter": 3}
DAYS = {"day": 1, "week": 7}
MOST_PERIODS = 10_000


@dataclass(frozen=True, slots=True)
class Period:
    """One period of a series: from its start up to, and without, its end."""

    number: int  # from 0
    start: datetime  # with an offset
    end: datetime
    clock: str = ""  # what tells the moment of a record

    @property
    def times(self) -> TimeInterval:
        """The same as a ledger writes it."""
        return TimeInterval(self.start.isoformat(), self.end.isoformat(), self.clock)


@dataclass(frozen=True, slots=True)
class Once:
    """A plan for single releases, about all records that a client holds."""

    kind: Literal["once"] = "once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The periods of a plan for many releases, and which records each of them counts.

    With a `time_column`, a record belongs to the period that its time falls into. Without one the
    name of its file or folder says the period, like 2027-W01, 2027-01, 2027-Q1 or 2027-01-04: the
    one that holds all days of that name. Either way a record belongs to one period, which follows
    from its own time or its place, and not from any other value. Records that come after their
    period was counted are left out.

    A release counts the records of the last `window` periods, so a record is in as many releases.

    >>> series = Series(every="month", first="2027-01-01", periods=12)
    >>> series.period(1).end.isoformat()
    '2027-03-01T00:00:00+00:00'
    >>> series.per_year, series.last_over("2027-04-20T00:00:00+00:00")
    (12, 2)
    """

    kind: Literal["series"] = "series"
    every: Every
    first: str  # the first day of the first period, like 2027-01-04
    periods: int
    zone: str = "UTC"  # where days begin, and what times without an offset mean
    time_column: str = ""  # empty: names of files and folders say the period
    window: int = 1  # periods that each release counts

    def __post_init__(self) -> None:
        if self.every not in PER_YEAR:
            raise InvalidInputError(
                f"'every' of a series is one of {', '.join(PER_YEAR)}, got {self.every!r:.40}."
            )
        for name in ("first", "zone", "time_column"):
            if not getattr(self, name).isprintable():
                raise InvalidInputError(f"{name!r} of a series is a printable text.")
        for name in ("periods", "window"):
            check_positive_int(getattr(self, name), name)
        if self.periods > MOST_PERIODS:
            raise InvalidInputError(f"A series has at most {MOST_PERIODS:,} periods.")
        if self.window > self.periods:
            raise InvalidInputError("The window of a series is not longer than the series.")
        self._check_calendar()

    def _check_calendar(self) -> None:
        """Every period has a beginning, and an end after it."""
        first, _ = self._first_day, time_zone(self.zone)
        if self.every in MONTHS and first.day > 28:
            raise InvalidInputError("A month of a series begins on one of the days 1 to 28.")
        self.period(self.periods - 1)  # the calendar goes that far
        days = self.periods + 1 if self.every == "day" else 0
        begins = [self._begin(number) for number in range(days)]
        if any(start >= end for start, end in pairwise(begins)):  # it moved over the date line
            raise InvalidInputError(
                f"A day of the series was skipped in {self.zone}. Use weeks, or another zone."
            )

    @property
    def _first_day(self) -> date:
        try:
            found = date.fromisoformat(self.first)
        except ValueError:
            found = None
        if found is None or found.isoformat() != self.first:  # one way to write a day
            raise InvalidInputError(
                f"A series begins on a day like 2027-01-04, got {self.first!r:.40}."
            )
        return found

    def exposures(self, unit: Unit) -> int:
        """How many releases count one unit: a client is in all of them."""
        return self.periods if unit == "client" else self.window

    @property
    def per_year(self) -> int:
        """How many periods a year has."""
        return PER_YEAR[self.every]

    @property
    def clock(self) -> str:
        """What tells the moment of a record: two series with the same clock agree on every record.

        Names of files and folders have no column.
        """
        return canonical([self.time_column, self.zone]).decode()

    @property
    def end(self) -> datetime:
        """When the last period is over."""
        return self.period(self.periods - 1).end

    def period(self, number: int) -> Period:
        """The period of this number, from 0."""
        if type(number) is not int or not 0 <= number < self.periods:
            raise InvalidInputError(
                f"The series has the periods 0 to {self.periods - 1}, got {number!r:.20}."
            )
        return Period(number, self._begin(number), self._begin(number + 1), self.clock)

    def counted_by(self, number: int) -> Period:
        """What the release of this number counts: the period, with those before it in a window."""
        first = max(number - self.window + 1, 0)
        return Period(number, self.period(first).start, self.period(number).end, self.clock)

    def last_over(self, at: str) -> int:
        """The number of the last period that is over at this time; -1 if none is."""
        ends = range(self.periods)
        return bisect_right(ends, check_instant(at), key=lambda n: self.period(n).end) - 1

    def _begin(self, number: int) -> datetime:
        try:
            return _midnight(_later(self._first_day, self.every, number), self.zone)
        except (OverflowError, ValueError):
            raise InvalidInputError("The series ends beyond the calendar.") from None


def series_until(
    every: Every,
    last: date,
    *,
    now: datetime,
    first: date | None = None,
    zone: str = "UTC",
    time_column: str = "",
    window: int = 1,
) -> Series:
    """The series of all periods that are over by the end of the day `last`.

    Without a `first` day it begins with the next whole period: tomorrow, on Monday, on the first of
    a month, or of a quarter.

    >>> now = datetime.fromisoformat("2026-11-16T09:00:00+00:00")
    >>> series = series_until("week", date(2027, 12, 31), now=now)
    >>> series.first, series.periods
    ('2026-11-23', 57)
    """
    if first is None:
        first = _next_day(every, now.astimezone(time_zone(zone)).date())
    one = Series(every=every, first=first.isoformat(), periods=1, zone=zone)
    over = _later(last, "day", 1)
    if last < first or _later(first, every, 1) > over:
        raise InvalidInputError(
            f"The series ends on {last}, before its first {one.every} from {first} is over. Give a "
            "later day."
        )
    ends = partial(_later, first, every)
    after = bisect_right(range(MOST_PERIODS + 1), over, lo=1, key=ends)
    return Series(
        every=every,
        first=first.isoformat(),
        periods=after - 1,
        zone=zone,
        time_column=time_column,
        window=window,
    )


def _next_day(every: Every, today: date) -> date:
    if every == "day":
        return today + timedelta(days=1)
    if every == "week":
        return today + timedelta(days=7 - today.weekday())
    months = MONTHS[every]
    return _later(today.replace(day=1, month=(today.month - 1) // months * months + 1), every, 1)


def _later(first: date, every: Every, number: int) -> date:
    try:
        if every in DAYS:
            return first + timedelta(days=DAYS[every] * number)
        months = first.year * 12 + first.month - 1 + MONTHS[every] * number
        return first.replace(year=months // 12, month=months % 12 + 1)
    except (OverflowError, ValueError):
        raise InvalidInputError("The series ends beyond the calendar.") from None


@lru_cache(maxsize=4096)
def _midnight(day: date, zone: str) -> datetime:
    """The first instant of a day, in UTC. Where clocks skip midnight, it is when they skip it."""
    local = datetime.combine(day, time(), tzinfo=time_zone(zone))
    return local.astimezone(time_zone("UTC"))


@lru_cache(maxsize=64)
def time_zone(name: str) -> ZoneInfo:
    """A time zone by its name, like Europe/Amsterdam."""
    try:
        if name == "localtime":  # another one on every machine
            raise ValueError
        return ZoneInfo(name)
    except (ValueError, OSError, TypeError, KeyError):
        raise InvalidInputError(
            f"There is no time zone {name!r:.60} on this machine. Name one like UTC or "
            "Europe/Amsterdam."
        ) from None
