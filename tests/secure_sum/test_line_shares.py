"""Three servers: any two restore, one alone sees uniform numbers."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum.line_shares import (
    LARGEST,
    PRIME,
    Field,
    add,
    expand,
    from_field,
    restore,
    split,
    times,
    to_field,
)

FALSE_ALARM = 1e-9
SEEDS = st.binary(min_size=32, max_size=32)
VECTORS = arrays(np.int64, st.integers(0, 9), elements=st.integers(-LARGEST, LARGEST))


def shares_of(vector: Ints, seed: bytes) -> dict[int, Field]:
    two, three = split(vector, seed)
    return {1: expand(seed, len(vector)), 2: two, 3: three}


@given(VECTORS, SEEDS)
def test_any_two_shares_restore(vector: Ints, seed: bytes) -> None:
    shares = shares_of(vector, seed)
    for chosen in (*combinations(shares, 2), tuple(shares)):
        assert np.array_equal(restore({server: shares[server] for server in chosen}), vector)


@given(VECTORS, SEEDS)
def test_every_share_is_on_the_line(vector: Ints, seed: bytes) -> None:
    shares = shares_of(vector, seed)
    for server, share in shares.items():
        for entry, first, found in zip(vector, shares[1], share, strict=True):
            assert int(found) == (int(entry) + server * (int(first) - int(entry))) % PRIME


@given(st.lists(SEEDS, min_size=1, max_size=5))
def test_shares_of_terms_add_up(seeds: list[bytes]) -> None:
    vectors = [np.arange(4) * number - 2 for number in range(len(seeds))]
    parts = [shares_of(vector, seed) for vector, seed in zip(vectors, seeds, strict=True)]
    total = {server: add([part[server] for part in parts]) for server in (1, 2, 3)}
    assert np.array_equal(restore(total), np.sum(vectors, axis=0))


@given(VECTORS)
def test_the_field_holds_what_is_near_zero(vector: Ints) -> None:
    assert np.array_equal(from_field(to_field(vector)), vector)


@pytest.mark.parametrize("entry", [0, 1, 10**6])
@pytest.mark.parametrize("server", [1, 2, 3])
def test_one_share_is_uniform(entry: int, server: int) -> None:
    share = shares_of(np.full(20_000, entry), bytes([server]) * 32)[server]
    assert kstest(share.astype(np.float64) / PRIME, "uniform").pvalue > FALSE_ALARM


def test_that_check_would_catch_shares_of_few_bits() -> None:
    leaky = np.full(20_000, 1000) + expand(bytes(32), 20_000) % 2**40
    assert kstest(leaky / PRIME, "uniform").pvalue < FALSE_ALARM


def test_three_shares_off_a_line_are_refused() -> None:
    shares = shares_of(np.array([1, 2]), bytes(32))
    shares[2] = add([shares[2], to_field(np.array([0, 1]))])
    with pytest.raises(InvalidInputError, match="do not lie on a line"):
        restore(shares)


@pytest.mark.parametrize("held", [{}, {1: expand(bytes(32), 1)}, {0: expand(bytes(32), 1)}])
def test_one_share_restores_nothing(held: dict[int, Field]) -> None:
    with pytest.raises(InvalidInputError, match="two or three servers"):
        restore(held)


def test_a_number_that_would_wrap_is_refused() -> None:
    for beyond in ([LARGEST + 1], [0, -LARGEST - 1]):
        with pytest.raises(InvalidInputError, match="too large"):
            to_field(np.array(beyond))
    assert from_field(to_field(np.array([LARGEST, -LARGEST]))).tolist() == [LARGEST, -LARGEST]


@given(st.lists(st.tuples(st.integers(0, PRIME - 1), st.integers(0, PRIME - 1)), min_size=1))
def test_products_are_those_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    one, other = (np.array(each, np.uint64) for each in zip(*pairs, strict=True))
    assert times(one, other).tolist() == [a * b % PRIME for a, b in pairs]
