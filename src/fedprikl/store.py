"""What is kept on disk: an append-only hash chain in SQLite, tables, and files written whole."""

import contextlib
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedprikl.documents import canonical
from fedprikl.errors import FedPriKLError, InvalidInputError

_GUARDED = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TRIGGER entries_are_never_updated BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a {name} is append-only'); END",
    "CREATE TRIGGER entries_are_never_deleted BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a {name} is append-only'); END",
)
_DOCUMENTS = "CREATE TABLE documents (hash TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID"
ROOM = 2**18  # bytes: more than most pages have


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
    upgrade: Callable[[sqlite3.Connection, int], None] | None = None,
) -> Iterator[sqlite3.Connection]:
    """A transaction: all or nothing, alone, and on the disk when it ends. Makes a missing file.

    `upgrade` makes a file of an earlier version, which it is told, one of this version, in a
    transaction before: two processes do it once. Errors are SQLite's and the system's own.
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
            owner, older = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            if upgrade is not None and owner == application and 0 < older < version:
                upgrade(db, older)
                db.execute(f"PRAGMA user_version = {version}")
                db.execute("COMMIT")  # also if what follows is refused
                db.execute("BEGIN IMMEDIATE")
            elif (owner, older) != (application, version):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainKind:
    """What a chain is the file of, and how its errors speak."""

    name: str  # "ledger"
    application: int  # in the header of the file
    version: int
    versions: tuple[int, ...]  # that are read; an older file becomes one of `version` when needed
    genesis: str  # hash before the first entry
    error: type[FedPriKLError]
    damaged: type[FedPriKLError]
    advice: str  # what to do about a damaged file
    unwritten: str  # what did not happen if a write was refused
    half_written: str  # what to do if nobody knows
    tables_since: int = 1  # the version from which on documents lie beside the entries

    @property
    def schema(self) -> tuple[str, ...]:
        """The statements that make an empty file."""
        return self.schema_of(self.version)

    def schema_of(self, version: int) -> tuple[str, ...]:
        """Those of a file of this version."""
        guarded = tuple(each.format(name=self.name) for each in _GUARDED)
        return (*guarded, _DOCUMENTS) if version >= self.tables_since else guarded

    def head_of(self, entries: "list[Entry]") -> "Head":
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


class ChainFile:
    """One connection. `writing()` is a transaction that no other process can enter."""

    def __init__(self, path: Path, kind: ChainKind, *, create: bool, timeout: float) -> None:
        self.path, self.kind = path, kind
        self._timeout = timeout
        if not path.exists():
            if not create:
                raise kind.error(
                    f"There is no {kind.name} at {path}. Check the path, or create one."
                )
            with self._plain_errors():
                create_database(
                    path, kind.schema, application=kind.application, version=kind.version
                )
        with self._plain_errors():
            address = f"{path.absolute().as_uri()}?mode=rw"
            self.connection = sqlite3.connect(
                address, uri=True, timeout=timeout, isolation_level=None
            )
        try:
            with self._plain_errors():
                self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def _prepare(self) -> None:
        (application,) = self.connection.execute("PRAGMA application_id").fetchone()
        kind, version = self.kind, self._version
        if application != kind.application:
            raise kind.error(
                f"{self.path} is not a {kind.name}: another program wrote it, or it is empty. "
                "It was not changed; check the path."
            )
        if version not in kind.versions:
            raise kind.error(
                f"{self.path} is a {kind.name} of version {version}, this software reads versions "
                f"up to {kind.version}. Use the software that wrote it, or a newer one."
            )
        # EXTRA is FULL and also syncs the folder: a reservation outlives a power cut.
        self.connection.execute("PRAGMA synchronous = EXTRA")
        self.connection.execute("PRAGMA trusted_schema = OFF")

    def close(self) -> None:
        """Lets go of the file. Harmless if repeated."""
        self.connection.close()

    @contextlib.contextmanager
    def writing(self, unwritten: str = "") -> Iterator[None]:
        """All or nothing, and alone: the lock is taken before the first read.

        `unwritten`: what did not happen if it is refused; default: as the kind says.
        """
        with self._transaction("BEGIN IMMEDIATE", unwritten):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """One consistent view of the file."""
        with self._transaction("BEGIN"):
            yield

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
        self._verify_guards()
        rows = self.connection.execute("SELECT number, body, hash FROM entries ORDER BY number")
        found: list[Entry] = []
        previous = self.kind.genesis
        for expected, (number, body, claimed) in enumerate(rows.fetchall(), start=1):
            if number != expected:
                raise self._damaged(expected, "is missing")
            if not isinstance(body, str) or claimed != _hash(number, previous, body):
                raise self._damaged(number, "or its place was changed after it was written")
            found.append(Entry(number, _parse(body), claimed))
            previous = claimed
        if anchor is not None and len(found) < anchor.count:
            raise self._older(len(found), anchor)
        if anchor is not None and not self._contains(found, anchor):
            raise self._damaged(
                anchor.count, "is not the one that was seen before: entries were rewritten"
            )
        return found

    def append(self, body: Mapping[str, Any], after: Head) -> Head:
        """Adds one entry, inside `writing()`; the new head."""
        text = canonical(body).decode()
        head = Head(after.count + 1, _hash(after.count + 1, after.hash, text))
        self.connection.execute(
            "INSERT INTO entries (number, body, hash) VALUES (?, ?, ?)",
            (head.count, text, head.hash),
        )
        return head

    def keep_document(self, body: bytes) -> str:
        """Puts a document beside the entries, inside `writing()`; its hash, for an entry."""
        document = hashlib.sha256(body).hexdigest()
        self.connection.execute("INSERT INTO documents VALUES (?, ?)", (document, body))
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

    def _verify_guards(self) -> None:
        rows = self.connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid").fetchall()
        if {sql for (sql,) in rows if sql is not None} != set(self.kind.schema_of(self._version)):
            raise self.kind.damaged(
                f"{self.path}: the table or the guards against editing were changed. "
                f"{self.kind.advice}"
            )

    def upgrade(self) -> None:
        """To the present version, inside `writing()`: older software then says what it lacks."""
        for statement in self.kind.schema[len(self.kind.schema_of(self._version)) :]:
            self.connection.execute(statement)
        self.connection.execute(f"PRAGMA user_version = {self.kind.version}")

    @property
    def _version(self) -> int:
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _older(self, count: int, anchor: Head) -> FedPriKLError:
        return self.kind.damaged(
            f"{self.path} has {count} entries, but entry {anchor.count} was seen before: the last "
            "rows were cut off, or an older copy of the file was put back. What was charged since "
            f"would be forgotten. {self.kind.advice}"
        )

    def _damaged(self, number: int, words: str) -> FedPriKLError:
        return self.kind.damaged(f"{self.path}: entry {number} {words}. {self.kind.advice}")

    def _contains(self, entries: list[Entry], anchor: Head) -> bool:
        if not 0 <= anchor.count <= len(entries):
            return False
        return self.kind.head_of(entries[: anchor.count]) == anchor

    @contextlib.contextmanager
    def _plain_errors(self, unwritten: str = "") -> Iterator[None]:
        """SQLite's and the system's errors as sentences."""
        try:
            yield
        except sqlite3.Error as error:
            kind = replace(self.kind, unwritten=unwritten or self.kind.unwritten)
            raise plain_error(error, kind, self.path, self._timeout) from None
        except UnicodeDecodeError:  # SQLite quotes the broken bytes in its message
            kind = self.kind
            raise kind.damaged(
                f"{self.path} cannot be read as a {kind.name}. {kind.advice}"
            ) from None
        except OSError as error:
            reason = error.strerror or error
            raise self.kind.error(
                f"Cannot use the {self.kind.name} {self.path}: {reason}."
            ) from None


def _hash(number: int, previous: str, body: str) -> str:
    return hashlib.sha256(f"{number}\n{previous}\n{body}".encode()).hexdigest()


def _parse(body: str) -> dict[str, Any]:
    """Rows are parsed only after their hash was found right; a forger's may still be no object."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {}


