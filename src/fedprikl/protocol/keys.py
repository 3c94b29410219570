"""Keys: who made a plan or a release, who may take part, and messages sealed to the aggregator."""

import contextlib
import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, Suite
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedprikl.documents import canonical, read_file, to_plain
from fedprikl.errors import InvalidInputError, SealError
from fedprikl.secure_sum.masking import is_usable_key
from fedprikl.store import replace_file

_LABEL = b"fedprikl/sealed/3/"
_ROSTER = b"fedprikl/roster/1/"
_HEX = re.compile("[0-9a-f]{64}")
_SIGNED = re.compile("[0-9a-f]{128}")
SMALLEST = 3  # clients of a secure sum
ANSWER, REFUSAL = b"\x01", b"\x02"  # the kinds of what is sealed
_HEAD = 5  # the kind, and the length of what follows
_BUCKET = 256  # what is sealed is a multiple of it; a first answer fits one, as does a refusal
_SIGNATURE = 64  # bytes of an Ed25519 signature; zeros where nobody has an identity


class PrivateKey:
    """A key in a PEM file. SECRET: it never prints; `public` is its name to the world."""

    _kind: ClassVar[Any]
    _name: ClassVar[str]

    def __init__(self, private: Any) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> Self:
        """A fresh key from the operating system's randomness."""
        return cls(cls._kind.generate())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A key from a PEM file written by `save`."""
        key = cls._of_pem(read_file(path, "key"))
        if key is None:
            raise InvalidInputError(f"{path} is not an unencrypted {cls._name} key in PEM format.")
        return key

    @classmethod
    def load_or_create(cls, path: str | Path) -> Self:
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

    @classmethod
    def _of_pem(cls, pem: bytes) -> Self | None:
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):  # holds none
            key = load_pem_private_key(pem, password=None)
            return cls(key) if isinstance(key, cls._kind) else None
        return None

    def _to_pem(self) -> bytes:
        """SECRET."""
        return _pem(self._private)

    def save(self, path: str | Path) -> None:
        """Writes it for its owner only, whole or not at all; never over an existing file."""
        try:
            replace_file(Path(path), self._to_pem(), mode=0o600, new=True)
        except OSError as error:
            raise InvalidInputError(f"Cannot write the key {path}: {error.strerror}.") from None

    @property
    def public(self) -> str:
        """The public key, as hexadecimal digits."""
        digits: str = self._private.public_key().public_bytes_raw().hex()
        return digits

    def __repr__(self) -> str:
        return f"{type(self).__name__}(public {self.public[:8]}...)"


def _pem(private: Any) -> bytes:
    pem: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


class SigningKey(PrivateKey):
    """An Ed25519 key. SECRET: it never prints; `public` is its name to the world.

    >>> key = SigningKey.generate()
    >>> len(key.public)
    64
    >>> verify_signature(key.public, key.sign(b"a plan"), b"a plan")
    True
    >>> verify_signature(key.public, key.sign(b"a plan"), b"another plan")
    False
    """

    _kind, _name = Ed25519PrivateKey, "Ed25519"

    def private_bytes(self) -> bytes:
        """SECRET: the key itself, for the secure sum that a client signs its messages in."""
        secret: bytes = self._private.private_bytes_raw()
        return secret

    def sign(self, body: bytes) -> str:
        """The signature of a body, as hexadecimal digits."""
        signature: bytes = self._private.sign(body)
        return signature.hex()


def verify_signature(public: str, signature: str, body: bytes) -> bool:
    """Whether a signature fits a public key and a body; malformed ones do not.

    Both are digits in small letters and nothing else: what is signed has one text, and a key that
    people compare is written in one way.
    """
    if not isinstance(public, str) or not isinstance(signature, str):
        return False
    if not _HEX.fullmatch(public) or not _SIGNED.fullmatch(signature):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), body)
    except (InvalidSignature, ValueError):
        return False
    return True


_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
LONGEST_REASON = _BUCKET - _HEAD - _SIGNATURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a message belongs. Public; both sides derive it, it does not travel."""

    round_id: str
    cohort: bytes  # round id of the cohort's secure sum, which fixes all of its plan
    member: int
    invitation: bytes  # SHA-256 of what the client was asked: plan, cells, batch and all
    step: str

    def to_bytes(self) -> bytes:
        """One text per address."""
        return _LABEL + canonical(to_plain(self))


class OpeningKey(PrivateKey):
    """A key that messages are sealed to. SECRET: it never prints; `public` stands in the plan."""

    def unseal(self, suite: Suite, sealed: bytes, info: bytes) -> bytes:
        """What was sealed with this suite and info; anything else is a `SealError`."""
        try:
            return suite.decrypt(sealed, self._private, info)
        except (InvalidTag, ValueError, TypeError):
            raise SealError(
                "A message does not open: it was sealed for another key, round, member, step or "
                "invitation, or damaged on the way. It was not used."
            ) from None


class SealingKey(OpeningKey):
    """An X25519 key: the aggregator's, or a server's. SECRET: it never prints."""

    _kind, _name = X25519PrivateKey, "X25519"

    def open(self, sealed: bytes, address: Address) -> bytes:
        """What was sealed for this address; anything else is a `SealError`."""
        return self.unseal(_SUITE, sealed, address.to_bytes())


