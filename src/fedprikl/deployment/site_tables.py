"""The tables of a site's memory, and how a file of an earlier version becomes one of this."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedprikl.databases import writing

__all__ = ["open_tables"]

APPLICATION_ID, VERSION = 0x46504B53, 2  # "FPKS", in the header of the file
# A count without a series is of all records, so it has no limits: version 1 had none of these.
_LIMITS = (
    "organiser TEXT NOT NULL DEFAULT ''",
    "series TEXT NOT NULL DEFAULT ''",
    "clock TEXT NOT NULL DEFAULT ''",
    "first REAL NOT NULL DEFAULT 0",
    "end REAL NOT NULL DEFAULT 0",
)
_INDEX = "CREATE INDEX counts_of_records ON counts (records)"
_SCHEMA = (
    "CREATE TABLE rounds (records TEXT, round TEXT, plan TEXT, ends REAL, step INTEGER NOT NULL, "
    "PRIMARY KEY (records, round)) WITHOUT ROWID",
    "CREATE TABLE counts (records TEXT, round TEXT, population TEXT, at TEXT, "
    f"{', '.join(_LIMITS)})",
    "CREATE TABLE plans (organiser TEXT, population TEXT, serial INTEGER NOT NULL, "
    "PRIMARY KEY (organiser, population)) WITHOUT ROWID",
    "CREATE TABLE forgotten (until REAL NOT NULL)",  # rounds of plans that ended up to then
    "INSERT INTO forgotten VALUES (0)",
    _INDEX,
)


@contextlib.contextmanager
def open_tables(path: Path, *, timeout: float) -> Iterator[sqlite3.Connection]:
    """A transaction on the memory; makes a missing file, and brings an older one up to date."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing(
        path,
        _SCHEMA,
        application=APPLICATION_ID,
        version=VERSION,
        timeout=timeout,
        upgrade=_upgrade,
    ) as db:
        yield db


def _upgrade(db: sqlite3.Connection) -> None:
    """From version 1."""
    for column in _LIMITS:
        db.execute(f"ALTER TABLE counts ADD COLUMN {column}")
    db.execute(_INDEX)
