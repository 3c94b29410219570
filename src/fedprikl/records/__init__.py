"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.clients import (
    FileRecords,
    FrameRecords,
    TimeSlice,
    check_all,
    count_all,
    fit_reference,
    open_records,
    open_table,
)
from fedprikl.records.counting import Draw, RecordCounts, draw_counts
from fedprikl.records.database import DatabaseTable, Place, place_of
from fedprikl.records.files import CsvFormat
from fedprikl.records.sources import Days, check_once, data_files, register_source
from fedprikl.records.table import NoClient, count_by_client

__all__ = [
    "CsvFormat",
    "DatabaseTable",
    "Days",
    "Draw",
    "FileRecords",
    "FrameRecords",
    "NoClient",
    "Place",
    "RecordCounts",
    "TimeSlice",
    "check_all",
    "check_once",
    "count_all",
    "count_by_client",
    "data_files",
    "draw_counts",
    "fit_reference",
    "open_records",
    "open_table",
    "place_of",
    "register_source",
]
