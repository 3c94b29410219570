"""What is kept on disk: logs of chained entries, locks, and files that are written whole.

    Store         an append-only log in SQLite: each entry is hashed together with the one before
    locked        a lock that ends with its process
    replace_file  a file that nobody ever sees half written

A ledger, a history, a registry of counted records and a site memory are stores. Each has a
`StoreKind`, and a class whose `apply` says what the entries mean, one after the other.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedprikl.documents import Step, canonical, clean
from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError

TIMEOUT = 30.0  # seconds to wait for other processes
POLL = 0.05  # seconds between looks at a lock
MIGRATED = "migrated"  # the entry before the first of a newer version
LOWER_CASE = 0x20202020  # four letters: names of files are in lower case since fedprikl 1.0
ROOM = 2**18  # bytes: more than most pages have
_NO_DELETION = (
    "CREATE TRIGGER entries_are_never_deleted BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a {name} is append-only'); END"
)
_SCHEMA = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER entries_are_never_updated BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a {name} is append-only'); END",
    _NO_DELETION,
    "CREATE TABLE documents (hash TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
)
_BUSY = (
    "The {kind} {path} was locked by another process for {timeout:g} seconds: {unwritten}. Try "
    "again."
)
_SENTENCES = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_NOTADB: "{path} is not a {kind} (not an SQLite file). Check the path.",
    sqlite3.SQLITE_READONLY: "The {kind} {path} may not be written. Check its permissions.",
    sqlite3.SQLITE_CANTOPEN: "The {kind} {path} cannot be opened. Check the permissions of the "
    "file and its folder.",
    sqlite3.SQLITE_IOERR: "Reading or writing {path} failed ({error}). {half_written}",
    sqlite3.SQLITE_FULL: "The disk of {path} is full; {unwritten}. Make room first.",
    sqlite3.SQLITE_MISUSE: "The {kind} {path} is closed, or open in another thread. Open it again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """What a store is the file of, and what its errors say."""

    name: str  # "ledger"
    application: int  # in the header of the file
    error: type[FedPriKLError]
    damaged: type[FedPriKLError]
    advice: str  # what to do about a damaged file
    unwritten: str  # what did not happen if a write was refused
    half_written: str  # what to do if nobody knows
    steps: tuple[Step, ...] = ()  # how entries of older versions become today's, as of a `Format`

    @property
    def version(self) -> int:
        """That is written: 1 in fedprikl 1.0, and one more with every step."""
        return 1 + len(self.steps)

    @property
    def genesis(self) -> str:
        """The hash before the first entry."""
        return hashlib.sha256(f"fedprikl {self.name}, version 1".encode()).hexdigest()

    @property
    def schema(self) -> tuple[str, ...]:
        """The statements that make an empty file."""
        return tuple(statement.format(name=self.name) for statement in _SCHEMA)

    def head_of(self, entries: "Sequence[Entry]") -> "Head":
        """The head of a list of entries."""
        return Head(len(entries), entries[-1].hash if entries else self.genesis)


@dataclass(frozen=True, slots=True)
class Head:
    """How many entries there are and the hash of the last: it fixes all of them."""

    count: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: what happened, as plain values, and its place in the chain."""

    number: int  # from 1
    body: Mapping[str, Any]
    hash: str
    version: int | None = None  # of the store when it was written; None: today's


