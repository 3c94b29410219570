"""Keys, secure channels and masks of one round, and the ring the sum lives in.

Key agreement, key derivation, signatures and streams are those of `cryptography`.
"""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, MessageDecodeError

SEED_BYTES = 32
_LABEL = b"fedprikl/secure-sum/1/"
_SHA256 = SHA256()
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
TAG_BYTES = 16
MAX_WIDTH = 63  # sums are handed out as signed 64-bit integers

Words = npt.NDArray[np.unsignedinteger[Any]]


def derive(secret: bytes, *, salt: bytes, label: bytes, length: int = 32) -> bytes:
    """HKDF-SHA256 of a secret; the salt is always the round, the label says what it is for."""
    return HKDF(_SHA256, length, salt, _LABEL + label).derive(secret)


def stream_of(key: bytes, zeros: bytes) -> bytes:
    """The first len(zeros) bytes of the ChaCha20 key stream of a one-time key (nonce 0)."""
    return Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(zeros)


def open_stream(key: bytes) -> Callable[[int], bytes]:
    """The same key stream piece by piece: a function that returns its next so many bytes."""
    update = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update
    return lambda size: update(bytes(size))


def commitment(secret: bytes, *, round_id: bytes) -> bytes:
    """A hash that fixes a uniform 32-byte secret without telling it."""
    return hashlib.sha256(_LABEL + b"commitment" + round_id + secret).digest()


def agree(private: X25519PrivateKey, public: bytes) -> bytes | None:
    """The X25519 shared secret, or None for a public key of low order (shared with everybody)."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return None


Agree = Callable[[X25519PrivateKey, bytes], bytes | None]
"""A client's private key and a peer's public one, to what both share: `agree`."""


class AgreeOnce:
    """`agree` for clients in one process: the second end of a pair takes what the first computed.

    Both ends compute the same, and that is half of the time of a sum. It remembers private keys,
    and secrets that are asked for only once: those of one sum, the latest that began.
    """

    def __init__(self) -> None:
        self._sum = b""
        self._once: dict[tuple[bytes, ...], bytes | None] = {}  # SECRET: by the two public keys
        self._public: dict[X25519PrivateKey, bytes] = {}  # SECRET: its keys

    def of_sum(self, round_id: bytes) -> Agree:
        """For a client of this sum; forgets what it knows of any other."""
        if round_id != self._sum:
            self._sum = round_id
            self._once.clear()
            self._public.clear()
        return self

    def __call__(self, private: X25519PrivateKey, public: bytes) -> bytes | None:
        """As `agree`."""
        own = self._public.get(private)
        if own is None:
            own = self._public[private] = private.public_key().public_bytes_raw()
        pair = (own, public) if own < public else (public, own)
        if pair in self._once:
            return self._once.pop(pair)
        found = self._once[pair] = agree(private, public)
        return found


def is_usable_key(public: bytes) -> bool:
    """Whether a public key leads to secrets at all: low-order points lead to zero."""
    return agree(_PROBE, public) is not None


def public_of(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def verify(public: bytes, signature: bytes, body: bytes) -> bool:
    """Whether an Ed25519 signature fits."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, body)
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, repr=False)
class ClientKeys:
    """The secrets of one client for one round, all derived from one 32-byte seed.

    seal_key    X25519, for the channel on which shares travel
    mask_key    X25519, for the pairwise masks; its private bytes are shared among neighbours
    self_seed   32 bytes, for the self mask; shared among neighbours
    share_key   ChaCha20 key of the sharing polynomials
    sign_key    Ed25519: the client's identity if there is a roster, else made for the round
    """

    seal_key: X25519PrivateKey
    mask_key: X25519PrivateKey
    sign_key: Ed25519PrivateKey
    mask_private: bytes
    self_seed: bytes
    share_key: bytes

    @classmethod
    def from_seed(
        cls, seed: bytes, *, round_id: bytes, index: int, identity: bytes | None = None
    ) -> "ClientKeys":
        """Everything a client keeps secret; the same seed always gives the same keys."""
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            raise InvalidInputError(
                f"A client's randomness must be {SEED_BYTES} bytes; pass os.urandom({SEED_BYTES})."
            )
        label = b"client" + index.to_bytes(4, "little")
        block = derive(seed, salt=round_id, label=label, length=160)
        seal, mask, self_seed, share_key, sign = (block[i : i + 32] for i in range(0, 160, 32))
        return cls(
            X25519PrivateKey.from_private_bytes(seal),
            X25519PrivateKey.from_private_bytes(mask),
            _signing_key(identity or sign),
            mask,
            self_seed,
            share_key,
        )

    def __repr__(self) -> str:
        return "<ClientKeys: secret>"


def _signing_key(private: bytes) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(private)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "An identity must be the 32 private bytes of an Ed25519 key."
        ) from None


