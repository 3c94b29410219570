"""Private keys in PEM files, readable by their owner only."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedprikl.errors import InvalidInputError

__all__ = ["read_key", "write_key"]


def read_key(path: str | Path) -> object:
    """The private key in a PEM file, of whatever kind; None if the file holds none."""
    try:
        return load_pem_private_key(Path(path).read_bytes(), password=None)
    except OSError as error:
        raise InvalidInputError(f"Cannot read the key {path}: {error.strerror}.") from None
    except (ValueError, TypeError):
        return None


def write_key(path: str | Path, private: Ed25519PrivateKey | X25519PrivateKey) -> None:
    """Writes the key for its owner only; an existing file is never overwritten."""
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidInputError(f"Cannot write the key {path}: {error.strerror}.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(pem)
