"""The identity check: which transport's name belongs to which identity of the roster.

A round over a network begins with it if the plan names a roster. A client proves its identity by a
signature over a fresh challenge and the name that it is called by, so that nobody takes another's
place, or keeps it out, by saying its public key. It proves no more: that every message of the round
is the client's own, the secure sum checks by itself.
"""

import re
from collections.abc import Sequence

from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.protocol.roster import Roster
from fedprikl.protocol.transport import Reply

__all__ = ["IdentityCheck", "introduce"]

_LABEL = b"fedprikl/identity/2/"
_KEY_BYTES = 32
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
