"""The site's memory: what a site must never forget, in one SQLite file of its own.

    rounds   how far each round was answered: no step is answered twice
    counts   each time the site's records were counted, under whatever population's name, and which
    plans    the newest plan of each organiser and population: older ones are void
    digest   SHA-256 over all of this: what a bad disk has changed is noticed at the next use

What a client remembers of a running round lives in its SuperNode's memory, which Flower updates
after the answer has left. A process that dies in between, or two that overlap, would find an old
memory, and two answers to one step could expose somebody. Two sums that differ by one client are
that client's counts. So before an answer is worked on, it is claimed here, in one transaction that
no other process can enter and that outlives a power cut.

Rounds and counts belong to the site's data, by its path: a relay gives a site any node number it
likes. Whoever holds a signed plan can invite to any number of rounds, so a plan has at most
`MOST_ROUNDS`. The rounds of a plan that has expired are removed: it is refused anyway, also if the
clock goes back. Counts stay. The file holds no key and no record.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from datetime import datetime
from pathlib import Path

from fedprikl.errors import DeploymentError, PolicyRefusal
from fedprikl.monitoring.counted_records import CountedRecords
from fedprikl.protocol import Plan, SignedPlan, Step
from fedprikl.store import writing

APPLICATION_ID, VERSION = 0x46504B53, 3  # "FPKS", in the header of the file
# A count without a series is of all records, so it has no limits: version 1 had none of these.
_LIMITS = (
    "organiser TEXT NOT NULL DEFAULT ''",
    "series TEXT NOT NULL DEFAULT ''",
    "clock TEXT NOT NULL DEFAULT ''",
    "first REAL NOT NULL DEFAULT 0",
    "end REAL NOT NULL DEFAULT 0",
)
_INDEX = "CREATE INDEX counts_of_records ON counts (records)"
_DIGEST = "CREATE TABLE digest (sha256 TEXT NOT NULL)"  # since version 3
_TABLES = (
    "CREATE TABLE rounds (records TEXT, round TEXT, plan TEXT, ends REAL, step INTEGER NOT NULL, "
    "PRIMARY KEY (records, round)) WITHOUT ROWID",
    "CREATE TABLE counts (records TEXT, round TEXT, population TEXT, at TEXT, "
    f"{', '.join(_LIMITS)})",
    "CREATE TABLE plans (organiser TEXT, population TEXT, serial INTEGER NOT NULL, "
    "PRIMARY KEY (organiser, population)) WITHOUT ROWID",
    "CREATE TABLE forgotten (until REAL NOT NULL)",  # rounds of plans that ended up to then
    "INSERT INTO forgotten VALUES (0)",
    _INDEX,
    _DIGEST,
)
_REMEMBERED = (
    "SELECT type, name, sql FROM sqlite_master ORDER BY name",
    "SELECT * FROM rounds ORDER BY records, round",
    "SELECT * FROM counts ORDER BY rowid",
    "SELECT * FROM plans ORDER BY organiser, population",
    "SELECT * FROM forgotten ORDER BY rowid",
)
_DAMAGED = "it is damaged, or another program changed it"
_ODD = (  # in a file without a digest: what this software never wrote
    "SELECT 1 WHERE (SELECT group_concat(typeof(until)) FROM forgotten) IS NOT 'real'",
    "SELECT 1 FROM plans WHERE typeof(serial) != 'integer'",
    "SELECT 1 FROM rounds WHERE typeof(step) != 'integer' OR typeof(ends) NOT IN ('real', 'null')",
    "SELECT 1 FROM counts WHERE typeof(records) || typeof(population) || typeof(organiser) || "
    "typeof(series) || typeof(clock) != 'texttexttexttexttext' OR "
    "typeof(first) || typeof(end) != 'realreal'",
)
MOST_ROUNDS = 1000  # of one plan ...
TRIES = 4  # ... or so many for each period of a long series


@contextlib.contextmanager
def open_tables(path: Path, *, timeout: float) -> Iterator[sqlite3.Connection]:
    """A transaction on the memory; makes a missing file, and brings an older one up to date.

    A file that is not as it was left is refused.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing(
        path,
        _schema(),
        application=APPLICATION_ID,
        version=VERSION,
        timeout=timeout,
        upgrade=_upgrade,
    ) as db:
        _check_pages(db)
        if db.execute("SELECT sha256 FROM digest").fetchall() != [(_digest(db),)]:
            raise sqlite3.DatabaseError(_DAMAGED)
        before = db.total_changes
        yield db
        if db.total_changes != before:
            db.execute("UPDATE digest SET sha256 = ?", (_digest(db),))


