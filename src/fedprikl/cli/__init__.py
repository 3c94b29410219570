"""The command line: `fedprikl COMMAND --help`."""

from fedprikl.cli.app import main

__all__ = ["main"]
