"""Turns at a file: an aggregator hosts each round in a process of its own."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["turn"]


@contextmanager
def turn(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Waits until no other process changes the file. A process that dies lets go.

    Without `wait` it raises a `BlockingIOError` where another process has the turn.
    """
    handle = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)
