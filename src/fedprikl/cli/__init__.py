"""The command line: `fedprikl COMMAND --help`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point. Imports take a second, in which Ctrl-C must not print a traceback either."""
    try:
        from fedprikl.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()