@functools.cache
def _schema() -> tuple[str, ...]:
    """The statements that make an empty file, with its digest."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for statement in _TABLES:
            db.execute(statement)
        return (*_TABLES, f"INSERT INTO digest VALUES ('{_digest(db)}')")  # noqa: S608


def _check_pages(db: sqlite3.Connection) -> None:
    """That the index agrees with its table, and that SQLite finds every row."""
    if db.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
        raise sqlite3.DatabaseError(_DAMAGED)


def _digest(db: sqlite3.Connection) -> str:
    """Over every row that is remembered, and the tables' own definitions."""
    found = [db.execute(rows).fetchall() for rows in _REMEMBERED]
    return hashlib.sha256(json.dumps(found, default=bytes.hex).encode()).hexdigest()


def _upgrade(db: sqlite3.Connection, version: int) -> None:
    """From version 1, which had no limits, or 2, which had no digest."""
    _check_pages(db)
    if version == 1:
        for column in _LIMITS:
            db.execute(f"ALTER TABLE counts ADD COLUMN {column}")
        db.execute(_INDEX)
    if any(db.execute(odd).fetchone() for odd in _ODD):
        raise sqlite3.DatabaseError(_DAMAGED)
    db.execute(_DIGEST)
    db.execute("INSERT INTO digest VALUES (?)", (_digest(db),))


LIMITS = tuple(field.name for field in fields(CountedRecords))  # columns of the same names
_ROUND = re.compile("[0-9a-zA-Z]{1,64}")


class SiteMemory:
    """What one site has answered. Refuses with a `PolicyRefusal` that depends on no record.

    1. `begin` a round: its plan is neither expired nor replaced, its records may be counted
    2. `go_on` with a later step, once
    3. `count` before the masked counts leave: the step and the count in one transaction
    """

    def __init__(self, path: Path, data: Path, *, timeout: float = 30.0) -> None:
        self._path, self._timeout = path, timeout
        self._records = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()

    def begin(
        self,
        round_id: str,
        signed: SignedPlan,
        *,
        most_counts: int,
        at: str,
        period: int | None = None,
    ) -> None:
        """Takes part in a round, once for ever; remembers the plan's serial number."""
        if not _ROUND.fullmatch(round_id):
            raise PolicyRefusal("the round's name is not made of letters and digits")
        with _transaction(self._path, self._timeout) as db:
            _forget_expired(db, at)
            plan, mine = signed.plan, (self._records, round_id)
            if db.execute("SELECT 1 FROM rounds WHERE records = ? AND round = ?", mine).fetchone():
                raise PolicyRefusal("this round has been answered already")
            asked = CountedRecords.of(plan, period, organiser=signed.signer)
            self._check(db, signed, asked, most_counts, at)
            begun = "SELECT count(*) FROM rounds WHERE records = ? AND plan = ?"
            (rounds,) = db.execute(begun, (self._records, plan.fingerprint)).fetchone()
            most = max(MOST_ROUNDS, TRIES * plan.series.periods if plan.is_series else 0)
            if rounds >= most:
                raise PolicyRefusal(f"its plan has been used for {most} rounds; plan again")
            db.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?)",
                (*mine, plan.fingerprint, _end(signed), _number(Step.ADVERTISE)),
            )
            db.execute(
                "INSERT OR REPLACE INTO plans VALUES (?, ?, ?)",
                (signed.signer, plan.population, plan.validity.serial),
            )

    def go_on(self, round_id: str, step: Step) -> None:
        """Claims a step of a round that was begun; those before it are closed as well."""
        with _transaction(self._path, self._timeout) as db:
            self._claim(db, round_id, step)

    def count(
        self,
        round_id: str,
        signed: SignedPlan,
        *,
        most_counts: int,
        at: str,
        period: int | None = None,
    ) -> None:
        """Claims the step in which the counts leave, and that the records are counted.

        Whether the sum is opened afterwards nobody here can know: they stay counted.
        """
        with _transaction(self._path, self._timeout) as db:
            self._claim(db, round_id, Step.INPUT)
            asked = CountedRecords.of(signed.plan, period, organiser=signed.signer)
            self._check(db, signed, asked, most_counts, at)
            columns = ", ".join(("records", "round", "at", *LIMITS))
            places = ", ".join("?" * (3 + len(LIMITS)))
            db.execute(
                f"INSERT INTO counts ({columns}) VALUES ({places})",  # noqa: S608
                (self._records, round_id, at, *astuple(asked)),
            )

    def _claim(self, db: sqlite3.Connection, round_id: str, step: Step) -> None:
        number = _number(step)
        claimed = db.execute(
            "UPDATE rounds SET step = ? WHERE records = ? AND round = ? AND step < ?",
            (number, self._records, round_id, number),
        )
        if claimed.rowcount != 1:
            raise PolicyRefusal("this step has been answered already")

    def _check(
        self,
        db: sqlite3.Connection,
        signed: SignedPlan,
        asked: CountedRecords,
        most_counts: int,
        at: str,
    ) -> None:
        """Refuses a plan that is void, and records that were counted enough."""
        plan, end = signed.plan, _end(signed)
        (until,) = db.execute("SELECT until FROM forgotten").fetchone()
        if not plan.validity.includes(at) or (end is not None and end <= until):
            raise PolicyRefusal("the plan is not valid at this time: it has expired, or not begun")
        newest = "SELECT serial FROM plans WHERE organiser = ? AND population = ?"
        known = db.execute(newest, (signed.signer, plan.population)).fetchone()
        if known is not None and plan.validity.serial < known[0]:
            raise PolicyRefusal("a newer plan of its organiser has replaced this one")
        counts = self._counts(db)
        if any(asked.is_period_of(before) for before in counts):
            raise PolicyRefusal("its records of this period have been counted already")
        if not _may_count_again(plan, asked, counts, most_counts):
            raise PolicyRefusal(
                "its records have been counted as often as the plan (releases) and its own policy "
                "(most-counts) allow"
            )

    def _counts(self, db: sqlite3.Connection) -> list[CountedRecords]:
        """What was counted of these records."""
        found = f"SELECT {', '.join(LIMITS)} FROM counts WHERE records = ?"  # noqa: S608
        rows = db.execute(found, (self._records,)).fetchall()
        return [CountedRecords(**dict(zip(LIMITS, row, strict=True))) for row in rows]


