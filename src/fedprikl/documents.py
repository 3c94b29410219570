"""Canonical JSON: one text per content, so that it can be hashed and signed."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fedprikl.errors import InvalidInputError

__all__ = ["canonical", "check_version", "digest", "parse_document"]


def canonical(content: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """The content as JSON with sorted keys and no spaces; nan and infinity are refused."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """SHA-256 of the canonical content, as hexadecimal digits."""
    return hashlib.sha256(canonical(content)).hexdigest()


def parse_document(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object from outside; anything else is an error that names `what` it should be."""
    try:
        document = json.loads(
            text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_once
        )
    except (ValueError, RecursionError):
        raise InvalidInputError(
            f"This {what} is not a whole JSON document: it is damaged, names a field twice, or "
            "holds a number that is not finite."
        ) from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"This is not a {what}.")
    return document


def check_version(content: dict[str, Any], name: str, version: int, advice: str) -> None:
    """Refuses a document of another kind or version, and says what to do with it."""
    if content.get("format") != name:
        raise InvalidInputError(f"This is not a {name}.")
    found = content.get("version")
    if type(found) is not int or found != version:
        number = found if type(found) is int else "unknown"
        raise InvalidInputError(
            f"This {name} has version {number}; this software reads version {version}. {advice}"
        )


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    """1e400 is no number here: it would become an infinity that nobody wrote."""
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose fields have different names: of two readings, none is the signed one."""
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse("twice")
