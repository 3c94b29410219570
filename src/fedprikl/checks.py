"""Checks of what comes in from outside. Each returns the clean value or says what to do."""

import math
from collections.abc import Collection, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.errors import InvalidInputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LARGEST_EFFECT = 1e9
LEAST_FALSE_ALARM = 1e-4


def check_finite(value: float, name: str) -> float:
    """The value as a float; neither nan nor infinite."""
    try:
        if isinstance(value, str | bytes | bytearray):  # float() would read them
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name} must be a number, got {value!r:.80}.") from None
    if not math.isfinite(number):
        raise InvalidInputError(f"{name} must be a finite number, got {number}.")
    return number


def check_epsilon(value: float) -> float:
    """A privacy parameter epsilon: finite and above 0."""
    epsilon = check_finite(value, "epsilon")
    if epsilon <= 0:
        raise InvalidInputError(
            f"epsilon must be above 0, got {epsilon}. Common choices lie between 0.1 and 2; "
            "for a result without privacy use `fedprikl.paper.no_privacy`."
        )
    if epsilon > 1e9:
        raise InvalidInputError(f"epsilon {epsilon:g} is no privacy at all; use at most 1e9.")
    return epsilon


def check_open_unit(value: float, name: str, advice: str) -> float:
    """A number strictly between 0 and 1."""
    number = check_finite(value, name)
    if not 0 < number < 1:
        raise InvalidInputError(f"{name} must lie strictly between 0 and 1, got {number}. {advice}")
    return number


def check_delta(value: float) -> float:
    """A privacy parameter delta: strictly between 0 and 1."""
    return check_open_unit(
        value, "delta", "Use well under one in the number of records, like 1e-6."
    )


def check_positive_int(value: int, name: str) -> int:
    """A whole number of at least 1 (bools and fractions are refused)."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise InvalidInputError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(value)


def check_counts(values: npt.ArrayLike | Sequence[Any], name: str) -> Ints:
    """A one-dimensional array of counts: whole numbers of at least 0, as int64."""
    try:
        array = np.asarray(values)
        numbers = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name} must be numbers; some are not.") from None
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must be one list of numbers, got shape {array.shape}.")
    whole = numbers is array
    if not whole and not np.all(np.isfinite(numbers)):
        raise InvalidInputError(f"{name} contain nan or infinity. Clean the counts first.")
    if np.any(numbers < 0):
        raise InvalidInputError(f"{name} must not be negative.")
    if (not whole and np.any(numbers != np.floor(numbers))) or np.any(numbers > 2**53):
        raise InvalidInputError(
            f"{name} must be whole numbers of records (at most 2^53). If these are "
            "probabilities, use `Reference.from_probabilities`."
        )
    return numbers.astype(np.int64)


def check_finite_list(values: npt.ArrayLike, name: str) -> Floats:
    """A one-dimensional array of finite numbers."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name} must be numbers; some are not.") from None
    if array.ndim != 1 or not np.all(np.isfinite(array)):
        raise InvalidInputError(f"{name} must be one list of finite numbers.")
    return array


def check_probabilities(values: npt.ArrayLike, name: str) -> Floats:
    """A one-dimensional distribution: finite, not negative, sum 1 up to 1e-6; renormalised."""
    array = check_finite_list(values, name)
    if array.size == 0:
        raise InvalidInputError(f"{name} must be one list with at least one entry.")
    if np.any(array < 0):
        raise InvalidInputError(f"{name} must be finite and not negative.")
    total = float(array.sum())
    if abs(total - 1) > 1e-6:
        raise InvalidInputError(
            f"{name} must sum to 1, but sum to {total:.9g}. Divide by the sum, or pass counts."
        )
    return array / total


def check_instant(at: str) -> datetime:
    """A point in time from ISO 8601 with an offset."""
    try:
        found = datetime.fromisoformat(at)
    except (TypeError, ValueError):
        found = None
    if found is None or found.utcoffset() is None:
        raise InvalidInputError(
            "A time is ISO 8601 with an offset, like 2030-01-31T12:00:00+00:00."
        )
    return found


def check_design_effect(value: float) -> float:
    """A design effect: at least 1, and far from where squares overflow."""
    if not 1 <= check_finite(value, "design_effect") <= LARGEST_EFFECT:
        raise InvalidInputError(
            f"The design effect is 1 for unrelated records and more for clients whose records "
            f"are correlated, at most {LARGEST_EFFECT:g}; got {value}."
        )
    return float(value)


def check_false_alarm(value: float) -> float:
    """A false-alarm rate that a simulation can resolve: from 0.0001 to 0.5."""
    rate = check_open_unit(value, "false_alarm", "Use 0.01 for one false alarm in a hundred.")
    if not LEAST_FALSE_ALARM <= rate <= 0.5:
        raise InvalidInputError(
            f"A false-alarm rate lies between {LEAST_FALSE_ALARM} and 0.5, got {rate}."
        )
    return rate


def check_names(given: Collection[str], known: Collection[str], what: str) -> None:
    """Refuses a setting that nobody reads: a limit that is misspelt would not hold."""
    plain = {name.lower(): name for name in known}
    for name in given:
        if name not in known:
            near = get_close_matches(name.lower(), plain, n=1)
            names = ", ".join(sorted(known))
            advice = f"Did you mean {plain[near[0]]}?" if near else f"There are: {names}."
            raise InvalidInputError(f"There is no setting {name!r:.80} {what}. {advice}")
