"""One rule per value: what a single field of a record means, whatever stands beside it.

A data frame or a file gives its columns a type, and one record can change that type: a gap turns
whole numbers into floats, a word turns numbers into text. So nothing here looks at a column. Every
value becomes one of a few simple kinds on its own, and every level is computed from that.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints

# The texts that pandas takes for a gap; a reference may have its own list.
MISSING_TEXTS: Final = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST, LAST = (
    (datetime(*day, tzinfo=UTC) - EPOCH) // MICROSECOND for day in ((1, 1, 1), (9999, 12, 31))
)
NO_INSTANT: Final = 2**63 - 1  # in an array of instants: present, but outside the years 1 to 9999
UNIT = {"D": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000}
FRACTION = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
TRUTH_NUMBER = {"True": 1.0, "False": 0.0}
FIRST_LETTERS = frozenset("-0123456789tTfF")  # of a number, a time or a truth value
NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.([0-9]*))?(e[+-]?[0-9]+)?")
PLAIN_NUMBERS = re.compile(r"[0-9+\-.eE\n]*")
WHOLE = re.compile(r"(-?[0-9]+)\.0*")
TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]((?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?)"
    r"(Z| UTC|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


class Instant(NamedTuple):
    """A moment: whole microseconds since 1970 in UTC. A time without a zone is taken as UTC."""

    microseconds: int


class Odd(Enum):
    """A value that cannot be compared: a list, a record in a record, an object without a text."""

    VALUE = "odd"


Simple = bool | float | str | Instant | Odd | None


def simple(value: Any) -> Simple:  # noqa: C901  one line per kind of value
    """The value as one of the simple kinds; None stands for every kind of missing value.

    Every number becomes its nearest double, so that 2^53 + 1 is the same as a whole number and as
    the float that a gap elsewhere in its column makes of it.
    """
    if value is None or type(value) is str:
        return value
    match value:
        case str():
            return str.__str__(value)
        case bool() | np.bool_():
            return bool(value)
        case np.timedelta64():  # which numpy counts among the whole numbers
            return _seconds(value)
        case int() | float() | np.integer() | np.floating() | Decimal():
            nearest = _double(value)
            return None if nearest != nearest else nearest
        case complex() | np.complexfloating():
            return simple(float(value.real)) if value.imag == 0 else Odd.VALUE
        case bytes() | bytearray():
            return _decoded(bytes(value))
        case _ if type(value).__name__ in ("NAType", "NaTType"):  # of pandas, which may not be here
            return None
        case np.datetime64():
            (found,) = instants(np.array([value])).tolist()
            return None if np.isnat(value) else _within(found)
        case timedelta():
            return value.total_seconds()
        case datetime():
            return _of_calendar(value)
        case date():
            return _of_calendar(datetime(value.year, value.month, value.day))
        case list() | tuple() | dict() | set() | frozenset() | np.ndarray() | Odd():
            return Odd.VALUE if not isinstance(value, Instant) else value
    return _written(value)


def text_of(value: Simple) -> str | None:
    """The text by which a category is known; None if it has none."""
    match value:
        case bool():
            return str(value)
        case float():
            return _number_text(value)
        case str():
            return _canonical(value)
        case Instant(microseconds):
            return time_text(microseconds)
    return None


def level_text(value: Any) -> str | None:
    """The text of any value: 1, 1.0, Decimal("1.00"), "1" and "1.0" are the same level.

    So are True, "true" and "TRUE", and one moment as text, date or time. Clients store one field
    as a number, a truth value or a time here and as text there; a reference that told them apart
    would report a drift of formats, not of people. Texts like "007" are left alone.
    """
    return text_of(simple(value))


def number(value: Simple) -> float | None:
    """The value as a number, or None if it is none; texts are read as written in ASCII."""
    match value:
        case bool() | float():
            return float(value)
        case str():
            return _parsed(value)
    return None


def instant(value: Simple) -> int | None:
    """Microseconds since 1970 in UTC, or None if the value is no time; texts are ISO 8601."""
    match value:
        case Instant(microseconds):
            return microseconds
        case str():
            return _parsed_time(value)
    return None


def has_offset(text: str) -> bool:
    """Whether a text is a time that says how far its clock is from UTC."""
    found = TIME.fullmatch(text)
    return found is not None and found[3] is not None


def plain_numbers(values: Sequence[Any], missing: frozenset[str]) -> Floats | None:
    """`number` of many texts at once, nan where empty; None if they have to be read one by one.

    Other missing texts that are numbers are still to be looked for.
    """
    if "" not in missing or set(map(type, values)) != {str}:
        return None
    if not PLAIN_NUMBERS.fullmatch("\n".join(values)):
        return None
    try:
        return np.array([float(text or "nan") for text in values])
    except ValueError:
        return None


def instants(times: npt.NDArray[np.datetime64]) -> Ints:
    """`instant` of a whole array: the smallest int64 where missing, `NO_INSTANT` out of range."""
    unit, step = np.datetime_data(times.dtype)
    if step != 1 or unit not in {*UNIT, *FRACTION, "us"}:
        return instants(times.astype("datetime64[D]"))
    ticks = times.astype(np.int64)
    gap = np.isnat(times)
    if unit in FRACTION:
        found = ticks // FRACTION[unit]
    else:
        scale = UNIT.get(unit, 1)
        fits = (ticks > FIRST // scale - 1) & (ticks < LAST // scale + 86_400_000_000)
        fits &= np.abs(np.where(gap, 0, ticks)) < 2**62 // scale
        found = np.where(fits, np.where(fits, ticks, 0) * scale, NO_INSTANT)
    outside = (found < FIRST) | (found >= LAST + UNIT["D"])
    result: Ints = np.where(outside, NO_INSTANT, found).astype(np.int64)
    result[gap] = np.iinfo(np.int64).min
    return result


def time_text(microseconds: int) -> str:
    """A moment for people, in UTC, as short as it can be: 2020-01-01, or 2020-01-01 12:30:00.5."""
    moment = (EPOCH + microseconds * MICROSECOND).replace(tzinfo=None)
    text = moment.isoformat(sep=" ")
    if moment.microsecond:
        return text.rstrip("0")
    return text.removesuffix(" 00:00:00")


def _double(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond 1.8e308
        return float("inf") if value > 0 else float("-inf")
    except ValueError:  # a signalling nan
        return float("nan")


def _seconds(value: np.timedelta64) -> Simple:
    if np.isnat(value):
        return None
    try:
        return float(value / np.timedelta64(1, "s"))
    except TypeError:  # months and years have no fixed length
        return Odd.VALUE


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return repr(value)


def _written(value: Any) -> Simple:
    try:
        if type(value).__name__ == "Interval":  # of pandas; its numbers are those of its column
            ends = (text_of(simple(value.left)), text_of(simple(value.right)))
            return f"{ends[0]} to {ends[1]}, {value.closed}"
        return str(value)
    except Exception:  # an object of whatever kind; it must not stop the other records
        return Odd.VALUE


def _of_calendar(value: datetime) -> Simple:
    """From the fields, which a pandas Timestamp of any resolution has too."""
    try:
        plain = datetime(
            value.year, value.month, value.day, value.hour, value.minute, value.second,
            value.microsecond, tzinfo=value.tzinfo, fold=value.fold,
        )  # fmt: skip
        return _within(_since_1970(plain))
    except Exception:  # a year that is none, or a time zone of whatever kind
        return Odd.VALUE


def _since_1970(moment: datetime) -> int:
    aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
    passed = aware - EPOCH
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _within(microseconds: int) -> Simple:
    inside = FIRST <= microseconds < LAST + UNIT["D"]
    return Instant(microseconds) if inside else Odd.VALUE


def _number_text(value: float) -> str:
    """Whole numbers in digits; others as short as their precision allows.

    A double that is exactly a single gets the single's text: a column of singles that another
    record turned into doubles keeps its 0.1, instead of 0.10000000149011612.
    """
    if value in (float("inf"), float("-inf")):
        return str(value)
    if value == int(value):
        return str(int(value))
    single = np.float32(value) if abs(value) < 1e38 else value
    return repr(float(str(single)) if float(single) == value else value)


def _canonical(text: str) -> str:
    """The text itself, unless it is how a library writes a truth value, a number or a time.

    1.50 stays 1.50, as 1.10 may be a version; 1e+16, 1e16 and 10000000000000000 are one number.
    """
    if text[:1] not in FIRST_LETTERS:
        return text
    if text in TRUTH:
        return TRUTH[text]
    if found := NUMBER.fullmatch(text):
        return _canonical_number(text, found[1], found[2] or "", found[3])
    if found := WHOLE.fullmatch(text):  # 007.0 is 007
        return found[1]
    moment = _parsed_time(text)
    return text if moment is None else time_text(moment)


def _canonical_number(text: str, whole: str, fraction: str, exponent: str | None) -> str:
    if exponent is None and not fraction.strip("0"):
        return whole if len(whole) < 16 and whole != "-0" else _number_text(float(whole))
    if fraction.strip("0") and fraction.endswith("0"):
        return text
    nearest = float(text)
    if nearest in (0.0, float("inf"), float("-inf")) or Decimal(text) != Decimal(repr(nearest)):
        return text  # more digits than a double has: not written by a library
    return _number_text(nearest)


def _parsed(text: str) -> float | None:
    if TRUTH.get(text, text) in TRUTH_NUMBER:
        return TRUTH_NUMBER[TRUTH.get(text, text)]
    if not text.isascii() or "_" in text:  # 1_000 and other digits are numbers to Python alone
        return None
    try:
        found = float(text)
    except ValueError:
        return None
    return None if found != found else found


def _parsed_time(text: str) -> int | None:
    if not (found := TIME.fullmatch(text)):
        return None
    day, clock, zone = found.groups(default="")
    written = f"{day}T{clock or '00:00'}{zone.replace(' UTC', 'Z')}"
    try:
        moment = _since_1970(datetime.fromisoformat(written))
    except ValueError:
        return None
    return moment if FIRST <= moment < LAST + UNIT["D"] else None
