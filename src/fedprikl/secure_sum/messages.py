"""The messages of a secure sum, in the order in which they travel.

    step       client to aggregator      aggregator to client
    advertise  KeyAdvert                 PeerKeys
    share      SealedShares              ShareInbox
    input      MaskedInput               Survivors
    echo       Echo                      EchoInbox
    unmask     UnmaskShares

On the wire: the letters FSS, the version, the kind, the round (the hash of the plan), then
the fields in the order below. Messages of clients end with an Ed25519 signature over all
the bytes before it.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedprikl.errors import MessageDecodeError
from fedprikl.secure_sum.shamir import SHARE_BYTES
from fedprikl.secure_sum.sum_keys import TAG_BYTES

MAX_CLIENTS = 1 << 16
VERSION = 1
SIGNATURE_BYTES = 64


class Reader:
    """Takes bytes off the front of a message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        if size > len(self._data) - self._at:
            raise MessageDecodeError(f"the message is cut short at byte {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        """The next little-endian 32-bit number."""
        return int.from_bytes(self.take(4), "little")

    def end(self) -> None:
        """Refuses bytes that are left over."""
        if self._at != len(self._data):
            raise MessageDecodeError(f"{len(self._data) - self._at} bytes too many at the end")


class Codec(Protocol):
    """How one field of a message travels."""

    def put(self, value: Any) -> bytes:
        """The bytes of a value."""
        ...

    def get(self, reader: Reader) -> Any:
        """The value of the next bytes."""
        ...


class Number:
    """A little-endian 32-bit number."""

    def put(self, value: int) -> bytes:
        """Four bytes."""
        return value.to_bytes(4, "little")

    def get(self, reader: Reader) -> int:
        """The number."""
        return reader.number()


class Fixed:
    """Exactly so many bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def put(self, value: bytes) -> bytes:
        """The bytes themselves."""
        if len(value) != self.size:
            raise MessageDecodeError(f"a field of {self.size} bytes cannot hold {len(value)}")
        return value

    def get(self, reader: Reader) -> bytes:
        """The bytes themselves."""
        return reader.take(self.size)


class Blob:
    """Bytes of any length, after their length."""

    def put(self, value: bytes) -> bytes:
        """Length and bytes."""
        return len(value).to_bytes(4, "little") + value

    def get(self, reader: Reader) -> bytes:
        """The bytes."""
        return reader.take(reader.number())


class Records:
    """Clients, strictly ascending, each with a body of exactly so many bytes."""

    def __init__(self, size: int) -> None:
        self._layout = struct.Struct(f"<I{size}s")
        self._body = size

    def put(self, value: Iterable[tuple[int, bytes]]) -> bytes:
        """Count and records."""
        records = list(value)
        if any(len(body) != self._body for _, body in records):
            raise MessageDecodeError(f"a record must have a body of {self._body} bytes")
        pack = self._layout.pack
        return len(records).to_bytes(4, "little") + b"".join(pack(*record) for record in records)

    def get(self, reader: Reader) -> tuple[tuple[int, bytes], ...]:
        """The records."""
        block = reader.take(reader.number() * self._layout.size)
        records = tuple(self._layout.iter_unpack(block))
        if any(a[0] >= b[0] for a, b in pairwise(records)):
            raise MessageDecodeError("the clients in a list are not in strictly ascending order")
        return records


class Clients:
    """A set of clients, as one bit per client of the cohort; its last byte is not zero."""

    def put(self, value: frozenset[int]) -> bytes:
        """Length and bit map."""
        bits = np.zeros(max(value, default=-1) + 1, dtype=np.uint8)
        bits[list(value)] = 1
        return Blob().put(np.packbits(bits, bitorder="little").tobytes())

    def get(self, reader: Reader) -> frozenset[int]:
        """The set."""
        data = Blob().get(reader)
        if len(data) > MAX_CLIENTS // 8:
            raise MessageDecodeError(f"a set of clients has more than {MAX_CLIENTS} places")
        if data and not data[-1]:
            raise MessageDecodeError("a set of clients has trailing zeros")
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        return frozenset(np.nonzero(bits)[0].tolist())


BOX_BYTES = 2 * SHARE_BYTES + 16  # both shares, sealed
ADVERT_BYTES = 3 * 32 + SIGNATURE_BYTES
_MAGIC = b"FSS" + bytes([VERSION])

Pairs = Sequence[tuple[int, bytes]]


class Message:
    """One message; `encode` and `decode` are exact inverses. Its repr shows no contents."""

    __slots__ = ()
    KIND: ClassVar[int]
    LAYOUT: ClassVar[tuple[tuple[str, Codec], ...]]
    round_id: bytes

    def encode(self) -> bytes:
        """The bytes on the wire."""
        fields = (codec.put(getattr(self, name)) for name, codec in self.LAYOUT)
        return b"".join((_MAGIC, bytes([self.KIND]), self.round_id, *fields))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The message of this kind; anything else is a `MessageDecodeError`."""
        message = decode(data)
        if not isinstance(message, cls):
            raise MessageDecodeError(
                f"expected a {cls.__name__}, got a {type(message).__name__} message"
            )
        return message

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of round {self.round_id.hex()[:8]}>"


class SignedMessage(Message):
    """A message of a client."""

    __slots__ = ()
    sender: int
    signature: bytes

    def signed_part(self) -> bytes:
        """The bytes that the signature is over."""
        return self.encode()[:-SIGNATURE_BYTES]


def sign(message: SignedMessage, key: Ed25519PrivateKey) -> bytes:
    """The bytes of a message with its signature filled in."""
    body = message.signed_part()
    return body + key.sign(body)


_SENDER = ("sender", Number())
_RECEIVER = ("receiver", Number())
_SIGNATURE = ("signature", Fixed(SIGNATURE_BYTES))
_UNSIGNED = bytes(SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True, repr=False)
class KeyAdvert(SignedMessage):
    """A client's public keys for the round: signatures, share channels, pairwise masks."""

    KIND = 1
    LAYOUT = (
        _SENDER,
        ("verify_key", Fixed(32)),
        ("seal_key", Fixed(32)),
        ("mask_key", Fixed(32)),
        _SIGNATURE,
    )
    round_id: bytes
    sender: int
    verify_key: bytes
    seal_key: bytes
    mask_key: bytes
    signature: bytes = _UNSIGNED

    def record(self) -> bytes:
        """The advert as a record of `PeerKeys`."""
        return self.verify_key + self.seal_key + self.mask_key + self.signature

    @classmethod
    def from_record(cls, round_id: bytes, sender: int, record: bytes) -> "KeyAdvert":
        """The inverse of `record`."""
        return cls(round_id, sender, record[:32], record[32:64], record[64:96], record[96:])


@dataclass(frozen=True, slots=True, repr=False)
class PeerKeys(Message):
    """The key adverts of a client's neighbours."""

    KIND = 2
    LAYOUT = (_RECEIVER, ("adverts", Records(ADVERT_BYTES)))
    round_id: bytes
    receiver: int
    adverts: Pairs


@dataclass(frozen=True, slots=True, repr=False)
class SealedShares(SignedMessage):
    """A client's two secrets, shared among its neighbours; sealed boxes by receiver.

    `commitment` fixes the self-mask seed, so that a wrong share cannot go unnoticed.
    """

    KIND = 3
    LAYOUT = (_SENDER, ("commitment", Fixed(32)), ("boxes", Records(BOX_BYTES)), _SIGNATURE)
    round_id: bytes
    sender: int
    commitment: bytes
    boxes: Pairs
    signature: bytes = _UNSIGNED


@dataclass(frozen=True, slots=True, repr=False)
class ShareInbox(Message):
    """The boxes that a client's neighbours sealed for it, by sender."""

    KIND = 4
    LAYOUT = (_RECEIVER, ("boxes", Records(BOX_BYTES)))
    round_id: bytes
    receiver: int
    boxes: Pairs


@dataclass(frozen=True, slots=True, repr=False)
class MaskedInput(SignedMessage):
    """A client's masked vector, packed."""

    KIND = 5
    LAYOUT = (_SENDER, ("packed", Blob()), _SIGNATURE)
    round_id: bytes
    sender: int
    packed: bytes
    signature: bytes = _UNSIGNED


@dataclass(frozen=True, slots=True, repr=False)
class Survivors(Message):
    """Who sent a masked vector and who shared keys but did not. The same for everybody."""

    KIND = 6
    LAYOUT = (("alive", Clients()), ("dropped", Clients()))
    round_id: bytes
    alive: frozenset[int]
    dropped: frozenset[int]


@dataclass(frozen=True, slots=True, repr=False)
class Echo(SignedMessage):
    """For every living neighbour, a tag that proves which `Survivors` the sender was told."""

    KIND = 7
    LAYOUT = (_SENDER, ("tags", Records(TAG_BYTES)), _SIGNATURE)
    round_id: bytes
    sender: int
    tags: Pairs
    signature: bytes = _UNSIGNED


@dataclass(frozen=True, slots=True, repr=False)
class EchoInbox(Message):
    """The tags for one client, by sender. It asks for the shares."""

    KIND = 8
    LAYOUT = (_RECEIVER, ("tags", Records(TAG_BYTES)))
    round_id: bytes
    receiver: int
    tags: Pairs


@dataclass(frozen=True, slots=True, repr=False)
class UnmaskShares(SignedMessage):
    """One share per neighbour: of the self-mask seed if alive, of the mask key if dropped."""

    KIND = 9
    LAYOUT = (
        _SENDER,
        ("self_seeds", Records(SHARE_BYTES)),
        ("mask_keys", Records(SHARE_BYTES)),
        _SIGNATURE,
    )
    round_id: bytes
    sender: int
    self_seeds: Pairs
    mask_keys: Pairs
    signature: bytes = _UNSIGNED


_KINDS: dict[int, type[Message]] = {
    kind.KIND: kind
    for kind in (
        KeyAdvert,
        PeerKeys,
        SealedShares,
        ShareInbox,
        MaskedInput,
        Survivors,
        Echo,
        EchoInbox,
        UnmaskShares,
    )
}


def decode(data: bytes) -> Message:
    """The message in these bytes, of whichever kind; else a `MessageDecodeError`."""
    if not isinstance(data, bytes):
        raise MessageDecodeError(f"a message is bytes, got {type(data).__name__}")
    reader = Reader(data)
    magic = reader.take(4)
    if magic[:3] != _MAGIC[:3]:
        raise MessageDecodeError("this is not a secure-sum message")
    if magic != _MAGIC:
        raise MessageDecodeError(f"version {magic[3]} is not spoken here, only {VERSION}")
    kind = _KINDS.get(reader.take(1)[0])
    if kind is None:
        raise MessageDecodeError("unknown kind of message")
    round_id = reader.take(32)
    fields: dict[str, Any] = {name: codec.get(reader) for name, codec in kind.LAYOUT}
    reader.end()
    return kind(round_id, **fields)  # type: ignore[call-arg]
