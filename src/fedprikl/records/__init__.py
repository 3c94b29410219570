"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.csv_files import CsvFormat
from fedprikl.records.data_files import Days, data_files
from fedprikl.records.drawing import Draw
from fedprikl.records.fitting import fit_reference
from fedprikl.records.period_records import (
    PeriodRecords,
    check_times,
    count_parts,
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
    "Days",
    "Draw",
    "FileRecords",
    "FrameRecords",
    "PeriodRecords",
    "RecordCounts",
    "Records",
    "TimeSlice",
    "check_times",
    "count_all",
    "count_parts",
    "data_files",
    "draw_counts",
    "fit_reference",
    "open_records",
]
