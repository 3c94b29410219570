"""Three servers in one process: every message of their computation goes through `Channel`."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import numpy as np

from fedprikl.checks import Ints
from fedprikl.secure_sum.line_runtime import (
    Exchange,
    LineRuntime,
    compute_together,
    in_memory,
)
from fedprikl.secure_sum.line_shares import SERVERS, Field, expand, split_field, to_field

T = TypeVar("T")


class Randomness:
    """InsecureSeeded bytes, for tests."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, size: int) -> bytes:
        return self._rng.bytes(size)


class Channel:
    """Keeps what everybody received."""

    def __init__(self) -> None:
        self.received: dict[int, list[Mapping[int, bytes]]] = {n: [] for n in SERVERS}

    def of(self, server: int) -> Exchange:
        """The channel as this server sees it."""

        async def exchange(sent: Mapping[int, bytes]) -> Mapping[int, bytes]:
            found = await in_memory(sent)
            self.received[server].append(found)
            return found

        return exchange


def run_three(
    compute: Callable[[LineRuntime], Coroutine[Any, Any, T]],
    present: tuple[int, ...] = SERVERS,
    channel: Channel | None = None,
    seed: int | None = None,
) -> dict[int, T]:
    """What each present server computes."""
    channel = channel or Channel()
    more = {} if seed is None else {"randomness": Randomness(seed)}

    return compute_together(
        {n: compute(LineRuntime(n, channel.of(n), present, **more)) for n in present}
    )


def shares_of(vector: Ints, seed: bytes = bytes(32)) -> dict[int, Field]:
    """One share for each server."""
    two, three = split_field(to_field(vector), seed)
    return {1: expand(seed, len(vector)), 2: two, 3: three}
