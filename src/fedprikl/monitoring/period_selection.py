"""Which of a client's records belong to a period of a series: one rule for every way to run it."""

from collections.abc import Sequence
from pathlib import Path

from fedprikl.protocol import Series
from fedprikl.records import PeriodRecords, Seen, TimeSlice, select_period

__all__ = ["records_of_period", "takes_arrivals"]


def takes_arrivals(series: Series) -> bool:
    """Whether the period of a record depends on when its client first saw it."""
    return not series.has_times or series.late == "next"


def records_of_period(
    series: Series,
    number: int,
    path: Path,
    known: Sequence[Seen] = (),
    *,
    drawn: bool = False,
) -> PeriodRecords:
    """What of a client's file or folder belongs to the release of a period.

    `known` are the parts that were seen in earlier periods. What is new in the result is to be kept
    with the fact that the period was counted, both or neither. Where records are `drawn`, a client
    may have no files at all.
    """
    counted = series.counted_by(number)
    if not takes_arrivals(series):
        own = TimeSlice(series.time_column, counted.start, counted.end, series.zone)
        return select_period(path, period=number, own=own, new=None, by_arrival=False, drawn=drawn)
    if not series.has_times:
        return select_period(
            path, period=number, own=None, new=None, by_arrival=True, known=known, drawn=drawn
        )
    first = series.period(0).start
    return select_period(
        path,
        period=number,
        own=TimeSlice(series.time_column, counted.start, counted.end, series.zone),
        new=TimeSlice(series.time_column, first, counted.end, series.zone),
        by_arrival=True,
        known=known,
        drawn=drawn,
    )
