"""Private keys in PEM files, readable by their owner only."""

import os
import tempfile
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
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
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def write_key(path: str | Path, private: Ed25519PrivateKey | X25519PrivateKey) -> None:
    """Writes the key for its owner only, whole or not at all; never over an existing file."""
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    place, fresh = Path(path), ""
    try:
        handle, fresh = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")  # owner only
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, place)
    except OSError as error:
        raise InvalidInputError(f"Cannot write the key {path}: {error.strerror}.") from None
    finally:
        if fresh:
            Path(fresh).unlink(missing_ok=True)