def plain_error(error: sqlite3.Error, kind: ChainKind, path: Path, timeout: float) -> FedPriKLError:
    """SQLite's error as a sentence that says what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return kind.error(
            f"The {kind.name} {path} was locked by another process for {timeout:g} seconds. "
            f"{kind.unwritten.capitalize()}; try again."
        )
    if primary == sqlite3.SQLITE_NOTADB:
        return kind.error(f"{path} is not a {kind.name} (not an SQLite file). Check the path.")
    if primary == sqlite3.SQLITE_READONLY:
        return kind.error(f"The {kind.name} {path} may not be written. Check its permissions.")
    if primary == sqlite3.SQLITE_CANTOPEN:
        return kind.error(
            f"The {kind.name} {path} cannot be opened. Check the permissions of the file and its "
            "folder."
        )
    if primary == sqlite3.SQLITE_IOERR:
        return kind.error(f"Reading or writing {path} failed ({error}). {kind.half_written}")
    if primary == sqlite3.SQLITE_FULL:
        return kind.error(f"The disk of {path} is full; {kind.unwritten}. Make room first.")
    if isinstance(error, sqlite3.ProgrammingError):
        return kind.error(
            f"The {kind.name} {path} is closed, or open in another thread. Open it again here."
        )
    return kind.damaged(f"{path} cannot be read as a {kind.name} ({error}). {kind.advice}")


def write_whole(path: Path, text: str) -> None:
    """Writes all of the text, or nothing: a reader never meets half a file."""
    _spare(path)
    fresh = ""
    try:
        handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(fresh, 0o666 & ~_umask())
        os.replace(fresh, path)
    except OSError as error:
        if fresh:
            Path(fresh).unlink(missing_ok=True)
        raise InvalidInputError(f"Cannot write {path}: {error.strerror}.") from None


def check_writable(path: Path) -> None:
    """Refuses a path that `write_whole` could not write now; leaves nothing behind.

    It tries: permissions say too little of read-only, special and full file systems.
    """
    _spare(path)
    try:
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent) as file:
            file.write(bytes(ROOM))
            file.flush()
    except OSError as error:
        raise InvalidInputError(f"Cannot write {path}: {error.strerror}.") from None


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
