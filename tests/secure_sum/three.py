"""Three servers in one process: every message of their computation goes through `Channel`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import numpy as np

from fedprikl.checks import Ints
from fedprikl.secure_sum.line_runtime import Exchange, LineRuntime
from fedprikl.secure_sum.line_shares import SERVERS, Field, expand, split_field, to_field

T = TypeVar("T")


class Randomness:
    """InsecureSeeded bytes, for tests."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, size: int) -> bytes:
        return self._rng.bytes(size)


class Channel:
    """Hands over the messages of each step when all have come; keeps what everybody received."""

    def __init__(self, present: tuple[int, ...] = SERVERS) -> None:
        self.present = present
        self.received: dict[int, list[Mapping[int, bytes]]] = {n: [] for n in present}
        self._steps: list[tuple[asyncio.Event, dict[int, Mapping[int, bytes]]]] = []

    def of(self, server: int) -> Exchange:
        """The channel as this server sees it."""

        async def exchange(sent: Mapping[int, bytes]) -> Mapping[int, bytes]:
            step = len(self.received[server])
            if step == len(self._steps):
                self._steps.append((asyncio.Event(), {}))
            done, messages = self._steps[step]
            messages[server] = sent
            if len(messages) == len(self.present):
                done.set()
            await done.wait()
            found = {n: messages[n][server] for n in self.present if n != server}
            self.received[server].append(found)
            return found

        return exchange


def run_three(
    compute: Callable[[LineRuntime], Awaitable[T]],
    present: tuple[int, ...] = SERVERS,
    channel: Channel | None = None,
    seed: int | None = None,
) -> dict[int, T]:
    """What each present server computes."""
    channel = channel or Channel(present)
    more = {} if seed is None else {"randomness": Randomness(seed)}

    async def everybody() -> list[T]:
        runtimes = (LineRuntime(n, channel.of(n), present, **more) for n in present)
        return await asyncio.gather(*map(compute, runtimes))

    return dict(zip(present, asyncio.run(everybody()), strict=True))


def shares_of(vector: Ints, seed: bytes = bytes(32)) -> dict[int, Field]:
    """One share for each server."""
    two, three = split_field(to_field(vector), seed)
    return {1: expand(seed, len(vector)), 2: two, 3: three}
