"""All cohorts of a round, step by step and side by side. Runs at the aggregator.

`run.py` calls the parties one after the other; a network has every client answer at once, late or
never. The driver says what to send to whom in each step, takes whatever sealed answers come
back, and goes on with those who answered.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.errors import InvalidInputError, SealError, SecureSumError
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.client_session import Step
from fedprikl.protocol.keys import SigningKey, verify_signature
from fedprikl.protocol.outcome import Outcome
from fedprikl.protocol.round import Invitation, Round
from fedprikl.protocol.sealing import Address, SealingKey, seal

__all__ = ["RoundDriver", "StepCount", "seal_answer", "seal_refusal"]

_ANSWER, _REFUSAL = b"\x01", b"\x02"
_HEAD = 5  # the kind, and the length of what follows
_BUCKET = 256  # a letter is a multiple of it; the first step's answer fits one, as does a refusal
_SIGNATURE = 64  # bytes of an Ed25519 signature; zeros where nobody has an identity
_LONGEST_REASON = _BUCKET - _HEAD - _SIGNATURE


def seal_answer(message: bytes, public: str, address: Address) -> bytes:
    """A client's message of a step, as it travels to the aggregator."""
    return seal(_padded(_ANSWER, message), public, address)


def seal_refusal(
    reason: str, public: str, address: Address, identity: SigningKey | None = None
) -> bytes:
    """Why a client takes no part: sealed as well, as the reason may depend on its records.

    All refusals are of one length, that of an answer to the first step, where records matter. With
    an identity it is signed: sealing alone does not say who wrote, and somebody else could keep the
    client out.
    """
    words = reason.encode()[:_LONGEST_REASON]
    signature = bytes(_SIGNATURE)
    if identity is not None:
        signature = bytes.fromhex(identity.sign(_refusal_body(words, address)))
    return seal(_padded(_REFUSAL, signature + words), public, address)


def _refusal_body(words: bytes, address: Address) -> bytes:
    return b"fedprikl/refusal/1/" + address.to_bytes() + words


def _padded(kind: bytes, content: bytes) -> bytes:
    letter = kind + len(content).to_bytes(_HEAD - 1, "little") + content
    return letter + bytes(-len(letter) % _BUCKET)


def _unpadded(letter: bytes) -> tuple[bytes, bytes]:
    """(kind, content); what was not padded like this gives content that no sum accepts."""
    size = int.from_bytes(letter[1:_HEAD], "little")
    return letter[:1], letter[_HEAD : _HEAD + size]


@dataclass(frozen=True, slots=True)
class StepCount:
    """How a step went. Public."""

    step: Step
    asked: int
    answered: int
    refused: int

    @property
    def lost(self) -> int:
        """Clients who did not answer, or with something that could not be used."""
        return self.asked - self.answered - self.refused


