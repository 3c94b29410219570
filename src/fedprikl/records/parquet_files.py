"""Parquet files, read by pyarrow, some rows at a time: no value stops the others from being read.

Only the compared columns are read, and no statistics. What a value means is decided where data
frames are read.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedprikl.errors import RecordsError
from fedprikl.libraries import parquet, pyarrow
from fedprikl.records.csv_files import Chunk
from fedprikl.reference.frames import column_values, eager_frame

ROWS, BUFFER = 2**13, 2**20  # that are read at once: rows, and bytes of a column
ENDS = b"PAR1"
# Long texts stand in the descriptions of their columns too: no text may be too long for them.
LIMITS = {"thrift_string_size_limit": 2**31 - 1, "thrift_container_size_limit": 2**31 - 1}


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One Parquet file: its columns, and those of them whose times are instants."""

    path: Path
    names: tuple[str, ...]
    aware: frozenset[str] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> "ParquetFile":
        """The file with its columns; reads its description only."""
        with _opened(path) as file:
            columns = list(file.schema_arrow)
        aware = {each.name for each in columns if getattr(each.type, "tz", None) is not None}
        return cls(path, tuple(each.name for each in columns), frozenset(aware))

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        return column in self.aware

    def chunks(
        self,
        columns: Sequence[str],
        *,
        end: int | None = None,  # noqa: ARG002
        loose: str | None = None,  # noqa: ARG002
    ) -> Iterator[Chunk]:
        """All rows, some at a time; a file has one part only."""
        with _opened(self.path) as file:
            for batch in file.iter_batches(ROWS, columns=list(columns), use_threads=False):
                frame = eager_frame(pyarrow.Table.from_batches([batch]))
                yield Chunk({name: column_values(frame[name]) for name in columns})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file; what goes wrong becomes our error, as that of pyarrow may quote records."""
    try:
        with pyarrow.OSFile(str(path)) as raw:
            described = parquet.ParquetFile(pyarrow.BufferReader(_description(raw)), **LIMITS)
            yield parquet.ParquetFile(
                raw,
                metadata=described.metadata,
                buffer_size=BUFFER,
                pre_buffer=False,
                coerce_int96_timestamp_unit="us",
                **LIMITS,
            )
    except (pyarrow.ArrowException, OSError):
        raise RecordsError(
            f"{path} cannot be read as Parquet. It may be damaged, cut off or of another kind; "
            "write it again."
        ) from None


def _description(file: Any) -> bytes:
    """The end of the file, by which its columns have the types of Parquet.

    pyarrow would restore those it once wrote, and check all texts of categories on the way.
    """
    tail = file.read_at(8, max(file.size() - 8, 0))
    length = int.from_bytes(tail[:4], "little")
    footer = file.read_at(length, max(file.size() - 8 - length, 0))
    return bytes(ENDS + footer.replace(b"ARROW:schema", b"arrow_schema") + tail)
