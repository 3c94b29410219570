"""Any t shares give the secret, and fewer say nothing: by exhaustion over the field."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprikl.secure_sum.shamir import (
    LIMBS,
    PRIME,
    all_in_field,
    encode_shares,
    from_limbs,
    lagrange_at_zero,
    reconstruct,
    share,
    to_limbs,
    uniform_coefficients,
)

from .helpers import seeded

secrets = st.binary(min_size=32, max_size=32)


@given(secrets)
@settings(deadline=None)
def test_limbs_are_exact(secret: bytes) -> None:
    limbs = to_limbs(secret)
    assert len(limbs) == LIMBS
    assert from_limbs(limbs) == secret


@given(secrets, st.integers(1, 40), st.integers(0, 30), st.data())
@settings(max_examples=25, deadline=None)
def test_any_threshold_shares_give_the_secret(
    secret: bytes, threshold: int, more: int, data: st.DataObject
) -> None:
    holders = threshold + more
    points = np.asarray(data.draw(st.permutations(range(1, 200))))[:holders]
    shares = share(to_limbs(secret), points, threshold, seeded(data.draw(st.integers(0, 2**32))))
    chosen = data.draw(st.permutations(range(holders)))[:threshold]
    found = reconstruct(points[chosen][None, :], shares[chosen][None, :, :])
    assert from_limbs(found[0]) == secret


def test_largest_points_and_threshold_stay_exact() -> None:
    """The floating-point product is exact: compared with Python's integers at the far end."""
    t = 3000
    points = np.arange(PRIME - t, PRIME)
    words = uniform_coefficients(t - 1, 1, seeded(1))
    shares = share(np.array([PRIME - 1]), points[:3], t, seeded(1))
    for x, found in zip(points[:3].tolist(), shares[:, 0].tolist(), strict=True):
        value = 0
        for coefficient in reversed([PRIME - 1, *words[:, 0].tolist()]):
            value = (value * x + coefficient) % PRIME
        assert found == value


@pytest.mark.parametrize("secret", [0, 1, 32767])
@pytest.mark.parametrize("point", [1, 2, 65520])
def test_one_share_of_two_takes_every_value_once(secret: int, point: int) -> None:
    """Exhaustive: over all 65,521 polynomials, a single share is exactly uniform."""
    every = np.arange(PRIME)
    shares = share(np.full(PRIME, secret), np.array([point]), 2, lambda _: _words(every))
    assert np.array_equal(np.sort(shares[0]), every)


def test_that_check_would_catch_coefficients_that_are_never_zero() -> None:
    """A dealer that avoids the zero coefficient never hands out the secret itself: not uniform."""
    every = np.arange(1, PRIME)
    shares = share(np.full(PRIME - 1, 7), np.array([5]), 2, lambda _: _words(every))
    assert 7 not in shares[0]


def _words(values: "np.typing.NDArray[np.int64]") -> bytes:
    return values.astype("<u2").tobytes()


def test_lagrange_weights_are_those_of_python_integers() -> None:
    points = [3, 7, 65520, 12, 1]
    expected = []
    for j, x in enumerate(points):
        weight = 1
        for m, other in enumerate(points):
            if m != j:
                weight = weight * other * pow(other - x, -1, PRIME) % PRIME
        expected.append(weight)
    assert lagrange_at_zero(np.array([points]))[0].tolist() == expected


def test_words_outside_the_field_are_skipped_in_order() -> None:
    words = np.array([5, PRIME, 6, 65535, 7, 8], dtype="<u2").tobytes()
    pieces = iter([words[:8], words[8:]])
    assert uniform_coefficients(2, 2, lambda _: next(pieces)).ravel().tolist() == [5, 6, 7, 8]


def test_limbs_of_no_secret() -> None:
    for limbs in ([32768] + [0] * 17, [0] * 17 + [2]):
        assert from_limbs(np.array(limbs)) is None


def test_shares_of_fewer_than_threshold_holders_do_not_open() -> None:
    secret = bytes(range(32))
    points = np.arange(1, 6)
    shares = share(to_limbs(secret), points, 3, seeded(2))
    for pair in itertools.combinations(range(5), 2):
        limbs = reconstruct(points[list(pair)][None], shares[list(pair)][None])[0]
        assert limbs.tolist() != to_limbs(secret).tolist()


def test_field_check() -> None:
    good = encode_shares(np.array([[0, PRIME - 1]]))
    assert all_in_field(good)
    assert all_in_field([])
    assert not all_in_field([*good, PRIME.to_bytes(2, "little")])
