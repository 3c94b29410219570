"""The state of a series, as pages, metrics and hooks show it. All of it is public."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fedprikl.estimation import Answer, VerdictOutcome
from fedprikl.monitoring.alarms import Alarm, FindableInSeries, JudgedView, series_outcome
from fedprikl.privacy import Account

NO_REASON = "no reason is known"
PeriodState = Literal["released", "missed", "due", "ahead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodPoint:
    """One period of the series."""

    number: int  # from 0
    start: str  # ISO 8601 with an offset; the first instant that belongs to it
    end: str  # the first instant that does not
    state: PeriodState  # "due": over, not yet counted; "ahead": not over yet
    reason: str = ""  # of a missed period
    released_at: str = ""
    release: str = ""  # fingerprint
    records: int = 0
    clients: int = 0  # whose records are counted
    threshold: float | None = None  # of every statistic of this period, whole and columns
    cumulative_threshold: float | None = None
    exceeds: bool | None = None  # whether anything is above its threshold; None: not judged
    whole: JudgedView | None = None  # None: not judged, or only columns are asked
    columns: tuple[JudgedView, ...] = ()

    @property
    def views(self) -> tuple[JudgedView, ...]:
        """The whole, if it is asked, and all columns."""
        return self.columns if self.whole is None else (self.whole, *self.columns)

    @property
    def sizes(self) -> tuple[Answer, ...]:
        """How large the drift of the whole is; empty if only columns are asked."""
        return () if self.whole is None else self.whole.sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFacts:
    """The sum of the noisy counts of the last periods: one longer period, at no further cost."""

    name: str  # of the column; empty: the whole
    length: int  # in periods
    first: int  # period
    last: int
    records: int
    sizes: tuple[Answer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFacts:
    """What one record, or one client, may lose in all, and what the most exposed has lost."""

    epsilon: float
    delta: float
    spent: float
    left: float
    unit: str = "record"  # whose budget it is: one record's, or one client's

    @classmethod
    def of(cls, account: Account) -> "BudgetFacts":
        """From a ledger. What was spent is computed here, once."""
        epsilon, delta, spent = account.epsilon, account.delta, account.spent
        left = max(epsilon - spent, 0.0)
        return cls(epsilon=epsilon, delta=delta, spent=spent, left=left, unit=account.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteHealth:
    """How often a site was asked and took part. Who takes part is public."""

    name: str
    asked: int
    answered: int
    last: int | None  # the last period in which it answered


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesStatus:
    """A series as it stands: everything that the page, the metrics and the hooks show."""

    population: str
    every: str  # "day", "week", "month" or "quarter"
    trust: str
    plan: str  # fingerprint
    reference: str  # fingerprint
    signer: str  # the aggregator's public key
    false_alarm: float  # per year, of the whole series
    at: str  # when this was asked
    points: tuple[PeriodPoint, ...]  # all periods up to the last that is over, and the next one
    windows: tuple[WindowFacts, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    findable: FindableInSeries | None = None  # None: not known
    tolerate: float = 0.0  # total variation up to which a drift does not matter, in every view
    tolerate_columns: tuple[tuple[str, float], ...] = ()  # the same of single columns, by name
    budget: BudgetFacts | None = None  # None: no ledger is kept
    sites: tuple[SiteHealth, ...] = ()
    privacy: str = ""  # the statement, in words
    next_due: str = ""  # when the next period will be over; empty: all of them are
    last_success: str = ""  # when the last release was made
    faults: tuple[str, ...] = ()  # what is wrong with the history, in words

    @property
    def open_alarms(self) -> tuple[Alarm, ...]:
        """Alarms that last and that nobody has acknowledged."""
        return tuple(alarm for alarm in self.alarms if alarm.state == "open")

    @property
    def released(self) -> tuple[PeriodPoint, ...]:
        """Periods with a release, in order."""
        return tuple(point for point in self.points if point.state == "released")

    @property
    def judged(self) -> tuple[PeriodPoint, ...]:
        """Periods whose release was looked at; a process may end between the two."""
        return tuple(point for point in self.released if point.exceeds is not None)

    @property
    def outcome(self) -> VerdictOutcome | None:
        """What was found; None: nothing is judged yet, or the history cannot be relied on."""
        if self.faults or not self.judged:
            return None
        return series_outcome(self.alarms, self.findable)

    def tolerance(self, name: str) -> float:
        """The total variation of a view that does not matter."""
        return dict(self.tolerate_columns).get(name, self.tolerate)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, in the order of the last release."""
        return tuple(column.name for column in self.judged[-1].columns) if self.judged else ()


