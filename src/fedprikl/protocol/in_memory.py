"""The transport of a round in one process: every client is asked in turn, and none is late."""

from collections.abc import Callable, Iterator, Mapping

from fedprikl.errors import PolicyRefusal, SecureSumError
from fedprikl.protocol.client import Client
from fedprikl.protocol.client_session import ClientSession
from fedprikl.protocol.transport import Reply, Step
from fedprikl.secure_sum import Leaves

__all__ = ["InMemoryTransport"]


class InMemoryTransport:
    """Hands messages to the clients themselves. Nobody is in between, so nothing is sealed.

    `at` is the clients' time; `leaves` says who vanishes before sending which message.
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        *,
        at: str,
        leaves: Mapping[str, Leaves] | None = None,
    ) -> None:
        self._clients, self._at = clients, at
        self._last = {name: when.value for name, when in (leaves or {}).items()}
        self._sessions: dict[str, ClientSession] = {}

    def exchange(
        self, step: Step, messages: Mapping[str, bytes], enough: Callable[[], bool]
    ) -> Iterator[Reply]:
        """The replies; a client that has left, or cannot use its message, gives none."""
        del enough  # nobody is waited for
        for name, message in messages.items():
            try:
                if step is Step.ADVERTISE:
                    self._sessions[name] = self._clients[name].join(message, at=self._at)
                if list(Step).index(step) < self._last.get(name, len(Step)):
                    yield Reply(name, self._sessions[name].answer(step, message))
            except PolicyRefusal as refusal:
                yield Reply(name, refusal=refusal.reason)
            except SecureSumError:
                continue
