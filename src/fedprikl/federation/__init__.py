"""Federation floor: a client's records, counted where they are."""

from fedprikl.federation.fitting import fit_reference
from fedprikl.federation.records import (
    FileRecords,
    FrameRecords,
    RecordCounts,
    Records,
    open_records,
)

__all__ = [
    "FileRecords",
    "FrameRecords",
    "RecordCounts",
    "Records",
    "fit_reference",
    "open_records",
]
