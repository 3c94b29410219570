"""Reed-Solomon decoding finds every wrong share, up to half of those to spare."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.checks import Ints
from fedprikl.secure_sum.shamir import LIMBS, PRIME, fitting, share, to_limbs

from .helpers import seeded


def shares_of(points: Ints, threshold: int, seed: int) -> Ints:
    random = seeded(seed)
    return share(to_limbs(random(32)), points, threshold, random)


@given(st.integers(1, 40), st.integers(0, 30), st.integers(0, 2**32), st.data())
@settings(max_examples=25, deadline=None)
def test_finds_exactly_the_wrong_shares(
    threshold: int, spare: int, seed: int, data: st.DataObject
) -> None:
    """Each liar is wrong in one limb of its own, or in all."""
    rng = np.random.default_rng(seed)
    points = rng.permutation(np.arange(1, PRIME))[: threshold + spare]
    shares = shares_of(points, threshold, seed)
    wrong = rng.permutation(len(points))[: data.draw(st.integers(0, spare // 2))]
    for place in wrong:
        limb = int(rng.integers(LIMBS)) if data.draw(st.booleans()) else slice(None)
        shares[place, limb] = (shares[place, limb] + rng.integers(1, PRIME)) % PRIME
    found = fitting(points, shares, threshold)
    assert found is not None
    assert set(found.tolist()) == set(range(len(points))) - set(wrong.tolist())


def test_every_pair_of_liars_among_eight_holders() -> None:
    points = np.arange(1, 9)
    for liars in itertools.combinations(range(8), 2):
        shares = shares_of(points, 4, 1)
        shares[list(liars)] = 0
        found = fitting(points, shares, 4)
        assert found is not None
        assert not {*found.tolist()} & {*liars}


def test_the_zero_polynomial_is_one_too() -> None:
    shares = np.zeros((5, LIMBS), dtype=np.int64)
    shares[1] = 7
    found = fitting(np.arange(1, 6), shares, 3)
    assert found is not None
    assert found.tolist() == [0, 2, 3, 4]


def test_random_shares_fit_nothing() -> None:
    rng = np.random.default_rng(1)
    assert fitting(np.arange(1, 21), rng.integers(0, PRIME, (20, LIMBS)), 8) is None
