"""The aggregator: opens cohort sums, scores them, adds noise, and lets one release out.

`RoundDriver` takes it through the steps of a round: the only place where they are. For every
`Step`, of all cohorts side by side or of one, it says what to send to whom, takes whatever answers
the transport brings, and goes on with those who answered. A client may be late, silent or lie; it
is left out, and a cohort that cannot go on is dropped.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedprikl.errors import InvalidInputError, ReleaseRefused, SealError, SecureSumError
from fedprikl.libraries import opendp
from fedprikl.privacy import SECURE_NOISE, Charge, Ledger, LedgerRound, NoiseSource
from fedprikl.protocol.answering import Noised, noise_sums, points_of
from fedprikl.protocol.keys import (
    LONGEST_REASON,
    REFUSAL,
    Address,
    SealingKey,
    SigningKey,
    refusal_words,
    unpadded,
)
from fedprikl.protocol.noised_round import NoisedRound, state_of
from fedprikl.protocol.round import Invitation, Outcome, Reply, Round, Step, Transport
from fedprikl.protocol.sums import OpenedSum, trust_of
from fedprikl.secure_sum import SumAggregator

LATER = "Start another round when more clients can take part."
ENDED = "This round has ended: it has released, or its budget was given back. Start a new one."


class Aggregator:
    """One round, seen from the aggregator. It learns cohort sums, never a client's counts.

    1. `sums[i]` is the `SumAggregator` of cohort i; the transport feeds it
    2. `close(i)` reserves the budget, opens the sum and adds it to its batch, or drops the cohort
       and says why; that depends on who answered, never on the sum
    3. `release` adds the noise, keeps the noised numbers in the ledger, and signs what follows from
       them; the object is then spent

    Holds: cohort sums. Sends: one noised, signed release. What it holds never prints.
    """

    def __init__(
        self,
        current: Round,
        *,
        key: SigningKey,
        ledger: Ledger | None,
        software: str,
        source: NoiseSource = SECURE_NOISE,
        request: str = "",
        previous: str = "",
        no_client: str = "",
        keep: Callable[[bytes], None] = lambda _: None,
        everybody: bool = False,
    ) -> None:
        self._round, self._key, self._ledger = current, key, ledger
        self._trust = trust_of(current.plan)
        self._software, self._source, self._request = software, source, request
        self._keep = keep  # takes the signed release before the ledger closes the round
        self._everybody = everybody  # no release without all cohorts, and all of their clients
        self._no_client = no_client  # what becomes of rows without an id, for the statement
        self._previous = previous  # fingerprint of the release before this one, in a series
        self.sums = tuple(SumAggregator(cohort.sums) for cohort in current.cohorts)
        self.outcomes: dict[int, Outcome] = {}  # of cohorts that have ended
        self._batches: dict[int, OpenedSum] = {}  # SECRET: of batches with an opened sum
        self._reservation: LedgerRound | None = None
        self._counted: set[str] = set()  # clients whose counts are in the sums
        self._opened = False  # whether any sum was opened
        self._spent = False

    def __repr__(self) -> str:
        return f"<Aggregator of round {self._round.round_id[:8]}, {len(self.sums)} cohorts>"

    def close(self, number: int, *, at: str) -> Outcome:
        """Ends a cohort: its sum joins the batch, or the cohort is dropped with a reason.

        The budget is reserved before the first sum is opened. Once one is open it stays charged.
        """
        self._check_open(number)
        cohort = self._round.cohorts[number]
        self.reserve(at)
        try:
            result = self.sums[number].unmask()
        except SecureSumError as error:
            return self.drop(number, str(error), at=at)
        self._opened = True
        self._counted |= {cohort.members[index] for index in result.included}
        included = len(result.included)
        opened = self._trust.open(result.total, clients=cohort.sums.clients, included=included)
        before = self._batches.get(cohort.batch)
        self._batches[cohort.batch] = opened if before is None else before + opened
        return self.end(number, included)

    def drop(self, number: int, reason: str, *, at: str = "") -> Outcome:
        """Goes on without a cohort; where all or nothing is asked, the round is over.

        `at` is needed where the budget may have been reserved.
        """
        self._check_open(number)
        outcome = self.end(number, 0, reason)
        self._check_everybody(at)
        return outcome

    def _check_everybody(self, at: str) -> None:
        """Where all or nothing is asked, raises `ReleaseRefused` if anybody is missing."""
        ended = self.outcomes.values()
        missing = sum(each.clients - each.included for each in ended)
        if self._everybody and missing:
            raise ReleaseRefused(
                f"All or nothing was asked (--all), and {missing} clients were lost. Nothing was "
                f"released{self._give_back(at)}"
            )

    def check_shares(self, cohorts: Collection[int]) -> None:
        """Where all or nothing is asked, refuses before anything is charged what cannot be opened.

        A lie that shows only when a sum is opened ends the round later, in `close`.
        """
        for number in cohorts if self._everybody else ():
            try:
                self.sums[number].check_shares()
            except SecureSumError as error:
                self.drop(number, str(error))

    def _check_open(self, number: int) -> None:
        if self._spent:
            raise ReleaseRefused(ENDED)
        if number in self.outcomes:
            raise InvalidInputError(f"Cohort {number} is closed already.")

    def end(self, number: int, included: int, reason: str = "") -> Outcome:
        """How a cohort ended."""
        cohort = self._round.cohorts[number]
        self.outcomes[number] = Outcome(cohort.batch, len(cohort.members), included, reason)
        return self.outcomes[number]

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """The signed release; refuses if a batch is empty.

        `rng` serves the server's debiasing of noisy counts only; it never makes release noise.
        """
        if self._spent:
            raise ReleaseRefused(ENDED)
        missing = [n for n in range(len(self.sums)) if n not in self.outcomes]
        if missing:
            raise ReleaseRefused(f"Cohort {missing[0]} is still open; close or drop it first.")
        self._check_everybody(at)
        batches = range(self._round.plan.sums.batches)
        for t in batches:
            if t not in self._batches or self._batches[t].records == 0:
                advice = self._give_back(at)
                whose = "There are" if len(batches) == 1 else f"Batch {t} has"
                raise ReleaseRefused(
                    f"{whose} no records left: cohorts were dropped or hold nothing. Nothing was "
                    f"released{advice}"
                )
        points = points_of(self._round.plan, self._round.reference, self._round.points)
        sums = [self._batches[t] for t in batches]
        numbers = noise_sums(self._trust, points, sums, source=self._source)
        return self.hand_over(numbers, self._counted, at=at, rng=rng)

    def hand_over(
        self, numbers: Noised, counted: Collection[str], *, at: str, rng: np.random.Generator
    ) -> bytes:
        """The signed release of noised numbers, which the ledger keeps first.

        Exact sums go no further than to whoever noised them. The names of clients that are
        `counted` are for the aggregator's own people.
        """
        self._spent = True
        noised = self._noised(numbers, counted, at, rng)
        head = None
        if self._ledger is not None and self._reservation is not None:
            self._ledger.keep_noised(self._reservation, noised.to_bytes(), at=at)
            head = self._reservation.head
        release = noised.release(self._round.plan, self._round.reference, key=self._key, head=head)
        self._keep(release.to_bytes())
        if self._ledger is not None and self._reservation is not None:
            self._ledger.commit(self._reservation, release_hash=release.fingerprint, at=at)
        return release.to_bytes()

    def _noised(
        self, numbers: Noised, counted: Collection[str], at: str, rng: np.random.Generator
    ) -> NoisedRound:
        current = self._round
        return NoisedRound(
            round_id=current.round_id,
            plan=current.plan.fingerprint,
            period=current.period,
            previous=self._previous,
            request=self._request,
            points=current.points,
            noised=numbers,
            outcomes=tuple(self.outcomes[n] for n in sorted(self.outcomes)),
            asked=tuple(sorted(name for cohort in current.cohorts for name in cohort.members)),
            counted=tuple(sorted(counted)),
            simulation=state_of(rng),
            software=self._software,
            at=at,
            no_client=self._no_client,
        )

    @property
    def _due(self) -> dict[str, Any]:
        """What the release costs, known before any sum is, and of which records."""
        plan, sizes = self._round.plan, [cohort.sums.clients for cohort in self._round.cohorts]
        return {
            "population": plan.population,
            "mechanism": self._trust.charge(sizes),
            "times": plan.charged_times(self._round.period),
            "unit": plan.unit.kind,
        }

    def check_budget(self) -> None:
        """Raises `BudgetExceededError` if the release does not fit; charges nothing."""
        if self._ledger is not None:
            self._ledger.check(**self._due)

    def reserve(self, at: str, mechanism: Charge | None = None) -> None:
        """Charges the budget, once a round, before anything is opened.

        `mechanism` is charged instead of the planned noise, where that is not drawn.
        """
        if self._ledger is None or self._reservation is not None:
            return
        if not self._trust.shares_noise and not self._source.insecure:
            opendp()  # may be missing, and takes longer to load than the noise to draw
        current = self._round
        note = current.plan.charge_note(current.period)
        due = self._due if mechanism is None else self._due | {"mechanism": mechanism}
        self._reservation = self._ledger.reserve(**due, round_id=current.round_id, at=at, note=note)

    def _give_back(self, at: str) -> str:
        """Cancels the reservation of a round in which no sum was ever opened; says what to do."""
        if self._ledger is not None and self._reservation is not None:
            if self._opened:
                return (
                    ", but the budget stays charged, because sums were opened. Check the clients' "
                    "files; another round needs more budget."
                )
            self._spent = True  # what would be opened now, nobody would pay for
            self._ledger.cancel(self._reservation, reason="no sum was opened", at=at)
        return f", and the budget is not charged. {LATER}"


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
        self._round, self.aggregator, self._key = current, aggregator, key
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
        self._awaited: set[str] = set()
        self._lost: set[str] = set()  # clients that the transport reports lost, in the current step
        self.answered: set[str] = set()  # clients whose answer to the latest step was used
        self.refusals: dict[str, str] = {}  # client -> why it takes no part any more
        self.confided: set[str] = set()  # those of them who told this aggregator alone

    def drive(self, transport: Transport, cohort: int | None = None) -> Iterator[StepCount]:
        """Runs the steps in order; after each, how it went. Who has not answered is left out.

        Of all cohorts side by side, or of one of them.
        """
        for step in Step:
            messages = self.messages(step, cohort)
            for reply in transport.exchange(step, messages, self.can_spare_the_rest):
                self.take(step, reply)
            silent = tuple(sorted(self._awaited | self._lost))
            self._awaited = set()
            asked, answered = len(messages), len(self.answered)
            yield StepCount(step, asked, answered, asked - answered - len(silent), silent)

    def release(self, *, at: str, rng: np.random.Generator) -> bytes:
        """Opens the sums of all cohorts that came through; the signed release."""
        self.aggregator.check_shares(self._running())
        for number in self._running():
            self.aggregator.close(number, at=at)
        return self.aggregator.release(at=at, rng=rng)

    def _running(self) -> list[int]:
        """The cohorts that have not ended."""
        cohorts = range(len(self._round.cohorts))
        return [number for number in cohorts if number not in self.aggregator.outcomes]

    @property
    def waiting(self) -> int:
        """Clients whose answer to the current step is still out."""
        return len(self._awaited)

    def can_spare_the_rest(self) -> bool:
        """Whether no more clients are missing than the plan expects to vanish."""
        return self.waiting <= self._round.plan.sums.dropout * len(self._places)

    def messages(self, step: Step, cohort: int | None = None) -> dict[str, bytes]:
        """What to send in a step, by client; ends the one before for every cohort, or for one."""
        found: dict[str, bytes] = {}
        for number in self._running() if cohort is None else {cohort} & {*self._running()}:
            members = self._round.cohorts[number].members
            try:
                messages = self._of_cohort(number, step)
            except SecureSumError as error:
                self.aggregator.drop(number, str(error))
                continue
            found |= {members[index]: message for index, message in messages.items()}
        self._awaited, self.answered, self._lost = set(found), set(), set()
        return found

    def _of_cohort(self, number: int, step: Step) -> dict[int, bytes]:
        current, cohort = self._round, self._round.cohorts[number]
        sums = self.aggregator.sums[number]
        if step is Step.ADVERTISE:
            return Invitation.to_members(current, cohort)
        send = {
            Step.SHARE: sums.send_keys,
            Step.INPUT: sums.send_shares,
            Step.ECHO: sums.send_survivors,
            Step.REVEAL: sums.send_echoes,
        }
        return send[step]()

    def take(self, step: Step, reply: Reply) -> bool:
        """Whether a reply is the client's own to this step, and its first; if so it is used.

        Anything else changes nothing: the client is still awaited.
        """
        if reply.client not in self._awaited:
            return False
        if reply.message:
            return self._take_message(step, reply.client, reply.message)
        if reply.refusal:
            return self._leave_out(reply.client, reply.refusal)
        if reply.lost:
            self._lost.add(reply.client)
            return self._leave_out(reply.client, reply.lost)
        return False

    def _take_message(self, step: Step, client: str, message: bytes) -> bool:
        number, index = self._places[client]
        try:
            if self._key is not None:
                address = replace(self._addresses[client], step=step)
                kind, message = unpadded(self._key.open(message, address))
                if kind == REFUSAL:
                    return self._take_refusal(client, message, address)
            self.aggregator.sums[number].receive(index, message)
        except (SealError, SecureSumError):
            return False  # the sum keeps what it rejected, and why
        self._awaited.discard(client)
        self.answered.add(client)
        return True

    def _take_refusal(self, client: str, content: bytes, address: Address) -> bool:
        """Whether the client itself refuses; among known clients, it has signed the words."""
        number, index = self._places[client]
        roster = self._round.cohorts[number].sums.roster
        words = refusal_words(content, address, roster[index] if roster else None)
        if words is None:
            return False
        self.confided.add(client)
        return self._leave_out(client, words)

    def _leave_out(self, client: str, reason: str) -> bool:
        """Waits no longer for a client; the words are cut and kept printable."""
        self._awaited.discard(client)
        self.refusals[client] = "".join(
            c if c.isprintable() else " " for c in reason[:LONGEST_REASON]
        )
        return True
