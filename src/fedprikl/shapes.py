"""Shapes: what a document from outside must look like, all the way down.

NUMBER, WHOLE, TEXT, TRUTH, ANY    a finite number, a whole one from 0, a text, true or false
None                               null
{"name": shape, ...}               an object with exactly these fields
[shape]                            a list of any length
Pair                               a list of two numbers
(None, shape, ...)                 one of these
"""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["ANY", "NUMBER", "TEXT", "TRUTH", "WHOLE", "Kind", "Pair", "Shape", "fits"]


class Kind(Enum):
    """A simple value."""

    NUMBER = "a finite number"
    WHOLE = "a whole number of at least 0"
    TEXT = "a text"
    TRUTH = "true or false"
    ANY = "anything"


NUMBER, WHOLE, TEXT, TRUTH, ANY = Kind.NUMBER, Kind.WHOLE, Kind.TEXT, Kind.TRUTH, Kind.ANY


class Pair:
    """Two numbers in a list."""


Shape = Kind | None | type[Pair] | Mapping[str, "Shape"] | list["Shape"] | tuple["Shape", ...]


def fits(value: Any, shape: Shape) -> bool:
    """Whether a value has this shape."""
    if shape is None:
        return value is None
    if isinstance(shape, Kind):
        return _is(value, shape)
    if shape is Pair:
        return isinstance(value, list) and len(value) == 2 and all(_is(v, NUMBER) for v in value)
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(item, shape[0]) for item in value)
    return (
        isinstance(shape, Mapping)
        and isinstance(value, dict)
        and value.keys() == shape.keys()
        and all(fits(value[name], inner) for name, inner in shape.items())
    )


def _is(value: Any, kind: Kind) -> bool:
    match kind:
        case Kind.NUMBER:
            return _is_number(value)
        case Kind.WHOLE:
            return type(value) is int and 0 <= value < 2**63
        case Kind.TEXT:
            return isinstance(value, str)
        case Kind.TRUTH:
            return isinstance(value, bool)
        case Kind.ANY:
            return True


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
