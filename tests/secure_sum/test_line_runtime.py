"""Products and comparisons on shares: right for every number, and one server sees uniform ones."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, kstest

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError, MessageDecodeError
from fedprikl.secure_sum.line_runtime import (
    DEALERS,
    LineRuntime,
    compute_together,
    multiply,
    negative,
)
from fedprikl.secure_sum.line_shares import (
    LARGEST,
    PRIME,
    SERVERS,
    Field,
    from_field,
    restore,
    times,
    to_field,
)
from tests.secure_sum.three import Channel, Randomness, run_three, shares_of

FALSE_ALARM = 1e-9
Scheme = Callable[[Any, Field], Coroutine[Any, Any, Field]]
NUMBERS = st.integers(0, PRIME - 1)
SMALL = st.integers(-(10**6), 10**6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_products_are_those_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, dtype=np.uint64).T
    assert times(one, other).tolist() == [a * b % PRIME for a, b in pairs]


@settings(max_examples=20, deadline=None)
@given(st.lists(SMALL, min_size=1, max_size=5), st.integers(0, 2**32))
def test_shares_multiply(numbers: list[int], seed: int) -> None:
    vector = np.array(numbers)
    held = shares_of(vector)
    found = run_three(lambda r: multiply(r, held[r.server], held[r.server]), seed=seed)
    assert np.array_equal(restore(found), vector**2)


@settings(max_examples=20, deadline=None)
@given(st.lists(SMALL | st.integers(-LARGEST, LARGEST), min_size=1, max_size=9), st.integers(0, 99))
def test_signs_are_found(numbers: list[int], seed: int) -> None:
    """Of every number, also of those at the ends of the field."""
    vector = np.array([*numbers, 0, 1, -1, LARGEST, -LARGEST])
    held = shares_of(vector)
    found = run_three(lambda r: negative(r, held[r.server], Randomness(seed + r.server)))
    assert np.array_equal(restore(found), vector < 0)


def test_two_servers_deal_and_open_and_cannot_multiply() -> None:
    vector = np.array([4, -7])
    held = shares_of(vector)

    async def add_ones(runtime: LineRuntime) -> Field:
        dealt = await runtime.deal(to_field(np.ones(2, np.int64)), runtime.present)
        return await runtime.open(sum(dealt.values(), held[runtime.server]) % np.uint64(PRIME))

    for present in ((1, 2), (1, 3), (2, 3)):
        found = run_three(add_ones, present)
        assert all(from_field(each).tolist() == [6, -5] for each in found.values())
    with pytest.raises(InvalidInputError, match="one is lost"):
        run_three(lambda r: multiply(r, held[r.server], held[r.server]), (1, 2))


def test_a_wrong_share_is_noticed_when_it_is_opened() -> None:
    held = shares_of(np.array([5]))
    held[2] = (held[2] + np.uint64(1)) % np.uint64(PRIME)
    with pytest.raises(InvalidInputError, match="lie on a line"):
        run_three(lambda r: r.open(held[r.server]))


@pytest.mark.parametrize("message", [b"", bytes(7), bytes(16), b"\xff" * 8])
def test_messages_that_are_no_numbers_are_refused(message: bytes) -> None:
    async def answers(_: Mapping[int, bytes]) -> Mapping[int, bytes]:
        return {2: message, 3: bytes(8)}

    with pytest.raises(MessageDecodeError, match="Server 2"):
        asyncio.run(LineRuntime(1, answers).open(to_field(np.array([1]))))
    with pytest.raises(MessageDecodeError, match="Server 2 sent no seed"):
        asyncio.run(LineRuntime(1, answers).deal(to_field(np.array([1])), SERVERS))


def test_a_silent_server_is_noticed() -> None:
    async def answers(_: Mapping[int, bytes]) -> Mapping[int, bytes]:
        return {2: bytes(8)}

    with pytest.raises(MessageDecodeError, match="did not answer"):
        asyncio.run(LineRuntime(1, answers).open(to_field(np.array([1]))))


class Watched(LineRuntime):
    """Keeps what is opened."""

    opened: ClassVar[list[Field]] = []

    async def open(self, share: Field) -> Field:
        found = await super().open(share)
        if self.server == 1:
            self.opened.append(found)
        return found


async def leaky_negative(runtime: Watched, share: Field) -> Field:
    """A scheme that opens each number under a mask of 60 bits, where 61 are needed."""
    coins = Randomness(runtime.server)(8 * len(share))
    mask = np.frombuffer(coins, "<u8") % np.uint64(2**59)
    dealt = await runtime.deal(mask.astype(np.uint64), DEALERS)
    return await runtime.open((share + dealt[1] + dealt[2]) % np.uint64(PRIME))


def view_of(server: int, vector: Ints, scheme: Scheme) -> tuple[list[list[int]], list[Field]]:
    """Lengths of all that a server receives while signs are found, and numbers that it sees.

    Those are the numbers in messages between servers, and what is opened.
    """
    channel, held = Channel(), shares_of(vector, os.urandom(32))

    Watched.opened.clear()
    compute_together({n: scheme(Watched(n, channel.of(n)), held[n]) for n in SERVERS})
    received = [list(step.values()) for step in channel.received[server]]
    words = [np.frombuffer(each, "<u8") for step in received for each in step if len(each) > 32]
    return [[len(each) for each in step] for step in received], [*words, *Watched.opened]


def looks_uniform(numbers: Field, false_alarm: float) -> bool:
    """Of all but zeros, which say whether a product is 0: a coin that a random sign tosses."""
    zeros = int(np.count_nonzero(numbers == 0))
    fair = zeros == 0 or binomtest(zeros, len(numbers)).pvalue > false_alarm
    return bool(fair and kstest(numbers[numbers > 0] / PRIME, "uniform").pvalue > false_alarm)


POPULATIONS = np.zeros(150, np.int64), np.arange(150) * 1000 - 60_000


@pytest.mark.parametrize("server", SERVERS)
def test_one_server_sees_the_same_of_any_two_populations(server: int) -> None:
    """Same number of messages, same lengths, uniform numbers.

    False alarms: 1e-9 over all of some 30 messages and openings of each population.
    """
    views = [view_of(server, each, negative) for each in POPULATIONS]
    assert views[0][0] == views[1][0]
    for _, seen in views:
        assert all(looks_uniform(each, FALSE_ALARM / len(seen) / 2) for each in seen)


def test_that_check_would_catch_a_mask_that_is_too_short() -> None:
    _, seen = view_of(3, POPULATIONS[0], leaky_negative)
    assert looks_uniform(seen[0], FALSE_ALARM)
    assert not looks_uniform(seen[-1], FALSE_ALARM)