class Store(AbstractContextManager["Store"]):
    """One open file of a kind. `writing()` is a transaction that no other process can enter.

    Entries are only ever appended. Entry n has the hash SHA-256(n, hash of n - 1, body), so one
    that was changed, removed or exchanged is noticed. That the last ones were cut off is noticed
    by whoever knows a later head. Documents lie beside the entries, known to them by SHA-256.
    A missing file is made, for its owner only, under another name first: it is never half made.

    >>> from fedprikl.privacy.account import LEDGER
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder, "a.db"), LEDGER) as store:
    ...     with store.writing():
    ...         head = store.append({"event": "first"})
    ...     with store.reading():
    ...         [dict(entry.body) for entry in store.entries(head)]
    [{'event': 'first'}]
    """

    def __init__(
        self, path: Path, kind: StoreKind, *, create: bool = True, timeout: float = TIMEOUT
    ) -> None:
        self.path, self.kind, self._timeout = path, kind, timeout
        with self._plain_errors():
            if not path.exists():
                self._create(create)
            address = f"{path.absolute().as_uri()}?mode=rw"
            self.connection = sqlite3.connect(
                address, uri=True, timeout=timeout, isolation_level=None
            )
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise

    def _create(self, allowed: bool) -> None:
        """If another process is faster, its file stays."""
        kind = self.kind
        if not allowed:
            raise kind.error(
                f"There is no {kind.name} at {self.path}. Check the path, or create one."
            )
        with _fresh(self.path) as name, contextlib.suppress(FileExistsError):
            with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as connection:
                for statement in kind.schema:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {kind.application}")
                connection.execute(f"PRAGMA user_version = {kind.version}")
            os.link(name, self.path)
            sync_folder(self.path.parent)

    def _prepare(self) -> None:
        names, kind = ("application_id", "user_version"), self.kind
        application, version = (
            self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names
        )
        if application == kind.application & ~LOWER_CASE:
            raise kind.error(
                f"{self.path} is a {kind.name} from before fedprikl 1.0. It was not changed: use "
                "the software that wrote it."
            )
        if application != kind.application:
            raise kind.error(
                f"{self.path} is not a {kind.name}: another program wrote it, or it is empty. "
                "It was not changed; check the path."
            )
        if not 1 <= version <= kind.version:
            raise kind.error(
                f"{self.path} is a {kind.name} of version {version}, this software reads versions "
                f"1 to {kind.version}. Use the software that wrote it, or a newer fedprikl."
            )
        # EXTRA is FULL and also syncs the folder: what was written outlives a power cut.
        self.connection.execute("PRAGMA synchronous = EXTRA")
        self.connection.execute("PRAGMA trusted_schema = OFF")
        if version < kind.version:
            self._migrate()

    def _migrate(self) -> None:
        """Makes a file of an older version one of today's, in place; a copy of it stays beside.

        No entry is rewritten, so every head that a release was signed with is still the head of
        the same entries. An entry says from where on they have another version.
        """
        with self.writing("the file was left as it was"):
            version = self.connection.execute("PRAGMA user_version").fetchone()[0]
            if version == self.kind.version:  # another process was faster
                return
            head = self.kind.head_of(self.entries())
            copy = self.path.with_name(f"{self.path.name}.version-{version}-{head.hash[:8]}")
            with contextlib.suppress(FileExistsError):  # the same, of a migration that was cut off
                replace_file(copy, self.path.read_bytes(), mode=0o600, new=True)
                sync_folder(self.path.parent)
            if head.count:
                self.append({"event": MIGRATED, "from": version})
            self.connection.execute(f"PRAGMA user_version = {self.kind.version}")

    def close(self) -> None:
        """Lets go of the file. Harmless if repeated."""
        self.connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def writing(self, unwritten: str = "") -> AbstractContextManager[None]:
        """All or nothing, and alone: the lock is taken before the first read.

        `unwritten`: what did not happen if it is refused; default: as the kind says.
        """
        return self._transaction("BEGIN IMMEDIATE", unwritten)

    def reading(self) -> AbstractContextManager[None]:
        """One consistent view of the file."""
        return self._transaction("BEGIN")

    @contextlib.contextmanager
    def _transaction(self, begin: str, unwritten: str = "") -> Iterator[None]:
        with self._plain_errors(unwritten):
            self.connection.execute(begin)
            try:
                yield
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def entries(self, anchor: Head | None = None) -> list[Entry]:
        """All entries, verified against the chain; and that they still contain `anchor`."""
        schema = self.connection.execute("SELECT sql FROM sqlite_master").fetchall()
        if {sql for (sql,) in schema if sql is not None} != set(self.kind.schema):
            raise self._damaged("the table or the guards against editing were changed")
        rows = self.connection.execute("SELECT number, body, hash FROM entries ORDER BY number")
        found: list[Entry] = []
        previous = self.kind.genesis
        for expected, (number, body, claimed) in enumerate(rows.fetchall(), start=1):
            if number != expected:
                raise self._damaged(f"entry {expected} is missing")
            if not isinstance(body, str) or claimed != entry_hash(number, previous, body):
                raise self._damaged(f"entry {number} or its place was changed after it was written")
            found.append(Entry(number, _parse(body), claimed))
            previous = claimed
        if anchor is not None:
            self._check_anchor(found, anchor)
        return self._with_versions(found)

    def _with_versions(self, found: list[Entry]) -> list[Entry]:
        """Each entry with its version: before a migration they are older."""
        version = self.kind.version
        for place in reversed(range(len(found))):
            entry = found[place]
            if entry.body.get("event") == MIGRATED:
                older = entry.body.get("from")
                if type(older) is not int or not 1 <= older < version:
                    raise self._damaged(f"entry {entry.number} migrates from no version")
                version = older
            elif version < self.kind.version:
                found[place] = replace(entry, version=version)
        return found

    def _check_anchor(self, found: list[Entry], anchor: Head) -> None:
        if len(found) < anchor.count:
            raise self.kind.damaged(
                f"{self.path} has {len(found)} entries, but entry {anchor.count} was seen before: "
                "the last rows were cut off, or an older copy of the file was put back. What was "
                f"written since would be forgotten. {self.kind.advice}"
            )
        if anchor.count < 0 or self.kind.head_of(found[: anchor.count]) != anchor:
            raise self._damaged(
                f"entry {anchor.count} is not the one that was seen before: entries were rewritten"
            )

    def replay(self, entries: Iterable[Entry], apply: Callable[[Entry], None]) -> None:
        """Calls `apply` with every entry as today's version has it, in order.

        Where it finds that one makes no sense (by an error other than the kind's own), the file is
        damaged: whoever forges an entry can also forge its hash.
        """
        for entry in entries:
            try:
                if entry.body.get("event") != MIGRATED:
                    apply(self._current(entry))
            except self.kind.error:
                raise
            except (
                LookupError,
                TypeError,
                ValueError,
                ArithmeticError,
                RecursionError,
                FedPriKLError,
            ):
                raise self.kind.damaged(
                    f"Entry {entry.number} of the {self.kind.name} {self.path} makes no sense, "
                    "though its hash is right: it was not written by this software. "
                    f"{self.kind.advice}"
                ) from None

    def _current(self, entry: Entry) -> Entry:
        body = dict(entry.body)
        for step in self.kind.steps[(entry.version or self.kind.version) - 1 :]:
            body = step(body)
        return replace(entry, body=body)

    def append(self, body: Mapping[str, Any]) -> Head:
        """Adds one entry, inside `writing()`; the new head."""
        last = "SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1"
        count, previous = self.connection.execute(last).fetchone() or (0, self.kind.genesis)
        text = canonical(body).decode()
        head = Head(count + 1, entry_hash(count + 1, previous, text))
        self.connection.execute(
            "INSERT INTO entries (number, body, hash) VALUES (?, ?, ?)",
            (head.count, text, head.hash),
        )
        return head

    def rewrite(self, bodies: Iterable[Mapping[str, Any]]) -> None:
        """A new log in place of the old one, inside `writing()`: for what may be forgotten."""
        self.connection.execute("DROP TRIGGER entries_are_never_deleted")
        self.connection.execute("DELETE FROM entries")
        self.connection.execute(_NO_DELETION.format(name=self.kind.name))
        for body in bodies:
            self.append(body)

    def keep_document(self, body: bytes) -> str:
        """Puts a document beside the entries, inside `writing()`; its hash, for an entry.

        One that is there already stays.
        """
        document = hashlib.sha256(body).hexdigest()
        self.connection.execute("INSERT OR IGNORE INTO documents VALUES (?, ?)", (document, body))
        return document

    def document(self, document: str) -> bytes | None:
        """The document with this hash, inside a transaction; None if there is none."""
        row = self.connection.execute(
            "SELECT body FROM documents WHERE hash = ?", (document,)
        ).fetchone()
        body = row[0] if row is not None and isinstance(row[0], bytes) else b""
        return body if hashlib.sha256(body).hexdigest() == document else None

    def drop_document(self, document: str) -> None:
        """Forgets a document, inside `writing()`; the entry with its hash stays."""
        self.connection.execute("DELETE FROM documents WHERE hash = ?", (document,))

    def _damaged(self, words: str) -> FedPriKLError:
        return self.kind.damaged(f"{self.path}: {words}. {self.kind.advice}")

    @contextlib.contextmanager
    def _plain_errors(self, unwritten: str = "") -> Iterator[None]:
        """SQLite's and the system's errors as sentences."""
        kind = self.kind
        try:
            yield
        except sqlite3.Error as error:
            raise self._plain(error, unwritten or kind.unwritten) from None
        except UnicodeDecodeError:  # SQLite quotes the broken bytes in its message
            raise kind.damaged(
                f"{self.path} cannot be read as a {kind.name}. {kind.advice}"
            ) from None
        except OSError as error:
            reason = error.strerror or error
            raise kind.error(f"Cannot use the {kind.name} {self.path}: {reason}.") from None

    def _plain(self, error: sqlite3.Error, unwritten: str) -> FedPriKLError:
        """SQLite's error as a sentence that says what to do."""
        kind, path, code = self.kind, self.path, getattr(error, "sqlite_errorcode", -1) & 0xFF
        if isinstance(error, sqlite3.ProgrammingError):
            code = sqlite3.SQLITE_MISUSE
        if code not in _SENTENCES:
            words = clean(str(error))  # SQLite quotes what it cannot read
            return kind.damaged(f"{path} cannot be read as a {kind.name} ({words}). {kind.advice}")
        known = {"timeout": self._timeout, "half_written": kind.half_written, "error": error}
        words = _SENTENCES[code]
        return kind.error(words.format(kind=kind.name, path=path, unwritten=unwritten, **known))


