"""Golden values as plain JSON: how they are written, read and compared.

Whole numbers, words, and all that a plan states are the same on every processor. Other floats may
differ by a relative 1e-9: NumPy and its BLAS choose their code by the processor, and another choice
moves last digits. Forecasts are no exception: simulations draw the same random numbers everywhere.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).with_name("values.json")
# Hundreds of times what rounding does: 1.4e-12 was seen, in a composition. A forecast from other
# random numbers differs by its Monte Carlo error, a million times as much.
RELATIVE = 1e-9
EXACT = "/plan/"  # in the path of what a plan states


def plain(value: Any) -> Any:
    """Only what JSON knows; an infinite number becomes its name."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"A golden value cannot be a {type(value).__name__}.")


def round_trip(value: Any) -> Any:
    """As it would be read from the file; Python's JSON keeps every digit of a float."""
    return json.loads(json.dumps(plain(value), allow_nan=False))


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every single value under its path; an empty list or mapping counts as a value."""
    if isinstance(value, dict | list) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        found: dict[str, Any] = {}
        for key, each in pairs:
            found |= leaves(each, f"{path}/{key}")
        return found
    return {path: value}


def differences(recorded: Any, computed: Any) -> dict[str, str]:
    """Where two plain values differ, and how; 1 and 1.0 are the same number."""
    before, after = leaves(recorded), leaves(computed)
    return {
        path: f"{before.get(path, 'nothing')!r} became {after.get(path, 'nothing')!r}"
        for path in sorted(before.keys() | after.keys())
        if path not in before
        or path not in after
        or not _same(before[path], after[path], 0.0 if EXACT in path else RELATIVE)
    }


def _same(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=relative)
    return bool(one == other)
