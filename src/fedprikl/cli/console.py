"""Where things are printed: the answer on standard output, all else on standard error."""

import json
import math
import sys
from typing import Any, TextIO

from rich.console import Console

__all__ = ["notes", "print_json", "show_warning_plainly"]

notes = Console(stderr=True, highlight=False)


def print_json(document: dict[str, Any]) -> None:
    """One JSON object on standard output; infinities become null."""
    json.dump(_finite(document), sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def show_warning_plainly(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001  signature of warnings.showwarning
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """A warning as a sentence for people, without the line of code that raised it."""
    notes.print(f"[yellow]warning:[/yellow] {message}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
