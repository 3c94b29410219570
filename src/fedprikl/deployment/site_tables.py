"""The tables of a site's memory, and how a file of an earlier version becomes one of this."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedprikl.databases import create_database

__all__ = ["open_tables"]

APPLICATION_ID, VERSION = 0x46504B53, 2  # "FPKS", in the header of the file
# A count without a series is of all records, so it has no limits: version 1 had none of these.
_LIMITS = (
    "organiser TEXT NOT NULL DEFAULT ''",
    "series TEXT NOT NULL DEFAULT ''",
    "arrival INTEGER NOT NULL DEFAULT 0",
    "clock TEXT NOT NULL DEFAULT ''",
    "first REAL NOT NULL DEFAULT 0",
    "start REAL NOT NULL DEFAULT 0",
    "end REAL NOT NULL DEFAULT 0",
)
_SEEN = (
    "CREATE TABLE seen (records TEXT, organiser TEXT, population TEXT, series TEXT, file TEXT, "
    "end INTEGER NOT NULL, period INTEGER NOT NULL, digest TEXT NOT NULL, place TEXT NOT NULL, "
    "round TEXT)",
    "CREATE INDEX seen_of_records ON seen (records, organiser, population)",
    "CREATE INDEX counts_of_records ON counts (records)",
)
_SCHEMA = (
    "CREATE TABLE rounds (records TEXT, round TEXT, plan TEXT, ends REAL, step INTEGER NOT NULL, "
    "PRIMARY KEY (records, round)) WITHOUT ROWID",
    "CREATE TABLE counts (records TEXT, round TEXT, population TEXT, at TEXT, "
    f"{', '.join(_LIMITS)})",
    "CREATE TABLE plans (organiser TEXT, population TEXT, serial INTEGER NOT NULL, "
    "PRIMARY KEY (organiser, population)) WITHOUT ROWID",
    "CREATE TABLE forgotten (until REAL NOT NULL)",  # rounds of plans that ended up to then
    "INSERT INTO forgotten VALUES (0)",
    *_SEEN,
)


@contextlib.contextmanager
def open_tables(path: Path, *, timeout: float) -> Iterator[sqlite3.Connection]:
    """A transaction: all or nothing, alone, and on the disk when it ends. Makes a missing file."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_database(path, _SCHEMA, application=APPLICATION_ID, version=VERSION)
    address = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.closing(
        sqlite3.connect(address, uri=True, timeout=timeout, isolation_level=None)
    ) as db:
        db.execute("PRAGMA synchronous = EXTRA")  # FULL, and the folder too: outlives a power cut
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("BEGIN IMMEDIATE")
        try:
            _bring_up_to_date(db)
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    """Inside the transaction: two processes upgrade a file once."""
    names = ("application_id", "user_version")
    application, version = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if application != APPLICATION_ID or version not in (1, VERSION):
        raise sqlite3.DatabaseError("it is damaged, or another program wrote it")
    if version == 1:
        for column in _LIMITS:
            db.execute(f"ALTER TABLE counts ADD COLUMN {column}")
        for statement in _SEEN:
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
