"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.counting import Draw, draw_counts
from fedprikl.records.csv_files import CsvFormat
from fedprikl.records.data_files import Days, check_once, data_files
from fedprikl.records.fitting import fit_reference
from fedprikl.records.period_records import PeriodRecords, TimeSlice, check_times, count_parts
from fedprikl.records.sources import (
    CountedClients,
    FileRecords,
    FrameRecords,
    RecordCounts,
    Records,
    count_all,
    open_records,
)

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
    "check_once",
    "check_times",
    "count_all",
    "count_parts",
    "data_files",
    "draw_counts",
    "fit_reference",
    "open_records",
]