def entry_hash(number: int, previous: str, body: str) -> str:
    """SHA-256 of an entry with its number and the hash of the entry before."""
    return hashlib.sha256(f"{number}\n{previous}\n{body}".encode()).hexdigest()


def _parse(body: str) -> dict[str, Any]:
    """Rows are parsed only after their hash was found right; a forger's may still be no object."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {}


@contextlib.contextmanager
def locked(
    path: Path,
    *,
    shared: bool = False,
    timeout: float = math.inf,
    error: type[FedPriKLError] | None = None,
) -> Iterator[bool]:
    """Holds the lock beside a file; False if another process kept it for `timeout` seconds.

    A process that dies lets go. Any number of processes may share a lock that nobody has alone.
    `error`: what to raise instead of an OSError.
    """
    lock, kind = path.with_name(f"{path.name}.lock"), fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:  # a link could name any file of whoever made it
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as refused:
        if error is None:
            raise
        raise error(f"Cannot use the lock {lock}: {refused.strerror}.") from None
    end = time.monotonic() + timeout
    try:
        while not (held := _is_locked(handle, kind)) and time.monotonic() < end:
            time.sleep(POLL)
        yield held
    finally:
        os.close(handle)


def _is_locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _fresh(path: Path) -> Iterator[str]:
    """An empty file beside another, for its owner only; it is removed if it is still there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, *, mode: int | None = None, new: bool = False) -> None:
    """Writes all of a file, or nothing: a reader never meets half of it.

    `mode`: its permissions; default: the usual ones. `new`: a file that is there stays, and is a
    FileExistsError.
    """
    with _fresh(path) as name:
        with open(name, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask() if mode is None else mode)
        (os.link if new else os.replace)(name, path)


