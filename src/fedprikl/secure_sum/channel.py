"""What two neighbours share in one round: a sealed channel that the aggregator only relays."""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedprikl.secure_sum.sum_keys import agree, derive

__all__ = ["TAG_BYTES", "Channel"]

TAG_BYTES = 16


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
