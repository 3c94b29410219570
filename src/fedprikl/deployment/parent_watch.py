"""A process that ends when its parent is gone: nothing of a site stays behind without the site.

As a program it runs another's function under this watch, with only the standard library imported:

    python -P parent_watch.py PARENT MODULE FUNCTION [ARGUMENT ...]
"""

import importlib
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["watch_parent", "watched"]

EVERY = 0.5  # seconds


def watch_parent(parent: int) -> None:
    """Sends this process a SIGTERM once its parent is another one than `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def watched(module: str, function: str, *arguments: str) -> list[str]:
    """The command line of a function that ends with this process.

    >>> watched("flwr.supernode.cli", "flower_supernode", "--help")[-3:]
    ['flwr.supernode.cli', 'flower_supernode', '--help']
    """
    # -P: this folder is not where the function's own imports are to be found.
    program = [sys.executable, "-P", str(Path(__file__))]
    return [*program, str(os.getpid()), module, function, *arguments]


def main() -> None:
    """Runs the function that the command line names."""
    parent, module, function, *arguments = sys.argv[1:]
    sys.argv = [function, *arguments]
    watch_parent(int(parent))
    with suppress(KeyboardInterrupt):  # Ctrl-C while it imports: there is nothing to tell
        getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    main()