def write_whole(path: Path, text: str) -> None:
    """The same for a text that a user names a file for; never over a database or a key."""
    _spare(path)
    try:
        replace_file(path, text.encode(errors="replace"))
    except OSError as error:
        raise InvalidInputError(f"Cannot write {path}: {error.strerror}.") from None


def check_writable(path: Path) -> None:
    """Refuses a path that `write_whole` could not write now; leaves nothing behind.

    It tries: permissions say too little of read-only, special and full file systems.
    """
    _spare(path)
    try:
        with _fresh(path) as name:
            Path(name).write_bytes(bytes(ROOM))
    except OSError as error:
        raise InvalidInputError(f"Cannot write {path}: {error.strerror}.") from None


def shrink(path: Path) -> None:
    """Gives the room of what was removed from a database back to the disk."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise DeploymentError(
            f"What is old was removed from {path}, but the file is not smaller: {error}. Is the "
            "disk full? Make room, and prune again."
        ) from None


def sync_folder(folder: Path) -> None:
    """So that the new name of a file outlives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _spare(path: Path) -> None:
    """Refuses to write a text over a database or a private key, whoever they belong to."""
    try:
        if not path.is_file():  # a pipe would wait for its writer
            return
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        return  # the attempt to write tells why
    if start.startswith((b"SQLite format 3\0", b"-----BEGIN")):
        raise InvalidInputError(
            f"Cannot write {path}: it holds a database or a key, which is never overwritten. "
            "Choose another name."
        )


def _umask() -> int:
    """The usual permissions of a new file; a temporary file has fewer."""
    current = os.umask(0o077)
    os.umask(current)
    return current
