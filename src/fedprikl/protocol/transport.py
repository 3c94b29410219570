"""The seam between a round and whatever carries its messages.

`RoundDriver` says what to send to whom; a `Transport` delivers it and hands over what comes back.
It needs to know nothing about rounds, and it need not be trusted: answers are sealed and signed
where the plan names an aggregator's key, and a message that is lost, late or changed costs the
round that one client at most.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.protocol.roster import Roster

_LABEL = b"fedprikl/identity/2/"
_KEY_BYTES = 32


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


_CHALLENGE = re.compile("[0-9a-f]{32}")


def _body(challenge: str, name: str) -> bytes:
    return _LABEL + canonical({"challenge": challenge, "name": name})


def introduce(identity: SigningKey, challenge: str, name: str) -> bytes:
    """A client's answer: its public key, and a signature. Public."""
    return bytes.fromhex(identity.public + identity.sign(_body(challenge, name)))


class IdentityCheck:
    """Who of a roster is there. Runs at the server: `take`*, then `identities`."""

    def __init__(
        self, roster: Roster, names: Sequence[str], *, challenge: str, dropout: float
    ) -> None:
        if not _CHALLENGE.fullmatch(challenge):
            raise InvalidInputError("A challenge is 16 fresh random bytes, in hexadecimal digits.")
        self._roster, self._dropout = roster, dropout
        self.names, self._awaited = tuple(names), set(names)
        self.challenge = challenge
        self.identities: dict[str, bytes] = {}  # public key of each name that proved to be known

    @property
    def waiting(self) -> int:
        """Answers that are still out; none once the whole roster is there."""
        return len(self._awaited) if len(self.identities) < len(self._roster) else 0

    def can_spare_the_rest(self) -> bool:
        """Whether no more are missing than the plan expects to vanish."""
        return self.waiting <= self._dropout * len(self.names)

    @property
    def left_out(self) -> int:
        """Names that are silent, unknown, or not who they say."""
        return len(self.names) - len(self.identities)

    def take(self, reply: Reply) -> bool:
        """Whether a reply proves an identity of the roster; the first name that does has it."""
        name, proof = reply.client, reply.message
        if name not in self._awaited:
            return False
        self._awaited.discard(name)
        key, signature = proof[:_KEY_BYTES], proof[_KEY_BYTES:]
        if not self._roster.holds([key]) or key in self.identities.values():
            return False
        if not verify_signature(key.hex(), signature.hex(), _body(self.challenge, name)):
            return False
        self.identities[name] = key
        return True
