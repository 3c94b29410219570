"""Benchmarks are scripts, not a package: their modules are loaded for a while, and forgotten."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["loaded"]

FOLDER = Path(__file__).parents[1] / "benchmarks"
PARTS = ("default", "measures", "rivals", "tables", "worlds")


@contextmanager
def loaded(name: str, parts: Sequence[str] = PARTS) -> Iterator[Any]:
    """All modules of the benchmark `name`, as attributes by their names."""
    modules = (name, *(f"{name}_{part}" for part in parts))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield type("Bench", (), {each: importlib.import_module(each) for each in modules})
        for each in modules:
            del sys.modules[each]
