"""The command line: `fedprikl COMMAND --help`."""

import os
import signal

__all__ = ["main"]


def main() -> None:
    """Entry point. Imports take a second, in which Ctrl-C must not print a traceback either.

    Nothing has been done by then, so the process may just end; an exception would have to pass
    through libraries that turn it into others.
    """
    before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from fedprikl.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    run()
