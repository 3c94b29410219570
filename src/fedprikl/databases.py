"""SQLite files that are made whole or not at all, for their owner only."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["create_database"]


def create_database(
    path: Path, statements: Sequence[str], *, application: int, version: int
) -> None:
    """Makes the file under another name first, so that it is never seen half made.

    If another process was faster, its file stays.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # owner only
    os.close(handle)
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {application}")
            connection.execute(f"PRAGMA user_version = {version}")
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
        _sync_folder(path.parent)
    finally:
        os.unlink(name)


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
