"""The messages of a secure sum, in the order in which they travel.

    step       client to aggregator      aggregator to client
    advertise  KeyAdvert                 PeerKeys
    share      SealedShares              ShareInbox
    input      MaskedInput               Survivors
    echo       Echo                      EchoInbox
    unmask     UnmaskShares

On the wire: the letters FSS, the version, the kind, the round (the hash of the plan), then the
fields in the order below, each as its type says. Messages of clients end with an Ed25519 signature
over all the bytes before it.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import ge
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_type_hints

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedprikl.errors import MessageDecodeError
from fedprikl.secure_sum.masking import TAG_BYTES
from fedprikl.secure_sum.shamir import SHARE_BYTES

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


class Codec(NamedTuple):
    """How one field of a message travels: its bytes, and the value of the next bytes."""

    put: Callable[[Any], bytes]
    get: Callable[[Reader], Any]


def fixed(size: int) -> Codec:
    """Exactly so many bytes."""

    def put(value: bytes) -> bytes:
        if len(value) != size:
            raise MessageDecodeError(f"a field of {size} bytes cannot hold {len(value)}")
        return value

    return Codec(put, lambda reader: reader.take(size))


def records(size: int) -> Codec:
    """Clients, strictly ascending, each with a body of exactly so many bytes; after their count."""
    layout = struct.Struct(f"<I{size}s")

    def put(value: Iterable[tuple[int, bytes]]) -> bytes:
        listed = list(value)
        if not {len(body) for _, body in listed} <= {size}:
            raise MessageDecodeError(f"a record must have a body of {size} bytes")
        all_of_them = f"<{f'I{size}s' * len(listed)}"  # at once: there are many
        return _number(len(listed)) + struct.pack(all_of_them, *chain.from_iterable(listed))

    def get(reader: Reader) -> tuple[tuple[int, bytes], ...]:
        listed = tuple(layout.iter_unpack(reader.take(reader.number() * layout.size)))
        clients = [client for client, _ in listed]
        if any(map(ge, clients, clients[1:])):
            raise MessageDecodeError("the clients in a list are not in strictly ascending order")
        return listed

    return Codec(put, get)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _put_blob(value: bytes) -> bytes:
    return _number(len(value)) + value


def _get_blob(reader: Reader) -> bytes:
    return reader.take(reader.number())


def _put_clients(value: frozenset[int]) -> bytes:
    bits = np.zeros(max(value, default=-1) + 1, dtype=np.uint8)
    bits[list(value)] = 1
    return _put_blob(np.packbits(bits, bitorder="little").tobytes())


def _get_clients(reader: Reader) -> frozenset[int]:
    data = _get_blob(reader)
    if len(data) > MAX_CLIENTS // 8:
        raise MessageDecodeError(f"a set of clients has more than {MAX_CLIENTS} places")
    if data and not data[-1]:
        raise MessageDecodeError("a set of clients has trailing zeros")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    return frozenset(np.nonzero(bits)[0].tolist())


BOX_BYTES = 2 * SHARE_BYTES + 16  # both shares, sealed
ADVERT_BYTES = 3 * 32 + SIGNATURE_BYTES
_MAGIC = b"FSS" + bytes([VERSION])

# The types of fields: a value, and how it travels.
Pairs = Sequence[tuple[int, bytes]]
Number = Annotated[int, Codec(_number, Reader.number)]  # little-endian, 32 bits
Blob = Annotated[bytes, Codec(_put_blob, _get_blob)]  # of any length, after its length
Clients = Annotated[frozenset[int], Codec(_put_clients, _get_clients)]  # a bit for each client
Hash = Annotated[bytes, fixed(32)]  # or a public key
Signature = Annotated[bytes, fixed(SIGNATURE_BYTES)]
Adverts = Annotated[Pairs, records(ADVERT_BYTES)]
Boxes = Annotated[Pairs, records(BOX_BYTES)]
Tags = Annotated[Pairs, records(TAG_BYTES)]
Shares = Annotated[Pairs, records(SHARE_BYTES)]


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """One message; `encode` and `decode` are exact inverses. Its repr shows no contents."""

    KIND: ClassVar[int]
    round_id: bytes

    def encode(self) -> bytes:
        """The bytes on the wire."""
        fields = (codec.put(getattr(self, name)) for name, codec in _LAYOUTS[self.KIND])
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


@dataclass(frozen=True, slots=True, repr=False)
class SignedMessage(Message):
    """A message of a client. On the wire its signature comes last."""

    sender: Number
    signature: Signature = field(default=bytes(SIGNATURE_BYTES), kw_only=True)

    def signed_part(self) -> bytes:
        """The bytes that the signature is over."""
        return self.encode()[:-SIGNATURE_BYTES]


def _layout(kind: type[Message]) -> list[tuple[str, Codec]]:
    """The fields of a message after the round, in the order in which they travel."""
    hints = get_type_hints(kind, include_extras=True)
    names = [each.name for each in fields(kind) if each.name != "round_id"]
    names.sort(key=lambda name: name == "signature")
    return [(name, hints[name].__metadata__[0]) for name in names]


def sign(message: SignedMessage, key: Ed25519PrivateKey) -> bytes:
    """The bytes of a message with its signature filled in."""
    body = message.signed_part()
    return body + key.sign(body)


@dataclass(frozen=True, slots=True, repr=False)
class KeyAdvert(SignedMessage):
    """A client's public keys for the round: signatures, share channels, pairwise masks."""

    KIND = 1
    verify_key: Hash
    seal_key: Hash
    mask_key: Hash

    def record(self) -> bytes:
        """The advert as a record of `PeerKeys`."""
        return self.verify_key + self.seal_key + self.mask_key + self.signature

    @classmethod
    def from_record(cls, round_id: bytes, sender: int, record: bytes) -> "KeyAdvert":
        """The inverse of `record`."""
        keys = (record[i : i + 32] for i in (0, 32, 64))
        return cls(round_id, sender, *keys, signature=record[96:])


