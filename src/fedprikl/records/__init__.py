"""Records: files and frames become counts. One rule per value; one record, one cell."""

from fedprikl.records.csv_files import CsvFormat
from fedprikl.records.fitting import fit_reference
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
    "FileRecords",
    "FrameRecords",
    "RecordCounts",
    "Records",
    "count_all",
    "fit_reference",
    "open_records",
]
