"""Keys of one round: key agreement, key derivation, signatures. All from `cryptography`."""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedprikl.errors import InvalidInputError

SEED_BYTES = 32
_LABEL = b"fedprikl/secure-sum/1/"
_SHA256 = SHA256()
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(32)))
TAG_BYTES = 16


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

    @classmethod
    def agree(
        cls, private: X25519PrivateKey, public: bytes, *, me: int, peer: int, round_id: bytes
    ) -> "Channel | None":
        """The channel to the holder of a public key, or None if the key is of low order."""
        shared = agree(private, public)
        return None if shared is None else cls(shared, me, peer, round_id)

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
