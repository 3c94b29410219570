"""Drawing: exactly k records of a client, in one pass and in bounded memory.

Every record gets a random key of 64 bits, and those with the k smallest keys are drawn: a uniform
draw without replacement. Two keys are equal once in 2^64 / r^2 draws or so of r records; the draw
is then of k records all the same, so that privacy never rests on the keys.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedprikl.checks import Ints, check_positive_int
from fedprikl.errors import InvalidInputError

__all__ = ["Draw", "Randomness", "Sample"]

KEY_BYTES = 8
Randomness = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a client contributes where the unit of privacy is the client: k records, always.

    Of r records, a client draws

        r >= k    k of them, without replacement
        r <  k    each floor(k / r) times, and k mod r of them once more, without replacement
        r =  0    k records of the reference, or nothing if `empty` is "away"

    so that the counts of every client sum to k, whatever it holds. For r < k this has less sampling
    noise than k draws with replacement. A record that cannot be read is a record.

    >>> len(set(Draw(20).places(800).tolist()))  # of 800 records, 20 different ones
    20
    >>> sorted(Draw(6).places(3).tolist())  # each of three records twice
    [0, 0, 1, 1, 2, 2]
    """

    records: int  # k
    empty: Literal["reference", "away"] = "reference"  # what a client without records does
    randomness: Randomness = field(default=os.urandom, repr=False)  # another one for tests only

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        if self.empty not in ("reference", "away"):
            raise InvalidInputError(
                "A client without records takes part with draws of the 'reference' or stays "
                f"'away', got {self.empty!r:.40}."
            )

    def sample(self, width: int) -> "Sample":
        """An empty sample of rows of whole numbers."""
        return Sample(self.records, width, self.randomness)

    def places(self, number: int) -> Ints:
        """Which of `number` records are drawn: k places; none if there are no records."""
        sample = self.sample(1)
        sample.offer(number, lambda places: places[:, None])
        return sample.drawn()[:, 0]


class Sample:
    """The rows with the k smallest keys so far. Memory: k rows, and the keys of one chunk."""

    def __init__(self, records: int, width: int, randomness: Randomness) -> None:
        self._records, self._randomness = records, randomness
        self._keys = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros((0, width), dtype=np.int64)

    def offer(self, number: int, read: Callable[[Ints], Ints]) -> None:
        """Takes up some more records; `read` makes the rows of those whose keys are small enough.

        It is called with their places from 0, in order.
        """
        fresh = np.frombuffer(self._randomness(KEY_BYTES * number), dtype=np.uint64)
        keys, held = np.concatenate([self._keys, fresh]), len(self._keys)
        kept = np.arange(len(keys))
        if len(keys) > self._records:
            kept = np.sort(np.argpartition(keys, self._records - 1)[: self._records])
        old, new = kept[kept < held], kept[kept >= held] - held
        self._keys = keys[kept]
        self._rows = np.concatenate([self._rows[old], read(new)])

    def drawn(self) -> Ints:
        """Exactly k rows; none if no record was offered.

        In the order of their keys and, if they are fewer than k, again and again in that order: so
        those that are drawn once more than others have the smallest keys.
        """
        if not len(self._keys):
            return self._rows
        order = np.argsort(self._keys, kind="stable")
        return self._rows[np.resize(order, self._records)]
