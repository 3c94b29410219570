"""Vectors split for three servers, so that any two restore a sum and one alone learns nothing.

Every entry is the height at 0 of a line over the integers modulo the prime 2^61 - 1:

    f(0) = entry,    f(1) = random,    f(i) = f(0) + i (f(1) - f(0)),    i = 1, 2, 3

Server i holds f(i), which is uniform whatever the entry is. Shares of many vectors add up to shares
of their sum: the protocol adds them, and nothing else is done to them. The random share is sent as
the seed of a stream. These are the shares that MPyC uses for three parties (Shamir 1979, degree 1).
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError

PRIME = 2**61 - 1
SERVERS = (1, 2, 3)
SEED_BYTES = 32
ENTRY_BYTES = 8
LARGEST = PRIME // 2  # entries beyond stand for negative numbers
_SPARE = 8  # words for those that are left out: each is with probability 2^-61

Field: TypeAlias = npt.NDArray[np.uint64]  # numbers below PRIME
_PRIME = np.uint64(PRIME)


def expand(seed: bytes, entries: int) -> Field:
    """Uniform numbers below 2^61 - 1, from the AES-256-CTR stream of a one-time key.

    Eight bytes each, little endian, without their three highest bits; the number 2^61 - 1 itself is
    left out.

    >>> expand(bytes(32), 2).tolist()
    [687151484705478108, 513556120466507949]
    """
    if len(seed) != SEED_BYTES:
        raise InvalidInputError(f"A seed has {SEED_BYTES} bytes, got {len(seed)}.")
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    words = stream.update(bytes(ENTRY_BYTES * (entries + _SPARE)))
    drawn = np.frombuffer(words, dtype="<u8") & _PRIME
    found: Field = drawn[drawn != _PRIME][:entries].astype(np.uint64)
    return found


def split(vector: Ints, seed: bytes) -> tuple[Field, Field]:
    """SECRET: the shares of servers 2 and 3; that of server 1 is `expand(seed, len(vector))`.

    f(2) = 2 f(1) - f(0),    f(3) = 3 f(1) - 2 f(0)
    """
    return split_field(to_field(vector), seed)


def split_field(entries: Field, seed: bytes) -> tuple[Field, Field]:
    """SECRET: the same of numbers below the prime."""
    random = expand(seed, len(entries))
    low = _PRIME - entries  # -f(0); at most PRIME, so that no sum below reaches 2^64
    return (2 * random + low) % _PRIME, (3 * random + 2 * low) % _PRIME


def times(one: Field, other: Field) -> Field:
    """Products modulo the prime, from limbs of 31 and 30 bits.

        a b = 2^62 ah bh + 2^31 (ah bl + al bh) + al bl,    2^61 = 1

    >>> times(np.array([PRIME - 1], np.uint64), np.array([PRIME - 1], np.uint64)).tolist()
    [1]
    """
    ah, al = one >> np.uint64(31), one & np.uint64(2**31 - 1)
    bh, bl = other >> np.uint64(31), other & np.uint64(2**31 - 1)
    middle = ah * bl + al * bh  # below 2^62
    high, low = middle >> np.uint64(30), middle & np.uint64(2**30 - 1)
    found: Field = (2 * (ah * bh) + high + (low << np.uint64(31)) + al * bl) % _PRIME
    return found


def to_field(vector: Ints) -> Field:
    """Whole numbers, also negative ones, modulo the prime."""
    found = np.asarray(vector, dtype=np.int64)
    if found.size and max(int(found.max()), -int(found.min())) > LARGEST:
        raise InvalidInputError("A number is too large to be shared among three servers.")
    return (found % PRIME).astype(np.uint64)


def from_field(numbers: Field) -> Ints:
    """The whole numbers nearest to 0 that these are modulo the prime."""
    found = numbers.astype(np.int64)
    return np.where(found > LARGEST, found - PRIME, found)


def add(shares: Iterable[Field]) -> Field:
    """The share of a sum, from shares of its terms held by the same server."""
    first, *rest = shares
    total = first.copy()
    for each in rest:
        total += each  # below 2^62
        total %= _PRIME
    return total


def restore(shares: Mapping[int, Field]) -> Ints:
    """The vector, from the shares of two servers; those of all three must lie on a line.

        f(0) = (j f(i) - i f(j)) / (j - i)

    >>> seed, vector = bytes(32), np.array([3, 0, -5])
    >>> two, three = split(vector, seed)
    >>> restore({1: expand(seed, 3), 3: three}).tolist()
    [3, 0, -5]
    """
    if len(shares) < 2 or not set(shares) <= set(SERVERS):
        raise InvalidInputError("A sum is restored from the shares of two or three servers.")
    (i, first), (j, second), *more = sorted(shares.items())
    step = pow(j - i, -1, PRIME)
    # Python's own integers: products of two numbers of 61 bits.
    slope = (second.astype(object) - first.astype(object)) * step % PRIME
    entries = (first.astype(object) - i * slope) % PRIME
    for k, third in more:
        if not np.array_equal((entries + k * slope) % PRIME, third.astype(object)):
            raise InvalidInputError("The shares of the three servers do not lie on a line.")
    return from_field(entries.astype(np.uint64))
