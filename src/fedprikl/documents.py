"""Documents as text: JSON that can be hashed and signed, JSON for people, and bytes in JSON."""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from fedprikl.errors import InvalidInputError

__all__ = [
    "bytes_of_text",
    "canonical",
    "check_version",
    "digest",
    "parse_document",
    "readable",
    "text_of_bytes",
]


def canonical(content: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """The content as JSON with sorted keys and no spaces; nan and infinity are refused."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def readable(content: dict[str, Any]) -> str:
    """The content as JSON for people, in its own order; nan and infinity are refused."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


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


def text_of_bytes(data: bytes) -> str:
    """Bytes as JSON can hold them: base64.

    >>> text_of_bytes(b"seed"), bytes_of_text("c2VlZA==")
    ('c2VlZA==', b'seed')
    """
    return base64.b64encode(data).decode()


def bytes_of_text(text: Any) -> bytes:
    """The inverse of `text_of_bytes`; refuses anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise InvalidInputError("The document is damaged: bytes in it are not base64.") from None


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
