"""Golden values as plain JSON: how they are written, read and compared.

Whole numbers, words, and all that a plan states are the same on every processor. Other floats may
differ by a relative 1e-9: NumPy and its BLAS choose their code by the processor, and another choice
moves last digits. Forecasts are no exception: simulations draw the same random numbers everywhere.
Another version of NumPy may draw others from the same seed: there, what is simulated is compared
within its Monte Carlo error, and all else as ever.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).with_name("values.json")
# Hundreds of times what rounding does: 1.4e-12 was seen, in a composition. A forecast from other
# random numbers differs by its Monte Carlo error, a million times as much.
RELATIVE = 1e-9
EXACT = "/plan/"  # in the path of what a plan states
RECORDED_WITH = (
    "2.4."  # the NumPy whose random numbers were recorded: that of the lock, Python 3.11
)
# How far simulated values may differ with other random numbers, by the end of their path: mean
# errors of hundreds of releases, the 99% point of 4,000 draws, and a search in steps of 4% for a
# power that 200 populations tell.
SIMULATED = {
    r"/error(_with_twice_the_\w+)?": 0.05,
    r"/verdict/threshold": 0.1,
    r"/smallest_drifts/\w+": 0.25,
}


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


def same_draws() -> bool:
    """Whether this NumPy draws the random numbers that were recorded."""
    return np.__version__.startswith(RECORDED_WITH)


def differences(recorded: Any, computed: Any, *, drawn_alike: bool = True) -> dict[str, str]:
    """Where two plain values differ, and how; 1 and 1.0 are the same number.

    `drawn_alike`: from the same random numbers.
    """
    before, after = leaves(recorded), leaves(computed)
    return {
        path: f"{before.get(path, 'nothing')!r} became {after.get(path, 'nothing')!r}"
        for path in sorted(before.keys() | after.keys())
        if path not in before
        or path not in after
        or not _same(before[path], after[path], _tolerance(path, drawn_alike=drawn_alike))
    }


def _tolerance(path: str, *, drawn_alike: bool) -> float:
    if EXACT in path:
        return 0.0
    found = (each for end, each in SIMULATED.items() if re.search(f"{end}$", path))
    return RELATIVE if drawn_alike else next(found, RELATIVE)


def _same(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=relative)
    return bool(one == other)
