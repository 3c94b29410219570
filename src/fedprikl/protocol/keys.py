"""Signing keys: who made a plan or a release, who a client is. Ed25519 by `cryptography`."""

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedprikl.errors import InvalidInputError
from fedprikl.protocol.key_files import read_key, write_key

__all__ = ["SigningKey", "verify_signature"]


class SigningKey:
    """An Ed25519 key. SECRET: it never prints; `public` is its name to the world.

    >>> key = SigningKey.generate()
    >>> len(key.public)
    64
    >>> verify_signature(key.public, key.sign(b"a plan"), b"a plan")
    True
    >>> verify_signature(key.public, key.sign(b"a plan"), b"another plan")
    False
    """

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> "SigningKey":
        """A fresh key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> "SigningKey":
        """A key from a PEM file written by `save`."""
        key = read_key(path)
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidInputError(f"{path} is not an unencrypted Ed25519 key in PEM format.")
        return cls(key)

    @classmethod
    def load_or_create(cls, path: str | Path) -> "SigningKey":
        """The key of a file, or a fresh one saved there."""
        if Path(path).exists():
            return cls.load(path)
        key = cls.generate()
        try:
            key.save(path)
        except InvalidInputError:
            if not Path(path).exists():
                raise
            return cls.load(path)  # another process was faster
        return key

    def save(self, path: str | Path) -> None:
        """Write the key for its owner only; an existing file is never overwritten."""
        write_key(path, self._private)

    @property
    def public(self) -> str:
        """The public key, as 64 hexadecimal digits."""
        return self._private.public_key().public_bytes_raw().hex()

    def private_bytes(self) -> bytes:
        """SECRET: the key itself, for the secure sum that a client signs its messages in."""
        return self._private.private_bytes_raw()

    def sign(self, body: bytes) -> str:
        """The signature of a body, as hexadecimal digits."""
        return self._private.sign(body).hex()

    def __repr__(self) -> str:
        return f"SigningKey(public {self.public[:8]}...)"


def verify_signature(public: str, signature: str, body: bytes) -> bool:
    """Whether a signature fits a public key and a body; malformed ones do not."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), body)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
