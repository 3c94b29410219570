"""The command line: `fedprikl COMMAND --help`."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["importing", "main"]


@contextmanager
def importing() -> Iterator[None]:
    """Imports take a second, in which Ctrl-C must not print a traceback either.

    Nothing has been done by then, so the process may just end; an exception would have to pass
    through libraries that turn it into others.
    """
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def one_thread_of_linear_algebra() -> None:
    """One thread for linear algebra, unless the environment says otherwise. NumPy reads it once.

    The matrices are small: threads that wait for each other take two to four times the CPU time.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Entry point."""
    one_thread_of_linear_algebra()
    with importing():
        from fedprikl.cli.app import main as run
    run()
