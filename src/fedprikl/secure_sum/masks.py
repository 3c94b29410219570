"""Masks: what is added to a vector so that it looks random, and how it cancels.

    y_i = x_i + PRG(b_i) + sum_(j > i) PRG(s_ij) - sum_(j < i) PRG(s_ij)

[Bonawitz et al. 2017]. The pairwise masks cancel in the sum; the self mask PRG(b_i) protects
a client whose message arrives after it was declared dropped, when s_ij is already known.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fedprikl.secure_sum.ring import Ring, Words
from fedprikl.secure_sum.sum_keys import derive, stream_of

__all__ = ["apply_masks", "pair_mask", "pair_sign", "self_mask"]


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
