"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.clients import (
    FileRecords,
    FrameRecords,
    TimeSlice,
    check_all,
    count_all,
    fit_reference,
    open_records,
)
from fedprikl.records.counting import Draw, RecordCounts, draw_counts
from fedprikl.records.files import CsvFormat
from fedprikl.records.sources import Days, check_once, data_files, register_source

__all__ = [
    "CsvFormat",
    "Days",
    "Draw",
    "FileRecords",
    "FrameRecords",
    "RecordCounts",
    "TimeSlice",
    "check_all",
    "check_once",
    "count_all",
    "data_files",
    "draw_counts",
    "fit_reference",
    "open_records",
    "register_source",
]
