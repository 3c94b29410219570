"""The identity check: which transport's name belongs to which identity of the roster.

A round over a network begins with it if the plan names a roster. A client proves its identity by a
signature over a fresh question and the name that it is called by, so that nobody takes another's
place, or keeps it out, by saying its public key. It proves no more: that every message of the round
is the client's own, the secure sum checks by itself.
"""

import re
from collections.abc import Sequence

from fedprikl.documents import canonical
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.protocol.roster import Roster

__all__ = ["IdentityCheck", "introduce"]

_LABEL = b"fedprikl/identity/1/"
_KEY_BYTES = 32
_QUESTION = re.compile("[0-9a-f]{32}")


def _body(question: str, name: str) -> bytes:
    return _LABEL + canonical({"question": question, "name": name})


def introduce(identity: SigningKey, question: str, name: str) -> bytes:
    """A client's answer: its public key, and a signature. Public."""
    return bytes.fromhex(identity.public + identity.sign(_body(question, name)))


class IdentityCheck:
    """Who of a roster is there. Runs at the server: `take`*, then `identities`."""

    def __init__(
        self, roster: Roster, names: Sequence[str], *, question: str, dropout: float
    ) -> None:
        if not _QUESTION.fullmatch(question):
            raise InvalidInputError("A question is 16 fresh random bytes, in hexadecimal digits.")
        self._roster, self._dropout = roster, dropout
        self.names, self._awaited = tuple(names), set(names)
        self.question = question
        self.identities: dict[str, bytes] = {}  # public key of each name that proved to be known

    @property
    def waiting(self) -> int:
        """Answers that are still out; none once the whole roster is there."""
        return len(self._awaited) if len(self.identities) < len(self._roster) else 0

    @property
    def can_spare_the_rest(self) -> bool:
        """Whether no more are missing than the plan expects to vanish."""
        return self.waiting <= self._dropout * len(self.names)

    @property
    def left_out(self) -> int:
        """Names that are silent, unknown, or not who they say."""
        return len(self.names) - len(self.identities)

    def take(self, name: str, letter: bytes) -> bool:
        """Whether this proves an identity of the roster; the first name that does has it."""
        if name not in self._awaited:
            return False
        self._awaited.discard(name)
        key, signature = letter[:_KEY_BYTES], letter[_KEY_BYTES:]
        if not self._roster.holds([key]) or key in self.identities.values():
            return False
        if not verify_signature(key.hex(), signature.hex(), _body(self.question, name)):
            return False
        self.identities[name] = key
        return True

    def lose(self, name: str, _: str = "") -> None:
        """Waits no longer for this one."""
        self._awaited.discard(name)

    refuse = lose