def headline(status: SeriesStatus) -> str:
    """The state of the series in one sentence.

    >>> from fedprikl.monitoring.status import SeriesStatus
    >>> status = SeriesStatus(
    ...     population="phones",
    ...     every="week",
    ...     trust="none",
    ...     plan="d5a5...",
    ...     reference="3961...",
    ...     signer="",
    ...     false_alarm=0.01,
    ...     at="2027-01-05T00:00:00+00:00",
    ...     points=(),
    ... )
    >>> headline(status)
    'No release yet.'
    """
    if status.faults:
        return "This history has faults. Do not rely on what it says."
    if not status.released:
        return "No release yet."
    if status.open_alarms:
        many = len(status.open_alarms)
        more = f" {many} alarms are open." if many > 1 else ""
        return alarm_words(status.open_alarms[-1], status) + more
    known = [alarm for alarm in status.alarms if alarm.state == "acknowledged"]
    if known:
        return alarm_words(known[-1], status).removesuffix(".") + "; acknowledged."
    return _quiet(status)


def alarm_words(alarm: Alarm, status: SeriesStatus) -> str:
    """Since when and where: "Drift since week 23 (14 June 2027), mostly departure delay."."""
    where = f", mostly {alarm.columns[0]}" if alarm.columns else ""
    since = _dated(alarm.since, status)
    if alarm.until is None:
        return f"Drift since {since}{where}."
    if alarm.until <= alarm.since:
        return f"Drift in {since}{where}."
    return f"Drift from {since} to {_dated(alarm.until, status)}{where}."


def _dated(number: int, status: SeriesStatus) -> str:
    """A period and its first day."""
    start = next((point.start for point in status.points if point.number == number), "")
    return period_name(number, status.every) + (f" ({day(start)})" if start else "")


def period_name(number: int, every: str) -> str:
    """What people call a period.

    >>> period_name(23, "week")
    'week 23'
    """
    return f"{every} {number}"


def counted(many: int, every: str) -> str:
    """So many periods.

    >>> counted(1, "week"), counted(1200, "day")
    ('1 week', '1,200 days')
    """
    return f"{many:,} {every}{'' if many == 1 else 's'}"


def missed_words(point: PeriodPoint, every: str) -> str:
    """That a period was missed, and why."""
    name = period_name(point.number, every).capitalize()
    return f"{name} was missed: {point.reason or NO_REASON}."


def day(at: str, form: str = "%B %Y") -> str:
    """The day of a time in ISO 8601, in its own zone; anything else as it is.

    `form` is what follows the number of the day.

    >>> day("2027-06-07T00:00:00+02:00"), day("2027-06-07T00:00:00+02:00", "%b %Y")
    ('7 June 2027', '7 Jun 2027')
    """
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        return at
    return f"{when.day} {when:{form}}"


def _quiet(status: SeriesStatus) -> str:
    judged = status.judged
    if not judged:
        return f"{counted(len(status.released), status.every)} released, none judged yet."
    over = [alarm.until for alarm in status.alarms if alarm.until is not None]
    quiet = _quiet_periods(judged, max(over, default=None))
    if not quiet:
        last = period_name(judged[-1].number, status.every).capitalize()
        return f"{last} is above a threshold. No alarm is open."
    if status.outcome == "cannot tell":
        return cannot_tell(status.findable, counted(len(judged), status.every))
    little = any(view.tolerated for point in judged[-quiet:] for view in point.views)
    what = "No drift that matters" if little else "No drift"
    if quiet == len(judged):
        return f"{what} in {counted(quiet, status.every)}."
    return f"{what} in the last {counted(quiet, status.every)}."


def cannot_tell(found: FindableInSeries | None, periods: str) -> str:
    """That nothing follows, and what would have been found.

    >>> cannot_tell(FindableInSeries(can_tell=False, findable=None), "1 day")
    'Cannot tell: with so few records and this epsilon no drift could be found in 1 day.'
    """
    least = "no drift"
    if found is not None and found.findable is not None:
        least = f"only drifts above {found.findable:.2g} (total variation)"
    return f"Cannot tell: with so few records and this epsilon {least} could be found in {periods}."


def _quiet_periods(judged: tuple[PeriodPoint, ...], until: int | None) -> int:
    """How many of the last periods are below every threshold, or come after the last drift.

    Windows that hold a drift which has ended stay above theirs for a while.
    """
    for quiet, point in enumerate(reversed(judged)):
        if point.exceeds and (until is None or point.number <= until):
            return quiet
    return len(judged)
