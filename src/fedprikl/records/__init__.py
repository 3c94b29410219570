"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.arrivals import Seen
from fedprikl.records.csv_files import CsvFormat
from fedprikl.records.drawing import Draw
from fedprikl.records.fitting import fit_reference
from fedprikl.records.period_records import (
    PeriodRecords,
    check_times,
    count_parts,
    select_period,
)
from fedprikl.records.reference_draws import draw_counts
from fedprikl.records.sources import (
    CountedClients,
    FileRecords,
    FrameRecords,
    RecordCounts,
    Records,
    count_all,
    open_records,
)
from fedprikl.records.time_slices import TimeSlice

__all__ = [
    "CountedClients",
    "CsvFormat",
    "Draw",
    "FileRecords",
    "FrameRecords",
    "PeriodRecords",
    "RecordCounts",
    "Records",
    "Seen",
    "TimeSlice",
    "check_times",
    "count_all",
    "count_parts",
    "draw_counts",
    "fit_reference",
    "open_records",
    "select_period",
]
