"""Drives the steps of a round: the only place where they are. Runs at the aggregator.

For every `Step`, all cohorts side by side: say what to send to whom, take whatever answers the
transport brings, and go on with those who answered. A client may be late, silent or lie; it is left
out, and a cohort that cannot go on is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.errors import InvalidInputError, SealError, SecureSumError
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.keys import (
    LONGEST_REASON,
    REFUSAL,
    Address,
    SealingKey,
    is_own_refusal,
    refusal_words,
    unpadded,
)
from fedprikl.protocol.round import Invitation, Outcome, Reply, Round, Step, Transport


@dataclass(frozen=True, slots=True)
class StepCount:
    """How a step went. Public."""

    step: Step
    asked: int
    answered: int
    refused: int
    silent: tuple[str, ...] = ()  # clients who did not answer, or with nothing that could be used

    @property
    def lost(self) -> int:
        """How many of them."""
        return self.asked - self.answered - self.refused


class RoundDriver:
    """One round over a transport: `drive` it through all steps, then `release`.

    With a sealing key, which must be the one that the plan names, only answers that are sealed to
    it are taken. Without one nothing is sealed: that is for a round in one process.
    """

    def __init__(
        self, current: Round, aggregator: Aggregator, key: SealingKey | None = None
    ) -> None:
        if key is not None and key.public != current.plan.aggregator:
            raise InvalidInputError(
                "The plan names another aggregator's sealing key than this aggregator holds, so "
                "no answer could be read. Plan again with the public key that `fedprikl keys` "
                "prints here, or bring the key that the plan names."
            )
        self._round, self._aggregator, self._key = current, aggregator, key
        self._places = {
            name: (number, index)
            for number, cohort in enumerate(current.cohorts)
            for index, name in enumerate(cohort.members)
        }
        self._addresses = {  # of the first step; the later ones differ in the step only
            name: Invitation.to_member(current, cohort, index).address(Step.ADVERTISE)
            for cohort in current.cohorts
            for index, name in enumerate(cohort.members)
            if key is not None
        }
        self._running = set(range(len(current.cohorts)))
        self._awaited: set[str] = set()
        self._refused = 0  # clients, in the current step
        self._lost: set[str] = set()  # clients that the transport reports lost, in the current step
        self.answered: set[str] = set()  # clients whose answer to the latest step was used
        self.refusals: dict[str, str] = {}  # client -> why it takes no part any more
        self.confided: set[str] = set()  # those of them who told this aggregator alone
        self.outcomes: dict[int, Outcome] = {}  # of cohorts that have ended

    def drive(self, transport: Transport) -> Iterator[StepCount]:
        """Runs the steps in order; after each, how it went. Who has not answered is left out."""
        for step in Step:
            messages = self.messages(step)
            for reply in transport.exchange(step, messages, self.can_spare_the_rest):
                self.take(step, reply)
            silent = tuple(sorted(self._awaited | self._lost))
            self._awaited = set()
            yield StepCount(step, len(messages), len(self.answered), self._refused, silent)

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """Opens the sums of all cohorts that came through; the signed release."""
        for number in sorted(self._running):
            self.outcomes[number] = self._aggregator.close(number, at=at)
        self._running = set()
        return self._aggregator.release(at=at, rng=rng)

    @property
    def waiting(self) -> int:
        """Clients whose answer to the current step is still out."""
        return len(self._awaited)

    def can_spare_the_rest(self) -> bool:
        """Whether no more clients are missing than the plan expects to vanish."""
        return self.waiting <= self._round.plan.sums.dropout * len(self._places)

    def messages(self, step: Step) -> dict[str, bytes]:
        """What to send in a step, by client; ends the one before for every cohort."""
        found: dict[str, bytes] = {}
        for number in sorted(self._running):
            members = self._round.cohorts[number].members
            try:
                messages = self._of_cohort(number, step)
            except SecureSumError as error:
                self._running.discard(number)
                self.outcomes[number] = self._aggregator.drop(number, str(error))
                continue
            found |= {members[index]: message for index, message in messages.items()}
        self._awaited, self.answered, self._refused = set(found), set(), 0
        self._lost = set()
        return found

    def _of_cohort(self, number: int, step: Step) -> dict[int, bytes]:
        current, cohort = self._round, self._round.cohorts[number]
        sums = self._aggregator.sums[number]
        match step:
            case Step.ADVERTISE:
                return {
                    index: Invitation.to_member(current, cohort, index).to_bytes()
                    for index in range(len(cohort.members))
                }
            case Step.SHARE:
                return sums.send_keys()
            case Step.INPUT:
                return sums.send_shares()
            case Step.ECHO:
                return sums.send_survivors()
            case Step.REVEAL:
                return sums.send_echoes()

    def take(self, step: Step, reply: Reply) -> bool:
        """Whether a reply is the client's own to this step, and its first; if so it is used.

        Anything else changes nothing: the client is still awaited.
        """
        if reply.client not in self._awaited:
            return False
        if reply.message:
            return self._take_message(step, reply.client, reply.message)
        if reply.refusal:
            self._refuse(reply.client, reply.refusal)
        elif reply.lost:
            self._lost.add(reply.client)
            self._leave_out(reply.client, reply.lost)
        return bool(reply.refusal or reply.lost)

    def _take_message(self, step: Step, client: str, message: bytes) -> bool:
        number, index = self._places[client]
        try:
            if self._key is not None:
                address = replace(self._addresses[client], step=step)
                kind, message = unpadded(self._key.open(message, address))
                if kind == REFUSAL:
                    return self._take_refusal(client, message, address)
            self._aggregator.sums[number].receive(index, message)
        except (SealError, SecureSumError):
            return False  # the sum keeps what it rejected, and why
        self._awaited.discard(client)
        self.answered.add(client)
        return True

    def _take_refusal(self, client: str, content: bytes, address: Address) -> bool:
        """Whether the client itself refuses; among known clients, it has signed the words."""
        number, index = self._places[client]
        roster = self._round.cohorts[number].sums.roster
        if roster and not is_own_refusal(content, address, roster[index]):
            return False
        self.confided.add(client)
        self._refuse(client, refusal_words(content))
        return True

    def _refuse(self, client: str, reason: str) -> None:
        self._refused += 1
        self._leave_out(client, reason)

    def _leave_out(self, client: str, reason: str) -> None:
        """Waits no longer for a client; the words are cut and kept printable."""
        self._awaited.discard(client)
        self.refusals[client] = "".join(
            c if c.isprintable() else " " for c in reason[:LONGEST_REASON]
        )
