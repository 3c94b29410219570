"""Sealed letters: what a client writes to the aggregator, unreadable for whoever carries it.

HPKE [RFC 9180], base mode, X25519 with HKDF-SHA256 and ChaCha20-Poly1305, from `cryptography`.
The address of a letter is the `info` of HPKE, so that a letter opens only where it belongs: in its
round, its cohort, from its member, in its step, and from a client that was asked what this
aggregator asks. Sealing hides; it does not prove who wrote (the messages inside are signed).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError, SealError
from fedprikl.protocol.key_files import read_key, write_key
from fedprikl.secure_sum.sum_keys import is_usable_key

__all__ = ["Address", "SealingKey", "is_sealing_key", "seal"]

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
_LABEL = b"fedprikl/sealed/2/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a letter belongs. Public; both sides derive it, it does not travel."""

    round_id: str
    cohort: bytes  # round id of the cohort's secure sum, which fixes all of its plan
    member: int
    invitation: bytes  # SHA-256 of what the client was asked: plan, cells, batch and all
    step: str

    def to_bytes(self) -> bytes:
        """One text per address."""
        return _LABEL + canonical(
            {
                "round": self.round_id,
                "cohort": self.cohort.hex(),
                "member": self.member,
                "invitation": self.invitation.hex(),
                "step": self.step,
            }
        )


class SealingKey:
    """The aggregator's X25519 key. SECRET: it never prints; `public` stands in the plan."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> "SealingKey":
        """A fresh key from the operating system's randomness."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: str | Path) -> "SealingKey":
        """A key from a PEM file written by `save`."""
        key = read_key(path)
        if not isinstance(key, X25519PrivateKey):
            raise InvalidInputError(f"{path} is not an unencrypted X25519 key in PEM format.")
        return cls(key)

    def save(self, path: str | Path) -> None:
        """Write the key for its owner only; an existing file is never overwritten."""
        write_key(path, self._private)

    @property
    def public(self) -> str:
        """The public key, as 64 hexadecimal digits."""
        return self._private.public_key().public_bytes_raw().hex()

    def open(self, letter: bytes, address: Address) -> bytes:
        """What was sealed for this address; anything else is a `SealError`."""
        try:
            return _SUITE.decrypt(letter, self._private, address.to_bytes())
        except (InvalidTag, ValueError, TypeError):
            raise SealError(
                "A letter does not open: it was sealed for another key, round, member, step or "
                "invitation, or damaged on the way. It was not used."
            ) from None

    def __repr__(self) -> str:
        return f"SealingKey(public {self.public[:8]}...)"


def seal(letter: bytes, public: str, address: Address) -> bytes:
    """The letter, for the holder of the key and this address only. Runs at the client."""
    key = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return _SUITE.encrypt(letter, key, address.to_bytes())


def is_sealing_key(public: object) -> bool:
    """Whether this is the text of a key that letters can be sealed to."""
    if not isinstance(public, str) or not re.fullmatch("[0-9a-f]{64}", public):
        return False
    return is_usable_key(bytes.fromhex(public))
