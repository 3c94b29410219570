"""The watermark: what each client's records have been counted for, in one SQLite file.

    rounds   which round counted which period of a population, in order
    claims   the span of moments that a round counted of a client's records
    seen     which bytes of a client's files were first seen in which period

A claim is written before any count leaves its client, and stays: whether the sum was opened
afterwards, only the ledger knows. The file holds no secret and no record.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedprikl.databases import create_database
from fedprikl.errors import HistoryError
from fedprikl.protocol import Plan
from fedprikl.records import Seen

__all__ = ["Claim", "Watermark"]

APPLICATION_ID, VERSION = 0x46504B57, 1  # "FPKW", in the header of the file
_SCHEMA = (
    "CREATE TABLE rounds (population TEXT, period INTEGER, round TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE claims (records TEXT, start REAL, until REAL, population TEXT, round TEXT)",
    "CREATE INDEX claims_of_records ON claims (records)",
    "CREATE TABLE seen (records TEXT, population TEXT, file TEXT, ends INTEGER, period INTEGER, "
    "digest TEXT, round TEXT)",
    "CREATE INDEX seen_of_population ON seen (population)",
)


@dataclass(frozen=True, slots=True)
class Claim:
    """That a round is about to count a client's records of a period; and what is new of them."""

    data: Path
    new: tuple[Seen, ...] = ()


class Watermark:
    """What has been counted, kept where the clients' files are. One transaction per round."""

    def __init__(self, path: Path, *, timeout: float = 30.0) -> None:
        self._path, self._timeout = path, timeout

    def claim(self, plan: Plan, period: int, round_id: str, claims: Mapping[str, Claim]) -> None:
        """Writes down that a round counts these clients; refuses what was counted before.

        A record may be in as many releases as the plan says, and a population's period is counted
        once. All clients are claimed or none.
        """
        series = plan.series
        assert series is not None  # noqa: S101  a watermark is of a series
        start, until = series.counted_by(period).span.instants
        with self._writing() as db:
            again = "SELECT 1 FROM rounds WHERE population = ? AND period = ?"
            if db.execute(again, (plan.population, period)).fetchone():
                raise HistoryError(
                    f"The watermark {self._path} says that period {period} of "
                    f"{plan.population!r} has been counted, and the history does not know it: the "
                    "history is an older copy. Bring the newer one back."
                )
            for name, claim in claims.items():
                key = _key(claim.data)
                often = (
                    "SELECT count(*) FROM claims WHERE records = ? AND start < ? AND ? < until "
                    "AND NOT (population = ? AND ?)"
                )
                arrived = not series.has_times or series.late == "next"
                (times,) = db.execute(
                    often, (key, until, start, plan.population, arrived)
                ).fetchone()
                if times >= plan.releases:
                    raise HistoryError(
                        f"The records of {name} from this period have been counted before, under "
                        "this or another population's name. Nothing was counted now. Each record "
                        "is counted once in a series."
                    )
                db.execute(
                    "INSERT INTO claims VALUES (?, ?, ?, ?, ?)",
                    (key, start, until, plan.population, round_id),
                )
                db.executemany(
                    "INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [
                        (key, plan.population, s.file, s.end, s.period, s.digest, round_id)
                        for s in claim.new
                    ],
                )
            db.execute("INSERT INTO rounds VALUES (?, ?, ?)", (plan.population, period, round_id))

    def forget(self, round_id: str) -> None:
        """Takes a round's claims back: only if it never reserved a budget, so opened nothing."""
        with self._writing() as db:
            for table in ("rounds", "claims", "seen"):
                db.execute(f"DELETE FROM {table} WHERE round = ?", (round_id,))  # noqa: S608

    def seen(self, population: str, data: Path) -> tuple[Seen, ...]:
        """What was seen before: of a client's files, and of all others of the population.

        A client that moved, or was renamed, has no new records. Files of others have a name that
        no file has, so that they are known again by their bytes only.
        """
        found = "SELECT records, file, ends, period, digest FROM seen WHERE population = ?"
        with self._writing() as db:
            rows = db.execute(found, (population,)).fetchall()
        own = _key(data)
        return tuple(
            Seen(file if records == own else f"{records}/{file}", *rest)
            for records, file, *rest in rows
        )

    def rounds(self, population: str) -> dict[str, int]:
        """The rounds that counted a population, with their periods."""
        with self._writing() as db:
            rows = db.execute(
                "SELECT round, period FROM rounds WHERE population = ?", (population,)
            ).fetchall()
        return dict(rows)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, alone, and on the disk when it ends."""
        try:
            if not self._path.exists():
                create_database(self._path, _SCHEMA, application=APPLICATION_ID, version=VERSION)
            address = f"{self._path.absolute().as_uri()}?mode=rw"
            with contextlib.closing(
                sqlite3.connect(address, uri=True, timeout=self._timeout, isolation_level=None)
            ) as db:
                _prepare(db)
                db.execute("BEGIN IMMEDIATE")
                try:
                    yield db
                    db.execute("COMMIT")
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
        except (sqlite3.Error, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise HistoryError(
                f"Cannot use the watermark {self._path}: {reason}. Nothing was counted; without it "
                "nobody knows which records are new."
            ) from None


def _key(data: Path) -> str:
    return hashlib.sha256(os.fsencode(data.resolve())).hexdigest()


def _prepare(db: sqlite3.Connection) -> None:
    found = tuple(
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if found != (APPLICATION_ID, VERSION):
        raise sqlite3.DatabaseError("it is damaged, or another program wrote it")
    db.execute("PRAGMA synchronous = EXTRA")  # FULL, and the folder too: it outlives a power cut
    db.execute("PRAGMA trusted_schema = OFF")
