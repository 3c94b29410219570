"""Reports on disk, sealed as they came: what was acknowledged outlives crashes and power cuts.

One SQLite file per collector process, with a write-ahead log that is synced at every commit. Many
reports are committed together, so that the disk is waited for once. A report is kept once for its
plan, period and id, and with a roster once for its identity.

A file that is older than what was acknowledged is noticed: beside it lies the number of the last
report. Who puts both back is noticed by the other servers (`meeting.py`).
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from fedprikl.errors import IntakeError

APPLICATION, VERSION = 0x46504B49, 1  # in the header of the file
ROWS = 512  # reports that are read at once
PATIENCE, PAUSE = 30.0, 0.02  # seconds to wait for other processes, and between two tries
_SCHEMA = (
    """CREATE TABLE periods (
  place INTEGER PRIMARY KEY, plan BLOB NOT NULL, period INTEGER NOT NULL,
  closed INTEGER NOT NULL DEFAULT 0, UNIQUE (plan, period))""",
    """CREATE TABLE reports (
  number INTEGER PRIMARY KEY AUTOINCREMENT, place INTEGER NOT NULL, id BLOB NOT NULL,
  identity BLOB, message BLOB NOT NULL)""",
    "CREATE UNIQUE INDEX one_of_an_id ON reports (place, id)",
    "CREATE UNIQUE INDEX one_of_an_identity ON reports (place, identity) "
    "WHERE identity IS NOT NULL",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)


class Kept(Enum):
    """What became of a report."""

    NEW = "new"
    AGAIN = "again"  # the same bytes as before: counts once
    OTHER = "other"  # another report of the same id or identity was first
    LATE = "late"  # the period is closed


@dataclass(frozen=True, slots=True)
class Received:
    """A report that opened, with where it belongs."""

    plan: bytes
    period: int
    report_id: bytes
    identity: bytes | None
    message: bytes


class Intake:
    """The file of one collector. `add` is called by one thread at a time.

    `is_closed` says whether the server has closed a period of a plan. It is asked at the first
    report: a file that is made after the closing takes none either.
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = True,
        is_closed: Callable[[bytes, int], bool] = lambda _, __: False,
    ) -> None:
        self.path, self._is_closed = path, is_closed
        self._mark = path.with_name(f"{path.name}.last")
        with self._plain_errors():
            if create:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            address = f"{path.absolute().as_uri()}?mode=rw"
            self._db = sqlite3.connect(
                address, uri=True, isolation_level=None, check_same_thread=False, timeout=PATIENCE
            )
            try:
                self._prepare()
                self._check_age()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._write_ahead()
        self._db.execute("PRAGMA synchronous = FULL")  # syncs the log before a commit returns
        if self._application() == APPLICATION:
            return
        with self._writing():  # another process may be making the same file
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            for each in () if tables else _SCHEMA:
                self._db.execute(each)
        if self._application() != APPLICATION:
            raise IntakeError(f"{self.path} is not a file of reports. Check the path.")

    def _application(self) -> int:
        return int(self._db.execute("PRAGMA application_id").fetchone()[0])

    def _write_ahead(self) -> None:
        """Sets the journal mode. SQLite waits for nobody there: who finds the file busy retries."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(PAUSE)
            else:
                return

    def _check_age(self) -> None:
        """Refuses a file that lacks reports which were acknowledged."""
        try:
            last = int(self._mark.read_text())
        except (FileNotFoundError, ValueError):
            return
        found = self._last()
        if found < last:
            raise IntakeError(
                f"{self.path} holds reports up to number {found}, but number {last} was "
                "acknowledged: an older copy was put back. Bring the newer file. If it is lost, "
                f"remove {self._mark.name}: the reports in between are missing here, so all "
                "servers will leave them out."
            )

    def _last(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'reports'").fetchone()
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Lets go of the file."""
        self._db.close()

    def add(self, reports: Sequence[Received]) -> list[Kept]:
        """What became of each; the new ones are on disk when this returns."""
        with self._plain_errors(), self._writing():
            found = [self._add(report) for report in reports]
        if Kept.NEW in found:
            # Not synced: after a power cut it may be too small, which only notices less. So does a
            # disk that has room for the reports and none for this: they are kept all the same.
            with contextlib.suppress(OSError):
                self._mark.write_text(str(self._last()))
        return found

    def _add(self, report: Received) -> Kept:
        place, closed = self._place(report.plan, report.period)
        known = self._db.execute(
            "SELECT message FROM reports WHERE place = ? AND id = ?", (place, report.report_id)
        ).fetchone()
        if known is not None:
            return Kept.AGAIN if known[0] == report.message else Kept.OTHER
        if closed:
            return Kept.LATE
        try:
            self._db.execute(
                "INSERT INTO reports (place, id, identity, message) VALUES (?, ?, ?, ?)",
                (place, report.report_id, report.identity, report.message),
            )
        except sqlite3.IntegrityError:
            return Kept.OTHER
        return Kept.NEW

    def _place(self, plan: bytes, period: int) -> tuple[int, bool]:
        """(place, whether it is closed), inside a transaction; another process may close it."""
        query = "SELECT place, closed FROM periods WHERE plan = ? AND period = ?"
        row = self._db.execute(query, (plan, period)).fetchone()
        if row is not None:
            return int(row[0]), bool(row[1])
        closed = self._is_closed(plan, period)
        made = self._db.execute(
            "INSERT INTO periods (plan, period, closed) VALUES (?, ?, ?)", (plan, period, closed)
        )
        assert made.lastrowid is not None  # noqa: S101  a row was inserted
        return made.lastrowid, closed

    def shut(self, plan: bytes, period: int) -> None:
        """Takes no more reports of a period, for ever; nothing is acknowledged after this."""
        with self._plain_errors(), self._writing():
            place, _ = self._place(plan, period)
            self._db.execute("UPDATE periods SET closed = 1 WHERE place = ?", (place,))

    def reports(self, plan: bytes, period: int) -> list[tuple[bytes, bytes | None]]:
        """The id and the identity of all reports of a period, in no order."""
        with self._plain_errors():
            return self._db.execute(
                "SELECT id, identity FROM reports JOIN periods USING (place) "
                "WHERE plan = ? AND period = ?",
                (plan, period),
            ).fetchall()

    def messages(
        self, plan: bytes, period: int, wanted: Iterable[bytes] | None = None
    ) -> Iterator[list[bytes]]:
        """Reports of a period as they came, some at a time; all of them, or those of some ids."""
        query = (
            "SELECT message FROM reports JOIN periods USING (place) WHERE plan = ? AND period = ?"
        )
        with self._plain_errors():
            if wanted is not None:
                for each in wanted:
                    yield [
                        m for (m,) in self._db.execute(f"{query} AND id = ?", (plan, period, each))
                    ]
                return
            rows = self._db.execute(f"{query} ORDER BY number", (plan, period))
            while found := rows.fetchmany(ROWS):
                yield [message for (message,) in found]

    def forget(self, plan: bytes, period: int) -> None:
        """Drops the reports of a closed period."""
        with self._plain_errors(), self._writing():
            place, _ = self._place(plan, period)
            self._db.execute("DELETE FROM reports WHERE place = ?", (place,))

    def held(self) -> dict[tuple[bytes, int], int]:
        """Reports of each plan and period."""
        with self._plain_errors():
            rows = self._db.execute(
                "SELECT plan, period, count(number) FROM periods LEFT JOIN reports USING (place) "
                "GROUP BY place"
            )
            return {(plan, period): count for plan, period, count in rows}

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise IntakeError(
                f"The reports {self.path} cannot be read or written ({error}). Nothing more is "
                "acknowledged; check the disk."
            ) from None
        except OSError as error:
            raise IntakeError(f"Cannot use the reports {self.path}: {error.strerror}.") from None
