"""The state of a series in words: what the page, the hooks and the terminal say first."""

from datetime import datetime

from fedprikl.monitoring.status import AlarmFacts, PeriodPoint, SeriesStatus

__all__ = ["alarm_words", "counted", "day", "headline", "period_name", "short_day"]


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


def alarm_words(alarm: AlarmFacts, status: SeriesStatus) -> str:
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


def day(at: str) -> str:
    """The day of a time in ISO 8601, in its own zone; anything else as it is.

    >>> day("2027-06-07T00:00:00+02:00")
    '7 June 2027'
    """
    when = _read(at)
    return at if when is None else f"{when.day} {when:%B %Y}"


def short_day(at: str) -> str:
    """The day in fewer letters.

    >>> short_day("2027-06-07T00:00:00+02:00")
    '7 Jun 2027'
    """
    when = _read(at)
    return at if when is None else f"{when.day} {when:%b %Y}"


def _read(at: str) -> datetime | None:
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        return None


def _quiet(status: SeriesStatus) -> str:
    judged = [point for point in status.released if point.speaks is not None]
    if not judged:
        return f"{counted(len(status.released), status.every)} released, none judged yet."
    over = [alarm.until for alarm in status.alarms if alarm.until is not None]
    quiet = _since_it_spoke(judged, max(over, default=None))
    if not quiet:
        last = period_name(judged[-1].number, status.every).capitalize()
        return f"{last} is above a threshold. No alarm is open."
    if quiet == len(judged):
        return f"No drift in {counted(quiet, status.every)}."
    return f"No drift in the last {counted(quiet, status.every)}."


def _since_it_spoke(judged: list[PeriodPoint], until: int | None) -> int:
    """How many of the last periods are below every threshold, or come after the last drift.

    Windows that hold a drift which has ended stay above theirs for a while.
    """
    for quiet, point in enumerate(reversed(judged)):
        if point.speaks and (until is None or point.number <= until):
            return quiet
    return len(judged)
