"""Computing on the shares of three servers: products and comparisons of numbers that nobody sees.

Everything is made of three steps, each one exchange of messages between the servers:

    deal      each dealer splits numbers of its own on lines, and every server gets its shares
    reshare   products of shares lie on parabolas; dealt anew and combined, they lie on lines again
    open      every server sends its shares to all; three shares that lie on no line are refused

This is the protocol of Ben-Or, Goldwasser and Wigderson (1988) for three parties, of which one may
be curious. `deal` and `open` also work for two servers, if one is lost; products need all three.
"""

import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedprikl.errors import InvalidInputError, MessageDecodeError
from fedprikl.secure_sum.line_shares import (
    ENTRY_BYTES,
    PRIME,
    SEED_BYTES,
    SERVERS,
    Field,
    expand,
    restore,
    split_field,
    times,
    to_field,
)

BITS = 61
DEALERS = SERVERS[:2]  # of random bits: one of two is honest
MASK_DELTA = 2.0**-60  # of a comparison: its mask is not uniform, or its multiplier is 0
_PRIME = np.uint64(PRIME)

Found = TypeVar("Found")
Exchange = Callable[[Mapping[int, bytes]], Awaitable[Mapping[int, bytes]]]
"""Sends a message to each of the other servers, and brings one from each, in the same step."""


class Runtime(Protocol):
    """The steps, seen from one server."""

    @property
    def present(self) -> tuple[int, ...]:
        """The servers that take part."""
        ...

    async def deal(self, numbers: Field, dealers: tuple[int, ...]) -> dict[int, Field]:
        """Shares of what each dealer has; who deals nothing gives as many numbers, of any value."""
        ...

    async def reshare(self, products: Field) -> Field:
        """Shares on lines, of products of shares."""
        ...

    async def open(self, share: Field) -> Field:
        """The numbers themselves, below the prime."""
        ...


@dataclass(frozen=True, eq=False)
class LineRuntime:
    """The steps over any channel between the servers, which must be private and authentic.

    SECRET: `randomness` splits what is dealt.
    """

    server: int
    exchange: Exchange
    present: tuple[int, ...] = SERVERS
    randomness: Callable[[int], bytes] = os.urandom

    async def deal(self, numbers: Field, dealers: tuple[int, ...]) -> dict[int, Field]:
        """Of the share of server 1 the seed travels, of the others the numbers."""
        sent, own = dict.fromkeys(self._others, b""), dict[int, Field]()
        if self.server in dealers:
            seed = self.randomness(SEED_BYTES)
            shares = dict(zip(SERVERS[1:], split_field(numbers, seed), strict=True))
            sent = {n: seed if n == 1 else _to_bytes(shares[n]) for n in self._others}
            own = {
                self.server: expand(seed, len(numbers)) if self.server == 1 else shares[self.server]
            }
        received = await self._exchange(sent)
        return own | {n: self._dealt(n, received[n], len(numbers)) for n in dealers if n not in own}

    async def reshare(self, products: Field) -> Field:
        """f(0) = 3 f(1) - 3 f(2) + f(3) of a parabola: the same combination of what is dealt."""
        if self.present != SERVERS:
            raise InvalidInputError("A product needs all three servers, and one is lost.")
        dealt = await self.deal(products, SERVERS)
        return (3 * dealt[1] + 3 * (_PRIME - dealt[2]) + dealt[3]) % _PRIME

    async def open(self, share: Field) -> Field:
        """Refused if the shares of three servers lie on no line: then one of them is wrong."""
        received = await self._exchange(dict.fromkeys(self._others, _to_bytes(share)))
        shares = {n: _from_bytes(n, received[n], len(share)) for n in self._others}
        return to_field(restore(shares | {self.server: share}))

    @property
    def _others(self) -> tuple[int, ...]:
        return tuple(n for n in self.present if n != self.server)

    async def _exchange(self, sent: Mapping[int, bytes]) -> Mapping[int, bytes]:
        received = await self.exchange(sent)
        if set(received) != set(self._others):
            raise MessageDecodeError("A server did not answer in a step of the computation.")
        return received

    def _dealt(self, dealer: int, message: bytes, size: int) -> Field:
        if self.server > 1:
            return _from_bytes(dealer, message, size)
        if len(message) != SEED_BYTES:
            raise MessageDecodeError(f"Server {dealer} sent no seed of {SEED_BYTES} bytes.")
        return expand(message, size)


def _to_bytes(numbers: Field) -> bytes:
    return numbers.astype("<u8").tobytes()


