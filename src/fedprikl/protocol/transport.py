"""The seam between a round and whatever carries its messages.

`RoundDriver` says what to send to whom; a `Transport` delivers it and hands over what comes back.
It needs to know nothing about rounds, and it need not be trusted: answers are sealed and signed
where the plan names an aggregator's key, and a message that is lost, late or changed costs the
round that one client at most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = ["Reply", "Step", "Transport"]


class Step(StrEnum):
    """The exchanges of a round, in order; the first brings the invitation."""

    ADVERTISE = "advertise"
    SHARE = "share"
    INPUT = "input"
    ECHO = "echo"
    REVEAL = "reveal"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from one client: one of the three is set. Nothing here is trusted."""

    client: str
    message: bytes = b""  # its answer, sealed where the plan names an aggregator's key
    refusal: str = ""  # why it takes no part, told in the open: never about its records
    lost: str = ""  # in the transport's own words, why no answer will come


class Transport(Protocol):
    """Carries one step of a round to the clients and back.

    See docs/extending.md for a whole transport in one file.
    """

    def exchange(
        self, step: Step, messages: Mapping[str, bytes], enough: Callable[[], bool]
    ) -> Iterable[Reply]:
        """Delivers each client its message and yields the replies as they come.

        Returns when all are in, or when it has waited long enough. `enough()` says whether the
        round can go on without those who are still out; from then on it should wait only a little
        longer. A client that did not reply is left out of the round.
        """
        ...
