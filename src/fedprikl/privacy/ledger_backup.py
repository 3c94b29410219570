"""Copies of a ledger: taken while it is in use, verified, and never put back over a newer one.

An older ledger has forgotten charges, and a budget that forgets is overspent. So `restore_ledger`
only ever adds: a ledger that is there stays, and gets the entries of the copy that it lacks.
"""

import contextlib
import os
import sqlite3
import tempfile
from pathlib import Path

from fedprikl.chain_file import Entry, Head
from fedprikl.databases import sync_folder
from fedprikl.errors import LedgerDamagedError, LedgerError
from fedprikl.privacy.ledger_file import LedgerFile, head_of

__all__ = ["backup_ledger", "restore_ledger"]

TIMEOUT = 30.0  # seconds to wait for other processes


def backup_ledger(ledger: Path, copy: Path) -> Head:
    """Copies a ledger to a new file, for its owner only; the head that both have.

    Nobody can charge the ledger meanwhile. The copy is verified before it gets its name.

    >>> from fedprikl.privacy import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger, copy = Path(folder.name, "ledger.db"), Path(folder.name, "copy.db")
    >>> with Ledger.open(ledger) as opened:
    ...     account = opened.set_budget("phones", epsilon=1, delta=1e-6, at="2030-01-31T12:00:00Z")
    >>> backup_ledger(ledger, copy) == restore_ledger(copy, ledger)
    True
    >>> folder.cleanup()
    """
    with _opened(ledger) as source, source.writing():
        head = head_of(source.entries())
        _copy(source, copy, head)
    return head


def restore_ledger(copy: Path, ledger: Path) -> Head:
    """Puts a copy where the ledger belongs; the head of what is there then.

    A ledger that is there must be whole, and the copy must contain all of it. A damaged one has to
    be moved away by hand, by somebody who knows what was released since the copy was made.
    """
    with _opened(copy) as source, source.reading():
        entries = source.entries()
        if not ledger.exists():
            _copy(source, ledger, head_of(entries))
            return head_of(entries)
        with _opened(ledger) as present, present.writing():
            _check_contained(source, head_of(present.entries()), ledger)
            _append(present, entries)
    return head_of(entries)


def _opened(path: Path) -> "contextlib.closing[LedgerFile]":
    return contextlib.closing(LedgerFile(path, create=False, timeout=TIMEOUT))


def _check_contained(copy: LedgerFile, present: Head, ledger: Path) -> None:
    try:
        copy.entries(anchor=present)
    except LedgerDamagedError:
        raise LedgerError(
            f"{copy.path} does not contain all {present.count} entries of {ledger}: it is older, "
            "or of another ledger. What was charged since would be forgotten. Nothing was changed."
        ) from None


def _append(present: LedgerFile, entries: list[Entry]) -> None:
    """The same rows give the same hashes. The file stays, so a process that has it open sees it."""
    head = head_of(present.entries())
    for entry in entries[head.count :]:
        head = present.append(entry.body, after=head)
    if head != head_of(entries):
        raise LedgerError("The entries of the copy cannot be written again. Nothing was changed.")
    present.upgrade()


def _copy(source: LedgerFile, path: Path, head: Head) -> None:
    """Writes, syncs and verifies the copy under another name; replaces nothing.

    SQLite does not copy over the connection that holds the lock, but over one beside it.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # owner only
        try:
            with (
                _opened(source.path) as reader,
                contextlib.closing(sqlite3.connect(name)) as target,
            ):
                reader.connection.backup(target)
            os.fsync(handle)
            with _opened(Path(name)) as made, made.reading():
                if head_of(made.entries()) != head:
                    raise LedgerError(f"The copy {path} went wrong. Nothing was written.")
            os.link(name, path)
        finally:
            os.close(handle)
            os.unlink(name)
        sync_folder(path.parent)
    except FileExistsError:
        raise LedgerError(f"{path} exists. Choose a new name; nothing was written.") from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise LedgerError(f"Cannot write {path}: {reason}. Nothing was written.") from None