def _from_bytes(sender: int, message: bytes, size: int) -> Field:
    if len(message) == ENTRY_BYTES * size:
        numbers = np.frombuffer(message, dtype="<u8").astype(np.uint64)
        if not np.any(numbers >= _PRIME):
            return numbers
    raise MessageDecodeError(f"Server {sender} did not send {size:,} numbers below the prime.")


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One exchange of a server that computes in this process."""

    sent: Mapping[int, bytes]

    def __await__(self) -> Generator[Mapping[int, bytes], Mapping[int, bytes], Mapping[int, bytes]]:
        return (yield self.sent)


async def in_memory(sent: Mapping[int, bytes]) -> Mapping[int, bytes]:
    """The `Exchange` of servers in one process; `compute_together` carries the messages."""
    return await _Step(sent)


def compute_together(servers: Mapping[int, Coroutine[Any, Any, Found]]) -> dict[int, Found]:
    """What each server finds, all of them in this process, step by step. No event loop is needed.

    >>> async def shout(number):
    ...     return await in_memory({3 - number: b"I am %d" % number})
    >>> compute_together({1: shout(1), 2: shout(2)})
    {1: {2: b'I am 2'}, 2: {1: b'I am 1'}}
    """
    found: dict[int, Found] = {}
    inbox: dict[int, Any] = dict.fromkeys(servers)
    try:
        while len(found) < len(servers):
            sent: dict[int, Mapping[int, bytes]] = {}
            for number, server in servers.items():
                try:
                    sent[number] = server.send(inbox[number])
                except StopIteration as done:
                    found[number] = done.value
            inbox = {n: {o: messages[n] for o, messages in sent.items() if o != n} for n in sent}
    finally:
        for server in servers.values():
            server.close()
    return found


async def multiply(runtime: Runtime, one: Field, other: Field) -> Field:
    """Shares of products."""
    return await runtime.reshare(times(one, other))


async def negative(
    runtime: Runtime, share: Field, randomness: Callable[[int], bytes] = os.urandom
) -> Field:
    """Shares of 1 for numbers above half of the prime, which stand for negative ones, and of 0.

    A number a is negative if 2 a is odd (Nishide and Ohta 2007). With r of 61 random bits,

        m = 2 a + r  is opened,    lsb(2 a) = lsb(m) xor lsb(r) xor [r > m]

    Modulo 2^61 - 1 such an r is uniform unless all of its bits are 1, and then so is m.
    """
    drawn = await _random(runtime, len(share), randomness)
    powers = (np.uint64(1) << np.arange(BITS, dtype=np.uint64))[:, None]
    masked = (2 * share % _PRIME + _sum(times(drawn.bits, powers))) % _PRIME
    opened = await runtime.open(masked)
    larger = await _exceeds(runtime, drawn, opened)
    first = drawn.bits[0]
    either = await multiply(runtime, first, larger)
    odd = (first + larger + 2 * (_PRIME - either)) % _PRIME
    found: Field = np.where(opened & np.uint64(1) == 1, (1 + _PRIME - odd) % _PRIME, odd)
    return found


async def coins(
    runtime: Runtime, chances: Field, randomness: Callable[[int], bytes] = os.urandom
) -> Field:
    """Shares of 1 with these probabilities, in units of 2^-61, else of 0: [r > m] of a random r."""
    drawn = await _random(runtime, len(chances), randomness)
    return await _exceeds(runtime, drawn, np.uint64(2**BITS - 1) - chances)


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Shares of random numbers that no server knows."""

    bits: Field  # (61, size), of r
    sign: Field  # a bit
    factor: Field  # a number below the prime


async def _exceeds(runtime: Runtime, drawn: _Drawn, public: Field) -> Field:
    """Shares of [r > m], for a public m of 61 bits.

    From a product of 62 factors, one of which is 0 if the random sign s says so (Damgard, Geisler
    and Kroigaard 2007),

        e_i = s - m_i + r_i + 3 (bits above i in which m and r differ),    e_61 = s - 1 + 3 (all)

    times a random number: whether it is 0 is opened, and the sign hides what that means.
    """
    bits, sign = drawn.bits, drawn.sign
    known = (public[None] >> np.arange(BITS, dtype=np.uint64)[:, None]) & np.uint64(1)
    above = _above(np.where(known == 1, (1 + _PRIME - bits) % _PRIME, bits))
    signed = (2 * sign + _PRIME - np.uint64(1)) % _PRIME
    each = (signed + (_PRIME - known) + bits + 3 * above[1:]) % _PRIME
    last = (signed + (_PRIME - np.uint64(1)) + 3 * above[0]) % _PRIME
    product = await _product(runtime, np.concatenate([each, last[None]]))
    zero = await runtime.open(await multiply(runtime, product, drawn.factor)) == 0
    found: Field = np.where(zero, (1 + _PRIME - sign) % _PRIME, sign)
    return found


async def _random(runtime: Runtime, size: int, randomness: Callable[[int], bytes]) -> _Drawn:
    """Two servers deal each number: bits are combined by xor, the others added up.

    So no server alone knows any.
    """
    tossed = np.frombuffer(randomness((BITS + 1) * size), np.uint8) & 1
    numbers = np.concatenate([tossed.astype(np.uint64), expand(randomness(SEED_BYTES), size)])
    dealt = await runtime.deal(numbers, DEALERS)
    one, other = (dealt[n] for n in DEALERS)
    ends = (BITS + 1) * size
    both = await multiply(runtime, one[:ends], other[:ends])
    bits = ((one[:ends] + other[:ends] + 2 * (_PRIME - both)) % _PRIME).reshape(BITS + 1, size)
    return _Drawn(bits[:BITS], bits[BITS], (one[ends:] + other[ends:]) % _PRIME)


def _sum(rows: Field) -> Field:
    """The sum of up to 8 rows at a time fits 64 bits."""
    total = np.zeros(rows.shape[1:], np.uint64)
    for start in range(0, len(rows), 4):
        total = (total + rows[start : start + 4].sum(axis=0, dtype=np.uint64)) % _PRIME
    return total


def _above(rows: Field) -> Field:
    """Sums of all rows above each: of all in the first place, of none in the last."""
    found = np.zeros((len(rows) + 1, *rows.shape[1:]), np.uint64)
    for place in reversed(range(len(rows))):
        found[place] = (found[place + 1] + rows[place]) % _PRIME
    return found


async def _product(runtime: Runtime, rows: Field) -> Field:
    """Shares of the products of all rows, by halves."""
    while len(rows) > 1:
        half = len(rows) // 2
        found = await multiply(runtime, rows[:half].ravel(), rows[half : 2 * half].ravel())
        rows = np.concatenate([found.reshape(half, *rows.shape[1:]), rows[2 * half :]])
    product: Field = rows[0]
    return product
