"""x."""

from pathlib import Path


def write_results(folder: Path) -> None:
    """x."""
