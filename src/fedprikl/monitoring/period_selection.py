"""Which of a client's records belong to a period of a series: one rule for every way to run it."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from fedprikl.protocol import Series
from fedprikl.records import Days, PeriodRecords, TimeSlice, data_files

__all__ = ["named_days", "records_between", "records_of_period"]


def records_of_period(
    series: Series, number: int, path: Path, *, drawn: bool = False
) -> PeriodRecords:
    """What of a client's file or folder belongs to the release of a period.

    A client without a file of the period has no records in it. Where records are `drawn`, a client
    may have no files at all.
    """
    counted = series.counted_by(number)
    return records_between(series, counted.start, counted.end, path, drawn=drawn)


def records_between(
    series: Series, start: datetime, end: datetime, path: Path, *, drawn: bool = False
) -> PeriodRecords:
    """The same from one limit of periods up to another."""
    if series.time_column:
        times = TimeSlice(series.time_column, start, end, series.zone)
        return PeriodRecords(data_files(path, blank=drawn), times)
    return PeriodRecords(data_files(path, blank=drawn, days=_days(series, start, end)), None)


def named_days(series: Series, number: int) -> Days | None:
    """The days whose files the release of a period counts; None: a time column says it."""
    counted = series.counted_by(number)
    return None if series.time_column else _days(series, counted.start, counted.end)


def _days(series: Series, start: datetime, end: datetime) -> Days:
    zone = ZoneInfo(series.zone)
    return start.astimezone(zone).date(), end.astimezone(zone).date()