def _may_count_again(
    plan: Plan, asked: CountedRecords, counts: Sequence[CountedRecords], most_counts: int
) -> bool:
    """Whether plan and policy allow one more count.

    Of records: those that may be in this count and were in others. A client is in every count, so
    all of them matter: those of its own series are in the plan's budget, all others are not.
    """
    if plan.unit.kind == "record" or not plan.is_series:
        counted = sum(asked.may_share(before) for before in counts)
        return counted < min(plan.budget.releases, most_counts)
    own = sum((each.line, each.series) == (asked.line, asked.series) for each in counts)
    return own < plan.budget.releases and len(counts) - own < most_counts


def _number(step: Step) -> int:
    return list(Step).index(step)


def _end(signed: SignedPlan) -> float | None:
    """When the plan ends, in seconds; None: never."""
    until = signed.plan.validity.valid_until
    return datetime.fromisoformat(until).timestamp() if until else None


def forget_expired(path: Path, *, at: str) -> int:
    """Removes the rounds of plans that ended before a time from a memory; how many."""
    with _transaction(path, 30.0) as db:
        return _forget_expired(db, at)


def _forget_expired(db: sqlite3.Connection, at: str) -> int:
    """Removes rounds of expired plans, and notes until when: a clock may go back."""
    now = datetime.fromisoformat(at).timestamp()
    expired = "SELECT max(ends) FROM rounds WHERE ends < ?"
    (until,) = db.execute(expired, (now,)).fetchone()
    if until is None:
        return 0
    db.execute("UPDATE forgotten SET until = max(until, ?)", (until,))
    return db.execute("DELETE FROM rounds WHERE ends < ?", (now,)).rowcount


@contextlib.contextmanager
def _transaction(path: Path, timeout: float) -> Iterator[sqlite3.Connection]:
    """All or nothing, alone, and on the disk when it ends."""
    try:
        with open_tables(path, timeout=timeout) as db:
            yield db
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):  # says what the file holds
            reason = _DAMAGED
        raise DeploymentError(
            f"Cannot use the site's memory {path}: {reason}. Without it no step is answered. Is "
            "the folder another user's? Set FEDPRIKL_HOME to one of this user. Is the file "
            "damaged? Bring back a copy made after its last round. If there is none, these "
            "records must not be counted again: start with new records in a new FEDPRIKL_HOME."
        ) from None