class RoundDriver:
    """One round, seen from the transport: for every `Step` in order, `letters`, `take`*, `end`.

    1. `letters(step)` is what to send, by client
    2. `take` opens one sealed answer; what does not belong here is turned away and changes nothing
    3. `end(step)` says how the step went; cohorts that cannot go on are dropped
    4. `release` closes the cohorts and lets the aggregator release
    """

    def __init__(self, this: Round, aggregator: Aggregator, key: SealingKey) -> None:
        if key.public != this.plan.aggregator:
            raise InvalidInputError(
                "The plan names another aggregator's sealing key than this aggregator holds, so "
                "no answer could be read. Plan again with the public key that `fedprikl keys` "
                "prints here, or bring the key that the plan names."
            )
        self._round, self._aggregator, self._key = this, aggregator, key
        self._places = {
            name: (number, index)
            for number, cohort in enumerate(this.cohorts)
            for index, name in enumerate(cohort.members)
        }
        self._addresses = {  # of the first step; the later ones differ in the step only
            name: Invitation.to_member(this, cohort, index).address(Step.ADVERTISE)
            for cohort in this.cohorts
            for index, name in enumerate(cohort.members)
        }
        self._running = set(range(len(this.cohorts)))
        self._awaited: set[str] = set()
        self._asked = self._answered = self._refused = 0
        self.refusals: dict[str, str] = {}  # client -> why it takes no part any more
        self.confided: set[str] = set()  # those of them who told this aggregator alone
        self.outcomes: dict[int, Outcome] = {}  # of cohorts that have ended

    def letters(self, step: Step) -> dict[str, bytes]:
        """What to send in this step, by client; ends the one before for every cohort."""
        found: dict[str, bytes] = {}
        for number in sorted(self._running):
            cohort = self._round.cohorts[number]
            try:
                letters = self._of_cohort(number, step)
            except SecureSumError as error:
                self._drop(number, str(error))
                continue
            found |= {cohort.members[index]: letter for index, letter in letters.items()}
        self._awaited = set(found)
        self._asked, self._answered, self._refused = len(found), 0, 0
        return found

    def _of_cohort(self, number: int, step: Step) -> dict[int, bytes]:
        this, cohort = self._round, self._round.cohorts[number]
        sums = self._aggregator.sums[number]
        next_letters: dict[Step, Callable[[], dict[int, bytes]]] = {
            Step.ADVERTISE: lambda: {
                index: Invitation.to_member(this, cohort, index).to_bytes()
                for index in range(len(cohort.members))
            },
            Step.SHARE: sums.send_keys,
            Step.INPUT: sums.send_shares,
            Step.ECHO: sums.send_survivors,
            Step.REVEAL: sums.send_echoes,
        }
        return next_letters[step]()

    def take(self, step: Step, client: str, letter: bytes) -> bool:
        """Whether this is the client's answer to this step, and the first one; if so it is used."""
        if client not in self._awaited:
            return False
        number, index = self._places[client]
        address = replace(self._addresses[client], step=step)
        try:
            kind, content = _unpadded(self._key.open(letter, address))
            if kind == _REFUSAL:
                return self._take_refusal(client, content, address)
            self._aggregator.sums[number].receive(index, content)
        except (SealError, SecureSumError):
            return False  # the sum keeps what it rejected, and why
        self._awaited.discard(client)
        self._answered += 1
        return True

    def _take_refusal(self, client: str, content: bytes, address: Address) -> bool:
        """Whether the client itself refuses; among known clients, it has signed the words."""
        number, index = self._places[client]
        signature, words = content[:_SIGNATURE], content[_SIGNATURE:]
        roster = self._round.cohorts[number].sums.roster
        if roster and not verify_signature(
            roster[index].hex(), signature.hex(), _refusal_body(words, address)
        ):
            return False
        self.confided.add(client)
        self.refuse(client, words.decode(errors="replace"))
        return True

    def refuse(self, client: str, reason: str) -> None:
        """Notes that a client takes no part; its words are cut and kept printable."""
        if client in self._awaited:
            self._refused += 1
            self.lose(client, reason)

    def lose(self, client: str, reason: str) -> None:
        """Waits no longer for a client, of which the transport knows that it failed."""
        if client in self._awaited:
            self._awaited.discard(client)
            self.refusals[client] = "".join(
                c if c.isprintable() else " " for c in reason[:_LONGEST_REASON]
            )

    @property
    def waiting(self) -> int:
        """Clients whose answer to this step is still out."""
        return len(self._awaited)

    @property
    def can_spare_the_rest(self) -> bool:
        """Whether no more clients are missing than the plan expects to vanish."""
        return self.waiting <= self._round.plan.dropout * len(self._places)

    def end(self, step: Step) -> StepCount:
        """How the step went; who has not answered is left out of the round."""
        self._awaited = set()
        return StepCount(step, self._asked, self._answered, self._refused)

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """Opens the sums of all cohorts that came through; the signed release."""
        for number in sorted(self._running):
            self.outcomes[number] = self._aggregator.close(number, at=at)
        self._running = set()
        return self._aggregator.release(at=at, rng=rng)

    def _drop(self, number: int, reason: str) -> None:
        self._running.discard(number)
        self.outcomes[number] = self._aggregator.drop(number, reason)
