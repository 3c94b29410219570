"""Typed objects as plain documents, and back: a document has exactly the shape of its class.

| annotation          | in a document                                       |
| ------------------- | --------------------------------------------------- |
| float               | a finite number                                     |
| int                 | a whole number of at least 0                        |
| str, bool           | a text, true or false                               |
| Literal["a", "b"]   | one of these texts                                  |
| tuple[X, ...]       | a list of any length                                |
| tuple[X, Y]         | a list of this length                               |
| X or None           | X, or null                                          |
| a dataclass         | an object; its own `to_dict` and `from_dict` if any |
"""

import math
import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedprikl.errors import InvalidInputError

__all__ = ["is_same", "read_fields", "to_plain"]

Typed = TypeVar("Typed")
LARGEST = 2**63  # whole numbers stay below: beyond, not every reader reads the same number


def read_fields(kind: type[Typed], document: dict[str, Any]) -> Typed:
    """The dataclass `kind` with the fields of a document; each is read as its annotation says.

    Fields of the document that `kind` does not have are passed over. Whoever must know the whole
    document compares it with what the object writes: see `is_same`.

    >>> from dataclasses import make_dataclass
    >>> Pair = make_dataclass("Pair", [("count", int), ("share", float | None)])
    >>> read_fields(Pair, {"count": 2, "share": None})
    Pair(count=2, share=None)
    >>> read_fields(Pair, {"count": True, "share": None})
    Traceback (most recent call last):
    fedprikl.errors.InvalidInputError: The document lacks a proper field 'count'.
    """
    found = {}
    for name, annotation in get_type_hints(kind).items():
        try:
            found[name] = _read(annotation, document[name])
        except (_WrongKindError, KeyError):
            raise InvalidInputError(f"The document lacks a proper field {name!r}.") from None
    return kind(**found)


def to_plain(value: Any) -> Any:
    """The value as JSON has it: dataclasses become objects, tuples become lists.

    >>> from dataclasses import make_dataclass
    >>> Pair = make_dataclass("Pair", [("count", int), ("share", float | None)])
    >>> to_plain((Pair(2, 0.5), None))
    [{'count': 2, 'share': 0.5}, None]
    """
    if is_dataclass(value):
        own = getattr(value, "to_dict", None)
        return own() if own else {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def is_same(one: Any, other: Any) -> bool:
    """Whether two plain values are written in the same way: 1, 1.0 and true are different.

    >>> is_same({"a": [1, 2]}, {"a": [1, 2]}), is_same({"a": 1}, {"a": 1.0})
    (True, False)
    """
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


class _WrongKindError(Exception):
    """A value is not what its annotation says."""


def _read(annotation: Any, value: Any) -> Any:
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is tuple:
        return _read_tuple(inner, value)
    if kind in (Union, types.UnionType):
        (some,) = (option for option in inner if option is not type(None))
        return None if value is None else _read(some, value)
    if is_dataclass(annotation):
        if not isinstance(value, dict):
            raise _WrongKindError
        own = getattr(annotation, "from_dict", None)
        return own(value) if own else read_fields(annotation, value)  # type: ignore[arg-type]
    if not (value in inner if kind is Literal else _is(annotation, value)):
        raise _WrongKindError
    return value


def _read_tuple(inner: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _WrongKindError
    if inner[-1] is Ellipsis:
        return tuple(_read(inner[0], item) for item in value)
    if len(value) != len(inner):
        raise _WrongKindError
    return tuple(map(_read, inner, value))


def _is(annotation: Any, value: Any) -> bool:
    if annotation is float:
        whole = type(value) is int and abs(value) < LARGEST
        return whole or (isinstance(value, float) and math.isfinite(value))
    if annotation is int:
        return type(value) is int and 0 <= value < LARGEST
    return annotation in (str, bool) and isinstance(value, annotation)
