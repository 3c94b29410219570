"""Files that commands write: never over another one unasked, and always whole."""

import os
import tempfile
from pathlib import Path

from fedprikl.errors import InvalidInputError

__all__ = ["check_outputs", "write_whole"]


def check_outputs(*paths: Path, force: bool) -> None:
    """Refuses, before anything is computed or charged, what could not be written at the end."""
    for path in paths:
        if not path.parent.is_dir():
            raise InvalidInputError(f"Cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise InvalidInputError(f"Cannot write {path}: it is a folder.")
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise InvalidInputError(f"Cannot write {path}: its folder is not writable.")
        if os.path.lexists(path) and not force:
            raise InvalidInputError(
                f"{path} exists already. Choose another name, or overwrite it with --force."
            )
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInputError(f"Two outputs have the same name, {paths[0]}. Choose another.")


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


def _umask() -> int:
    """The usual permissions of a new file; a temporary file has fewer."""
    current = os.umask(0o077)
    os.umask(current)
    return current