@dataclass(frozen=True, slots=True, repr=False)
class PeerKeys(Message):
    """The key adverts of a client's neighbours."""

    KIND = 2
    receiver: Number
    adverts: Adverts


@dataclass(frozen=True, slots=True, repr=False)
class SealedShares(SignedMessage):
    """A client's two secrets, shared among its neighbours; sealed boxes by receiver.

    `commitment` fixes the self-mask seed, so that a wrong share cannot go unnoticed.
    """

    KIND = 3
    commitment: Hash
    boxes: Boxes


@dataclass(frozen=True, slots=True, repr=False)
class ShareInbox(Message):
    """The boxes that a client's neighbours sealed for it, by sender."""

    KIND = 4
    receiver: Number
    boxes: Boxes


@dataclass(frozen=True, slots=True, repr=False)
class MaskedInput(SignedMessage):
    """A client's masked vector, packed."""

    KIND = 5
    packed: Blob


@dataclass(frozen=True, slots=True, repr=False)
class Survivors(Message):
    """Who sent a masked vector and who shared keys but did not. The same for everybody."""

    KIND = 6
    alive: Clients
    dropped: Clients


@dataclass(frozen=True, slots=True, repr=False)
class Echo(SignedMessage):
    """For every living neighbour, a tag that proves which `Survivors` the sender was told."""

    KIND = 7
    tags: Tags


@dataclass(frozen=True, slots=True, repr=False)
class EchoInbox(Message):
    """The tags for one client, by sender. It asks for the shares."""

    KIND = 8
    receiver: Number
    tags: Tags


@dataclass(frozen=True, slots=True, repr=False)
class UnmaskShares(SignedMessage):
    """One share per neighbour: of the self-mask seed if alive, of the mask key if dropped."""

    KIND = 9
    self_seeds: Shares
    mask_keys: Shares


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
_LAYOUTS = {number: _layout(kind) for number, kind in _KINDS.items()}


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
    content = {name: codec.get(reader) for name, codec in _LAYOUTS[kind.KIND]}
    reader.end()
    return kind(round_id, **content)
