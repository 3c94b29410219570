"""Canonical JSON: one text per content, so that it can be hashed and signed."""

import hashlib
import json
from typing import Any, NoReturn

from fedprikl.errors import InvalidInputError

__all__ = ["canonical", "digest", "parse_document"]


def canonical(content: dict[str, Any]) -> bytes:
    """The content as JSON with sorted keys and no spaces; nan and infinity are refused."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical content, as hexadecimal digits."""
    return hashlib.sha256(canonical(content)).hexdigest()


def parse_document(text: str | bytes, what: str) -> dict[str, Any]:
    """A JSON object from outside; anything else is an error that names `what` it should be."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"This {what} is not a whole JSON document.") from None
    if not isinstance(document, dict):
        raise InvalidInputError(f"This is not a {what}.")
    return document


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
