"""The site's memory: what a site must never forget, in one SQLite file of its own.

    rounds   how far each round was answered: no step is answered twice
    counts   each time the site's records were counted, under whatever population's name
    plans    the newest plan of each organiser and population: older ones are void

What a client remembers of a running round lives in its SuperNode's memory, which Flower updates
after the answer has left. A process that dies in between, or two that overlap, would find an old
memory, and two answers to one step could expose somebody. Two sums that differ by one client are
that client's counts. So before an answer is worked on, it is claimed here, in one transaction that
no other process can enter and that outlives a power cut.

Rounds and counts belong to the site's data, by its path: a relay gives a site any node number it
likes. Whoever holds a signed plan can invite to any number of rounds, so a plan has at most
`MOST_ROUNDS`. The rounds of a plan that has expired are removed: it is refused anyway, also if the
clock goes back. Counts stay. The file holds no secret and nothing about records.
"""

import contextlib
import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from fedprikl.databases import create_database
from fedprikl.errors import DeploymentError, PolicyRefusal
from fedprikl.protocol import SignedPlan, Step

__all__ = ["SiteMemory"]

MOST_ROUNDS = 1000  # of one plan
APPLICATION_ID, VERSION = 0x46504B53, 1  # "FPKS", in the header of the file
_ROUND = re.compile("[0-9a-zA-Z]{1,64}")
_SCHEMA = (
    "CREATE TABLE rounds (records TEXT, round TEXT, plan TEXT, ends REAL, step INTEGER NOT NULL, "
    "PRIMARY KEY (records, round)) WITHOUT ROWID",
    "CREATE TABLE counts (records TEXT, round TEXT, population TEXT, at TEXT)",
    "CREATE TABLE plans (organiser TEXT, population TEXT, serial INTEGER NOT NULL, "
    "PRIMARY KEY (organiser, population)) WITHOUT ROWID",
    "CREATE TABLE forgotten (until REAL NOT NULL)",  # rounds of plans that ended up to then
    "INSERT INTO forgotten VALUES (0)",
)


class SiteMemory:
    """What one site has answered. Refuses with a `PolicyRefusal` that depends on no record.

    1. `begin` a round: its plan is neither expired nor replaced, its records may be counted
    2. `go_on` with a later step, once
    3. `count` before the masked counts leave: the step and the count in one transaction
    """

    def __init__(self, path: Path, data: Path, *, timeout: float = 30.0) -> None:
        self._path, self._timeout = path, timeout
        self._records = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()

    def begin(self, round_id: str, signed: SignedPlan, *, most_counts: int, at: str) -> None:
        """Takes part in a round, once for ever; remembers the plan's serial number."""
        if not _ROUND.fullmatch(round_id):
            raise PolicyRefusal("the round's name is not made of letters and digits")
        with self._writing() as db:
            _forget_expired(db, at)
            plan, mine = signed.plan, (self._records, round_id)
            if db.execute("SELECT 1 FROM rounds WHERE records = ? AND round = ?", mine).fetchone():
                raise PolicyRefusal("this round has been answered already")
            self._check(db, signed, most_counts, at)
            begun = "SELECT count(*) FROM rounds WHERE records = ? AND plan = ?"
            (rounds,) = db.execute(begun, (self._records, plan.fingerprint)).fetchone()
            if rounds >= MOST_ROUNDS:
                raise PolicyRefusal(f"its plan has been used for {MOST_ROUNDS} rounds; plan again")
            db.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?)",
                (*mine, plan.fingerprint, _end(signed), _number(Step.ADVERTISE)),
            )
            db.execute(
                "INSERT OR REPLACE INTO plans VALUES (?, ?, ?)",
                (signed.signer, plan.population, plan.serial),
            )

    def go_on(self, round_id: str, step: Step) -> None:
        """Claims a step of a round that was begun; those before it are closed as well."""
        with self._writing() as db:
            self._claim(db, round_id, step)

    def count(self, round_id: str, signed: SignedPlan, *, most_counts: int, at: str) -> None:
        """Claims the step in which the counts leave, and that the records are counted.

        Whether the sum is opened afterwards nobody here can know: they stay counted.
        """
        with self._writing() as db:
            self._claim(db, round_id, Step.INPUT)
            self._check(db, signed, most_counts, at)
            db.execute(
                "INSERT INTO counts VALUES (?, ?, ?, ?)",
                (self._records, round_id, signed.plan.population, at),
            )

    def _claim(self, db: sqlite3.Connection, round_id: str, step: Step) -> None:
        number = _number(step)
        claimed = db.execute(
            "UPDATE rounds SET step = ? WHERE records = ? AND round = ? AND step < ?",
            (number, self._records, round_id, number),
        )
        if claimed.rowcount != 1:
            raise PolicyRefusal("this step has been answered already")

    def _check(self, db: sqlite3.Connection, signed: SignedPlan, most_counts: int, at: str) -> None:
        """Whether the plan may still be used, and the records be counted once more for it."""
        plan, end = signed.plan, _end(signed)
        (until,) = db.execute("SELECT until FROM forgotten").fetchone()
        if not plan.is_valid(at) or (end is not None and end <= until):
            raise PolicyRefusal("the plan is not valid at this time: it has expired, or not begun")
        newest = "SELECT serial FROM plans WHERE organiser = ? AND population = ?"
        known = db.execute(newest, (signed.signer, plan.population)).fetchone()
        if known is not None and plan.serial < known[0]:
            raise PolicyRefusal("a newer plan of its organiser has replaced this one")
        times = "SELECT count(*) FROM counts WHERE records = ?"
        (counted,) = db.execute(times, (self._records,)).fetchone()
        if counted >= min(plan.releases, most_counts):
            raise PolicyRefusal(
                "its records have been counted as often as the plan (releases) and its own policy "
                "(most-counts) allow"
            )

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, alone, and on the disk when it ends."""
        try:
            if not self._path.exists():
                _create(self._path)
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
            raise DeploymentError(
                f"Cannot use the site's memory {self._path}: {reason}. Without it no step is "
                "answered; set FEDPRIKL_HOME to a folder of this user."
            ) from None


def _number(step: Step) -> int:
    return list(Step).index(step)


def _end(signed: SignedPlan) -> float | None:
    """When the plan ends, in seconds; None: never."""
    until = signed.plan.valid_until
    return datetime.fromisoformat(until).timestamp() if until else None


def _forget_expired(db: sqlite3.Connection, at: str) -> None:
    """Removes rounds of expired plans, and notes until when: a clock may go back."""
    now = datetime.fromisoformat(at).timestamp()
    expired = "SELECT max(ends) FROM rounds WHERE ends < ?"
    (until,) = db.execute(expired, (now,)).fetchone()
    if until is not None:
        db.execute("UPDATE forgotten SET until = max(until, ?)", (until,))
        db.execute("DELETE FROM rounds WHERE ends < ?", (now,))


def _prepare(db: sqlite3.Connection) -> None:
    found = tuple(
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if found != (APPLICATION_ID, VERSION):
        raise sqlite3.DatabaseError("it is damaged, or another program wrote it")
    db.execute("PRAGMA synchronous = EXTRA")  # FULL, and the folder too: it outlives a power cut
    db.execute("PRAGMA trusted_schema = OFF")


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_database(path, _SCHEMA, application=APPLICATION_ID, version=VERSION)
