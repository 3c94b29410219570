"""The ring is as narrow as possible, never wraps, and packs exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprikl.errors import InvalidInputError, MessageDecodeError
from fedprikl.secure_sum.masking import SEED_BYTES, ClientKeys, Ring, pair_sign


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=60), st.integers(3, 5000))
def test_width_is_the_narrowest_that_holds_the_largest_sum(maxima: list[int], n: int) -> None:
    ring = Ring(maxima, n)
    for width, top in zip(ring.widths.tolist(), maxima, strict=True):
        assert 2 ** (width - 1) <= n * top < 2**width


@given(st.data())
def test_packing_is_exact_and_no_wider_than_needed(data: st.DataObject) -> None:
    maxima = data.draw(st.lists(st.integers(1, 2**50), min_size=1, max_size=80))
    ring = Ring(maxima, 3)
    values = [data.draw(st.integers(0, 2**w - 1)) for w in ring.widths.tolist()]
    packed = ring.pack(np.asarray(values, dtype=np.uint64))
    assert len(packed) == ring.packed_bytes == -(-sum(ring.widths.tolist()) // 8)
    assert ring.unpack(packed).tolist() == values
    number, at = int.from_bytes(packed, "little"), 0
    for value, width in zip(values, ring.widths.tolist(), strict=True):
        assert (number >> at) & (2**width - 1) == value
        at += width


@given(st.binary(min_size=4, max_size=4))
def test_unpacking_is_canonical(data: bytes) -> None:
    ring = Ring([1000, 3, 60], 7)  # 13 + 5 + 9 = 27 bits, 5 of padding
    if data[3] >> 3:
        with pytest.raises(MessageDecodeError, match="padding"):
            ring.unpack(data)
    else:
        assert ring.pack(ring.unpack(data)) == data


def test_wrong_length() -> None:
    with pytest.raises(MessageDecodeError, match="has 4 bytes, got 5"):
        Ring([1000, 3, 60], 7).unpack(bytes(5))


@pytest.mark.parametrize(("top", "bytes_per_word"), [(2**32 // 3, 4), (2**33 // 3, 8)])
def test_words_are_as_short_as_the_widest_entry_allows(top: int, bytes_per_word: int) -> None:
    assert Ring([1, top], 3).word.itemsize == bytes_per_word


@pytest.mark.parametrize("maxima", [[], [0], [-1], [2**62]])
def test_impossible_maxima(maxima: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="public maximum"):
        Ring(maxima, 3)


@pytest.mark.parametrize("maxima", [[], [0, 5], [5, 0], [-1], [2**63, 1]])
def test_sums_that_no_ring_can_hold_are_refused(maxima: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="at least one entry"):
        Ring(maxima, 3)


@pytest.mark.parametrize(
    "seed", [b"", bytes(SEED_BYTES - 1), bytes(SEED_BYTES + 1), "0" * SEED_BYTES]
)
def test_randomness_of_another_length_or_kind_is_refused(seed: bytes) -> None:
    with pytest.raises(InvalidInputError, match="randomness must be"):
        ClientKeys.from_seed(seed, round_id=b"", index=0)


def test_of_two_clients_one_adds_what_the_other_subtracts() -> None:
    assert (pair_sign(1, 2), pair_sign(2, 1)) == (1, -1)
