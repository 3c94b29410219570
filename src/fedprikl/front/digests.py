"""Digests of clients' records, by which a ledger knows them again under another name."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from fedprikl.errors import RecordsError
from fedprikl.front.client_sources import Source
from fedprikl.front.progress_calls import Progress
from fedprikl.records import Days, FrameRecords, data_files
from fedprikl.reference.columns import Values
from fedprikl.reference.frames import column_values

__all__ = ["content_digests", "places"]


def content_digests(
    clients: Mapping[str, Source], population: str, progress: Progress
) -> dict[str, str]:
    """The place of each client's records, and SHA-256 of what they hold; empty if they hold none.

    Files are known by their absolute path, that of their folder if it is the client's, and their
    bytes. Frames and arrays have no place of
    their own (their name belongs to the population) and are known by their values.
    """
    found: dict[str, str] = {}
    for done, (name, source) in enumerate(clients.items(), start=1):
        if isinstance(source, Path):
            found |= dict.fromkeys(places(source), "")
            found |= {
                str(file.resolve()): _of_file(file) for file in data_files(source, blank=True)
            }
        else:
            found[f"in memory: {population}: {name}"] = _of_records(source)
        progress("reading records", done, len(clients))
    return found


def places(path: Path, days: Days | None = None) -> set[str]:
    """Of a client's file or folder: its own place, and those of the files in it, of some days."""
    return {str(each.resolve()) for each in (path, *data_files(path, blank=True, days=days))}


def _of_file(path: Path) -> str:
    """Of the whole file; empty for a CSV file that holds no records, as many of them are alike."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".csv" and not (file.readline() and file.read(1)):
                return ""
            file.seek(0)
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RecordsError(f"Cannot read {path}: {error.strerror}.") from None


def _of_records(source: FrameRecords) -> str:
    """Of the values; nothing in them may raise, and none of them is shown."""
    records = source.records
    if not len(records):
        return ""
    sha = hashlib.sha256()
    frame = nw.from_native(records, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        for name in sorted(frame.columns):
            _add(sha, [name])
            _add(sha, column_values(frame[name]))
    else:
        _add(sha, records)
    return sha.hexdigest()


def _add(sha: Any, values: Values) -> None:
    if _is_plain(values):
        sha.update(_text(values))
        return
    for value in values:
        text = _text(value)
        sha.update(len(text).to_bytes(8) + text)


def _is_plain(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iufbM"


def _text(value: Any) -> bytes:
    try:
        if _is_plain(value):
            return bytes(value.dtype.str.encode() + np.ascontiguousarray(value).tobytes())
        return repr(value).encode(errors="surrogatepass")
    except Exception:  # an object of whatever kind must not stop the other records
        return type(value).__name__.encode()
