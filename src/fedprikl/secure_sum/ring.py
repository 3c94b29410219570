"""The ring the sum lives in: just wide enough never to wrap, and packed no wider."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, MessageDecodeError
from fedprikl.secure_sum.sum_keys import derive, stream_of

Words = npt.NDArray[np.unsignedinteger[Any]]

MAX_WIDTH = 63  # sums are handed out as signed 64-bit integers


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """Integers modulo 2^w_e for every entry e, where w_e is the public width of the entry.

        w_e = bit_length(n * max_e),   so that   n * max_e < 2^w_e

    for n clients whose entry e is at most max_e: no sum can wrap. Arithmetic is done in
    whole machine words (32 bits if every width fits, else 64) and cut to the width at the
    end, which is the same thing because 2^w_e divides 2^32 and 2^64.
    """

    widths: Ints
    word: np.dtype[np.unsignedinteger[Any]]

    @classmethod
    def for_sum(cls, maxima: Sequence[int], clients: int) -> "Ring":
        """The narrowest ring in which `clients` vectors with these public maxima add up."""
        widths = [(int(top) * clients).bit_length() for top in maxima]
        if not widths or max(widths) > MAX_WIDTH or min(maxima) < 1:
            raise InvalidInputError(
                "A secure sum needs at least one entry, every public maximum at least 1, and "
                f"clients times maximum below 2^{MAX_WIDTH}. Check the maxima, or scale down."
            )
        words: tuple[np.dtype[np.unsignedinteger[Any]], ...] = (np.dtype("<u4"), np.dtype("<u8"))
        return cls(np.asarray(widths, dtype=np.int64), words[max(widths) > 32])

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return len(self.widths)

    @property
    def stream_bytes(self) -> int:
        """Bytes of mask stream that one vector consumes."""
        return self.length * self.word.itemsize

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed vector on the wire: the sum of the widths, in whole bytes."""
        return (int(self.widths.sum()) + 7) // 8

    def cut(self, words: Words) -> npt.NDArray[np.uint64]:
        """Each entry modulo 2^w_e."""
        limits = (np.uint64(1) << self.widths.astype(np.uint64)) - np.uint64(1)
        return words.astype(np.uint64) & limits

    def pack(self, values: npt.NDArray[np.uint64]) -> bytes:
        """The entries' low w_e bits, lowest first, one after the other; padded with zeros."""
        raw = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(self.length, 8)
        bits = np.unpackbits(raw, axis=1, bitorder="little")
        return np.packbits(bits[self._used()], bitorder="little").tobytes()

    def unpack(self, data: bytes) -> npt.NDArray[np.uint64]:
        """The inverse of `pack`; refuses any other length and padding that is not zero."""
        if len(data) != self.packed_bytes:
            raise MessageDecodeError(
                f"a packed vector of {self.length} entries has {self.packed_bytes} bytes, "
                f"got {len(data)}"
            )
        flat = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        used = self._used()
        size = int(self.widths.sum())
        if flat[size:].any():
            raise MessageDecodeError("the padding after the last entry is not zero")
        bits = np.zeros((self.length, 64), dtype=np.uint8)
        bits[used] = flat[:size]
        packed = np.packbits(bits, axis=1, bitorder="little")
        return packed.reshape(-1).view("<u8").astype(np.uint64)

    def _used(self) -> npt.NDArray[np.bool_]:
        return np.arange(64) < self.widths[:, None]


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
    words: Words = np.frombuffer(stream_of(key, bytes(ring.stream_bytes)), dtype=ring.word)
    return words