class Channel:
    """The channel between `me` and `peer`, known to nobody else.

    Round, sender and receiver are bound into everything, so a box or tag cannot be moved to
    another round, pair or direction. A key seals one box per direction, with the sender in
    the nonce, so no nonce repeats.
    """

    __slots__ = ("_echo_key", "_me", "_peer", "_round", "_seal_key")

    def __init__(self, shared: bytes, me: int, peer: int, round_id: bytes) -> None:
        low, high = (me, peer) if me < peer else (peer, me)
        label = b"channel" + low.to_bytes(4, "little") + high.to_bytes(4, "little")
        keys = derive(shared, salt=round_id, label=label, length=64)
        self._seal_key, self._echo_key = keys[:32], keys[32:]
        self._me, self._peer = me.to_bytes(4, "little"), peer.to_bytes(4, "little")
        self._round = round_id

    def seal(self, plain: bytes) -> bytes:
        """A box that only the peer can open."""
        bound = self._round + self._me + self._peer
        return ChaCha20Poly1305(self._seal_key).encrypt(self._me + bytes(8), plain, bound)

    def unseal(self, box: bytes) -> bytes | None:
        """What the peer sealed, or None if it is not exactly that."""
        bound = self._round + self._peer + self._me
        try:
            return ChaCha20Poly1305(self._seal_key).decrypt(self._peer + bytes(8), box, bound)
        except InvalidTag:
            return None

    def tag(self, digest: bytes) -> bytes:
        """16 bytes that prove to the peer which digest I hold."""
        return hmac.digest(self._echo_key, self._me + self._peer + digest, "sha256")[:TAG_BYTES]

    def confirms(self, tag: bytes, digest: bytes) -> bool:
        """Whether the peer's tag proves that it holds the same digest."""
        mine = hmac.digest(self._echo_key, self._peer + self._me + digest, "sha256")
        return hmac.compare_digest(tag, mine[:TAG_BYTES])


class Ring:
    """Integers modulo 2^w_e for every entry e, where w_e is the public width of the entry.

        w_e = bit_length(n * max_e),   so that   n * max_e < 2^w_e

    for n clients whose entry e is at most max_e: no sum can wrap. Arithmetic is done in
    whole machine words (32 bits if every width fits, else 64) and cut to the width at the
    end, which is the same thing because 2^w_e divides 2^32 and 2^64.
    """

    def __init__(self, maxima: Sequence[int], clients: int) -> None:
        widths = [(int(top) * clients).bit_length() for top in maxima]
        if not widths or max(widths) > MAX_WIDTH or min(maxima) < 1:
            raise InvalidInputError(
                "A secure sum needs at least one entry, every public maximum at least 1, and "
                f"clients times maximum below 2^{MAX_WIDTH}. Check the maxima, or scale down."
            )
        self.widths: Ints = np.asarray(widths, dtype=np.int64)
        self.word: np.dtype[Any] = np.dtype("<u8" if max(widths) > 32 else "<u4")
        self._used: npt.NDArray[np.bool_] = np.arange(64) < self.widths[:, None]
        self._limits = (np.uint64(1) << self.widths.astype(np.uint64)) - np.uint64(1)

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return len(self.widths)

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed vector on the wire: the sum of the widths, in whole bytes."""
        return (int(self.widths.sum()) + 7) // 8

    def cut(self, words: Words) -> npt.NDArray[np.uint64]:
        """Each entry modulo 2^w_e."""
        return words.astype(np.uint64) & self._limits

    def pack(self, values: npt.NDArray[np.uint64]) -> bytes:
        """The entries' low w_e bits, lowest first, one after the other; padded with zeros."""
        raw = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(self.length, 8)
        bits = np.unpackbits(raw, axis=1, bitorder="little")
        return np.packbits(bits[self._used], bitorder="little").tobytes()

    def unpack(self, data: bytes) -> npt.NDArray[np.uint64]:
        """The inverse of `pack`; refuses any other length and padding that is not zero."""
        if len(data) != self.packed_bytes:
            raise MessageDecodeError(
                f"a packed vector of {self.length} entries has {self.packed_bytes} bytes, "
                f"got {len(data)}"
            )
        flat = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        size = int(self.widths.sum())
        if flat[size:].any():
            raise MessageDecodeError("the padding after the last entry is not zero")
        bits = np.zeros((self.length, 64), dtype=np.uint8)
        bits[self._used] = flat[:size]
        packed = np.packbits(bits, axis=1, bitorder="little")
        return packed.reshape(-1).view("<u8").astype(np.uint64)


def self_mask(seed: bytes, owner: int, *, round_id: bytes, ring: Ring) -> Words:
    """PRG(b_i): the mask that client `owner` puts on its own vector."""
    return _expand(seed, b"self-mask" + owner.to_bytes(4, "little"), round_id, ring)


def pair_mask(shared: bytes, one: int, other: int, *, round_id: bytes, ring: Ring) -> Words:
    """PRG(s_ij): the mask that two clients derive from their X25519 secret; symmetric."""
    low, high = (one, other) if one < other else (other, one)
    label = b"pair-mask" + low.to_bytes(4, "little") + high.to_bytes(4, "little")
    return _expand(shared, label, round_id, ring)


def pair_sign(owner: int, peer: int) -> int:
    """+1 if `owner` adds the mask it shares with `peer`, -1 if it subtracts it."""
    return 1 if owner < peer else -1


def apply_masks(
    ring: Ring, values: npt.ArrayLike, masks: Iterable[tuple[int, Words]]
) -> npt.NDArray[np.uint64]:
    """The vector plus every mask times its sign, in the ring."""
    total: Words = np.asarray(values).astype(ring.word)
    for sign, mask in masks:
        if sign > 0:
            total += mask
        else:
            total -= mask
    return ring.cut(total)


def _expand(secret: bytes, label: bytes, round_id: bytes, ring: Ring) -> Words:
    key = derive(secret, salt=round_id, label=label)
    stream = stream_of(key, bytes(ring.length * ring.word.itemsize))
    words: Words = np.frombuffer(stream, dtype=ring.word)
    return words
