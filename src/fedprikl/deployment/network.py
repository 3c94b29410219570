"""What a deployment needs of a network: who is there, who they are, and a transport for a round."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedprikl.protocol import Reply, Transport

__all__ = ["Envelope", "Network"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What travels between the host of a round and a site, either way. The relay sees it."""

    round_id: str  # or the challenge of an identity check
    message: bytes = b""  # to the host: sealed, or the proof of an identity
    refusal: str = ""  # in the open, so never about the site's records


class Network(Protocol):
    """The sites of a federation, as the host reaches them. It is not trusted."""

    def nodes(self) -> list[str]:
        """The nodes that are connected now, by the network's own names, sorted."""
        ...

    def identify(
        self, challenge: str, nodes: Sequence[str], enough: Callable[[], bool]
    ) -> Iterable[Reply]:
        """Sends every node the challenge of an identity check; the replies as they come."""
        ...

    def check_run(self) -> None:
        """Raises if the run that the host works on has been stopped."""
        ...

    def transport(self, round_id: str) -> Transport:
        """What carries the messages of one round."""
        ...
