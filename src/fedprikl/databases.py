"""SQLite files that are made whole or not at all, for their owner only."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["create_database", "sync_folder", "writing"]


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
        sync_folder(path.parent)
    finally:
        os.unlink(name)


@contextlib.contextmanager
def writing(
    path: Path,
    statements: Sequence[str],
    *,
    application: int,
    version: int,
    timeout: float,
    upgrade: Callable[[sqlite3.Connection], None] | None = None,
) -> Iterator[sqlite3.Connection]:
    """A transaction: all or nothing, alone, and on the disk when it ends. Makes a missing file.

    `upgrade` makes a file of the version before one of this version, inside the transaction: two
    processes do it once. Errors are SQLite's and the system's own.
    """
    if not path.exists():
        create_database(path, statements, application=application, version=version)
    address = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.closing(
        sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)
    ) as db:
        db.execute("PRAGMA synchronous = EXTRA")  # FULL, and the folder too: outlives a power cut
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("BEGIN IMMEDIATE")
        try:
            names = ("application_id", "user_version")
            found = tuple(db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            if upgrade is not None and found == (application, version - 1):
                upgrade(db)
                db.execute(f"PRAGMA user_version = {version}")
            elif found != (application, version):
                raise sqlite3.DatabaseError("it is damaged, or another program wrote it")
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
