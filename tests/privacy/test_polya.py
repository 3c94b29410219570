"""The table of Polya variables is exact to its stated distance; its draws follow it."""

import hashlib
import math
import os
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedprikl import InsecureSeededNoise, InvalidInputError
from fedprikl.checks import Floats, Ints
from fedprikl.privacy import SecureNoise
from fedprikl.privacy.noise import PolyaTable, polya_reach, polya_table, tail_bits
from tests.false_alarm import FALSE_ALARM
from tests.privacy.polya_exactly import masses, share_probabilities, summed

pytestmark = pytest.mark.slow

CASES = [(2.0, 1), (2.0, 7), (20.0, 2800), (0.1, 3), (0.004, 5)]


def stream(seed: bytes) -> Callable[[int], bytes]:
    """Repeatable random bytes."""
    calls: Iterator[int] = iter(range(10**9))
    return lambda size: hashlib.shake_256(seed + next(calls).to_bytes(8, "little")).digest(size)


@pytest.mark.parametrize(("scale", "shares"), CASES)
def test_the_table_is_the_distribution_by_another_method(scale: float, shares: int) -> None:
    """Every threshold against Gamma functions in 320 digits; what is cut off, against its bound."""
    table = polya_table(scale, shares)
    with mpmath.workdps(320):
        p, r = mpmath.exp(-1 / mpmath.mpf(scale)), 1 / mpmath.mpf(shares)
        below, variation = mpmath.mpf(0), mpmath.mpf(0)
        for k, mass in enumerate(masses(table)[:-1]):
            true = mpmath.rf(r, k) / mpmath.factorial(k) * p**k * (1 - p) ** r
            below += true
            variation += abs(true - mpmath.mpf(mass) / 2**table.bits)
            assert abs(below - mpmath.mpf(table.thresholds[k]) / 2**table.bits) < (
                mpmath.mpf(2) ** (1 - table.bits)
            )
        tail = 1 - below  # P(X >= reach): it is drawn as reach
        assert tail * p < mpmath.mpf(2) ** -tail_bits(scale)  # so P(X > reach) is less still
        assert variation + tail * p < mpmath.mpf(2) ** (1 - tail_bits(scale))
    assert len(table.thresholds) == polya_reach(scale)


@pytest.mark.parametrize(("scale", "shares"), [(2.0, 1), (2.0, 7), (5.0, 40), (0.3, 3)])
def test_the_shares_add_up_to_the_discrete_laplace(scale: float, shares: int) -> None:
    total = summed(share_probabilities(polya_table(scale, shares)), shares)
    k = np.arange(len(total)) - len(total) // 2
    expected = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-12)


def test_a_draw_inverts_the_distribution_function() -> None:
    table, entropy = polya_table(3.0, 4), stream(b"draw")(8 * 500)
    drawn = table.draw(500, lambda size: entropy[:size])
    words = [int.from_bytes(entropy[i : i + 8], "little") for i in range(0, 4000, 8)]
    expected = [bisect_right(table.thresholds, word << (table.bits - 64)) for word in words]
    assert drawn.tolist() == expected
    assert len(set(expected)) > 5


def in_words(value: int) -> Callable[[int], bytes]:
    """Random bytes that spell a number of 128 bits, upper word first."""
    words = iter([value >> 64, value % 2**64])
    return lambda size: next(words).to_bytes(size, "little")


def test_a_tie_in_the_first_word_is_settled_by_the_rest() -> None:
    """Thresholds that share their first 64 bits, drawn just below, at, and just above each."""
    upper = 12345
    thresholds = ((upper << 64) + 10, (upper << 64) + 20, ((upper + 1) << 64) + 5)
    words = np.array([t >> 64 for t in thresholds], dtype=np.uint64)
    table = PolyaTable(128, thresholds, words)
    found = []
    for value in ((upper << 64) + 9, *thresholds, ((upper + 1) << 64) + 4, upper << 64, 0):
        found.append(int(table.draw(1, in_words(value))[0]))
    assert found == [0, 1, 2, 3, 2, 0, 0]


def fits(draws: Ints, probabilities: Floats) -> bool:
    """Chi-square at a false-alarm rate of 1e-9; values that are expected less than 50 times, for
    which the rate would not be right, are pooled.
    """
    middle = len(probabilities) // 2
    seen = np.bincount(draws + middle, minlength=len(probabilities))
    expected = probabilities * len(draws)
    rare = expected < 50
    seen = np.append(seen[~rare], seen[rare].sum())
    expected = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    expected *= seen.sum() / expected.sum()
    return bool(stats.chisquare(seen, expected).pvalue > FALSE_ALARM)


@pytest.mark.parametrize("source", [SecureNoise(), InsecureSeededNoise(2)], ids=repr)
@pytest.mark.parametrize(("scale", "shares"), [(2.0, 1), (2.0, 5), (4.0, 300)])
def test_drawn_shares_have_their_probabilities(source: Any, scale: float, shares: int) -> None:
    draws = source.laplace_share(200_000, scale=scale, shares=shares)
    assert fits(draws, share_probabilities(polya_table(scale, shares)))


@pytest.mark.parametrize(("scale", "shares"), [(1.8, 5), (2.0, 6)])
def test_that_check_would_catch_a_little_less_noise(scale: float, shares: int) -> None:
    """Not once in 1e20 (noncentral chi-square)."""
    draws = SecureNoise().laplace_share(200_000, scale=scale, shares=shares)
    assert not fits(draws, share_probabilities(polya_table(2.0, 5)))


def test_the_secure_source_uses_the_systems_randomness_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 bytes for each of two variables per entry, and neither numpy's nor Python's generator."""
    asked: list[int] = []
    system = os.urandom

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("not a secure generator")

    def count(size: int) -> bytes:
        asked.append(size)
        return system(size)

    names = [n for n in dir(np.random) if callable(getattr(np.random, n)) and n[0].islower()]
    for name in names:
        monkeypatch.setattr(np.random, name, refuse)
    for name in ("random", "randbytes", "getrandbits", "randrange", "choice"):
        monkeypatch.setattr(random, name, refuse)
    monkeypatch.setattr(os, "urandom", count)
    with pytest.raises(AssertionError, match="secure"):
        np.random.default_rng(0)
    assert len(SecureNoise().laplace_share(500, scale=2.0, shares=10)) == 500
    assert asked == [8000]


def test_two_draws_differ() -> None:
    """Equal by chance with a probability below 1e-100."""
    draws = [SecureNoise().laplace_share(1000, scale=2.0, shares=2).tolist() for _ in range(2)]
    assert draws[0] != draws[1]


@pytest.mark.parametrize(
    ("scale", "shares", "words"),
    [
        (0.001, 5, "from 0.004"),
        (1e6, 5, "Use Gaussian"),
        (math.nan, 5, "finite"),
        (2.0, 0, "at least 1"),
        (2.0, 2**40, "at most"),
    ],
)
def test_bad_input_says_what_to_do(scale: float, shares: int, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        polya_table(scale, shares)
