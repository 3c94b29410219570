"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from fedprikl.errors import InvalidInputError

__all__ = ["check_writable", "write_whole"]

ROOM = 2**18  # bytes: more than most pages have


def write_whole(path: Path, text: str) -> None:
    """Writes all of the text, or nothing: a reader never meets half a file."""
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
    try:
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent) as file:
            file.write(bytes(ROOM))
            file.flush()
    except OSError as error:
        raise InvalidInputError(f"Cannot write {path}: {error.strerror}.") from None


def _umask() -> int:
    """The usual permissions of a new file; a temporary file has fewer."""
    current = os.umask(0o077)
    os.umask(current)
    return current