class HybridKey(OpeningKey):
    """An ML-KEM-768 key with an X25519 key: what is sealed stays closed while one of them holds.

    SECRET: it never prints. Its file has the two of them, one after the other.
    """

    _kind, _name = MLKEM768PrivateKey, "ML-KEM-768 with X25519"

    def __init__(self, lattice: MLKEM768PrivateKey, curve: X25519PrivateKey) -> None:
        super().__init__(MLKEM768X25519PrivateKey(lattice, curve))
        self._parts = lattice, curve

    @classmethod
    def generate(cls) -> Self:
        """A fresh key from the operating system's randomness."""
        return cls(MLKEM768PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def _of_pem(cls, pem: bytes) -> Self | None:
        end = b"-----END PRIVATE KEY-----\n"
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            first, second = (each + end for each in pem.removesuffix(end).split(end))
            lattice, curve = load_pem_private_key(first, None), load_pem_private_key(second, None)
            if isinstance(lattice, cls._kind) and isinstance(curve, X25519PrivateKey):
                return cls(lattice, curve)
        return None

    def _to_pem(self) -> bytes:
        return b"".join(_pem(part) for part in self._parts)

    @property
    def public(self) -> str:
        """Both public keys, that of ML-KEM-768 first, as hexadecimal digits."""
        return b"".join(part.public_key().public_bytes_raw() for part in self._parts).hex()


def seal(message: bytes, public: str, address: Address) -> bytes:
    """The message, for the holder of the key and this address only. Runs at the client."""
    key = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return _SUITE.encrypt(message, key, address.to_bytes())


def seal_answer(message: bytes, public: str, address: Address) -> bytes:
    """A client's message of a step, as it travels to the aggregator."""
    return seal(_padded(ANSWER, message), public, address)


def seal_refusal(
    reason: str, public: str, address: Address, identity: SigningKey | None = None
) -> bytes:
    """Why a client takes no part: sealed as well, as the reason may depend on its records.

    All refusals are of one length, that of an answer to the first step, where records matter. With
    an identity it is signed: sealing alone does not say who wrote, and somebody else could keep the
    client out.
    """
    words = reason.encode()[:LONGEST_REASON]
    signature = bytes(_SIGNATURE)
    if identity is not None:
        signature = bytes.fromhex(identity.sign(_refusal_body(words, address)))
    return seal(_padded(REFUSAL, signature + words), public, address)


def refusal_words(content: bytes, address: Address, identity: bytes | None) -> str | None:
    """The reason in a refusal; its characters may be anything. Runs at the aggregator.

    None if the client should have signed it, with the key of this identity, and did not.
    """
    signature, words = content[:_SIGNATURE].hex(), content[_SIGNATURE:]
    body = _refusal_body(words, address)
    if identity is not None and not verify_signature(identity.hex(), signature, body):
        return None
    return words.decode(errors="replace")


def _refusal_body(words: bytes, address: Address) -> bytes:
    return b"fedprikl/refusal/1/" + address.to_bytes() + words


def _padded(kind: bytes, content: bytes) -> bytes:
    message = kind + len(content).to_bytes(_HEAD - 1, "little") + content
    return message + bytes(-len(message) % _BUCKET)


def unpadded(opened: bytes) -> tuple[bytes, bytes]:
    """(kind, content); what was not padded like this gives content that no sum accepts."""
    size = int.from_bytes(opened[1:_HEAD], "little")
    return opened[:1], opened[_HEAD : _HEAD + size]


def is_sealing_key(public: str) -> bool:
    """Whether this is the text of a key that messages can be sealed to."""
    return is_fingerprint(public) and is_usable_key(bytes.fromhex(public))


def is_fingerprint(value: str) -> bool:
    """Whether this is the text of a SHA-256, or of a key."""
    return _HEX.fullmatch(value) is not None


@dataclass(frozen=True, slots=True)
class Roster:
    """The public keys of all clients that may take part: Ed25519, 32 bytes, in no order. Public.

    Without a roster, whoever carries the messages can pose as clients. Every party has its own
    copy, a plain text file; the signed plan names its fingerprint, so all of them mean the same
    clients. Names are for people and are not kept.
    """

    keys: frozenset[bytes]

    def __post_init__(self) -> None:
        if any(not isinstance(key, bytes) or len(key) != 32 for key in self.keys):
            raise InvalidInputError("A roster holds Ed25519 public keys of 32 bytes.")
        if len(self.keys) < SMALLEST:
            raise InvalidInputError(
                f"The roster holds {len(self.keys)} keys; a secure sum needs at least {SMALLEST} "
                "clients."
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"<Roster of {len(self)}, {self.fingerprint[:8]}...>"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the keys in sorted order: the same for the same clients, however listed."""
        return hashlib.sha256(_ROSTER + b"".join(sorted(self.keys))).hexdigest()

    def holds(self, keys: Collection[bytes]) -> bool:
        """Whether all of these may take part."""
        return self.keys.issuperset(keys)

    @classmethod
    def parse(cls, text: str) -> "Roster":
        """One key per line, as `fedprikl keys --site` prints it; a name may follow, # comments."""
        found: dict[bytes, int] = {}
        for number, line in enumerate(text.split("\n"), start=1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if not _HEX.fullmatch(words[0]):
                raise InvalidInputError(
                    f"Line {number} of the roster does not start with a key: 64 hexadecimal "
                    "digits in lower case, as `fedprikl keys --site` prints them."
                )
            key = bytes.fromhex(words[0])
            if key in found:
                raise InvalidInputError(
                    f"Lines {found[key]} and {number} of the roster hold the same key. Every "
                    "client has a key of its own."
                )
            found[key] = number
        return cls(frozenset(found))

    @classmethod
    def load(cls, path: str | Path) -> "Roster":
        """The roster of a file."""
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise InvalidInputError(f"Cannot read the roster {path}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise InvalidInputError(f"The roster {path} is not a text in UTF-8.") from None
