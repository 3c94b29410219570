"""Files that commands write: never over another one unasked."""

import os
from pathlib import Path

from fedprikl.errors import InvalidInputError
from fedprikl.whole_files import check_writable

__all__ = ["check_outputs"]


def check_outputs(*paths: Path, force: bool) -> None:
    """Refuses, before anything is computed or charged, what could not be written at the end."""
    for path in paths:
        if not path.parent.is_dir():
            raise InvalidInputError(f"Cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise InvalidInputError(f"Cannot write {path}: it is a folder.")
        if os.path.lexists(path) and not force:
            raise InvalidInputError(
                f"{path} exists already. Choose another name, or overwrite it with --force."
            )
        check_writable(path)
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInputError(f"Two outputs have the same name, {paths[0]}. Choose another.")
