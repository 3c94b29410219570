"""Whom a budget or a release protects: one record, or one client with all it holds."""

from typing import Any, Literal, get_args

from fedprikl.errors import InvalidInputError

__all__ = ["Unit", "check_unit", "unit_entry"]

Unit = Literal["record", "client"]


def check_unit(value: Any) -> Unit:
    """The unit itself; anything else is refused."""
    if value not in get_args(Unit):
        raise InvalidInputError(f"The unit is 'record' or 'client', got {value!r:.40}.")
    found: Unit = value
    return found


def unit_entry(unit: Unit) -> dict[str, str]:
    """What an entry of a ledger says of it: nothing for records, as ledgers have always had it."""
    return {} if check_unit(unit) == "record" else {"unit": unit}
