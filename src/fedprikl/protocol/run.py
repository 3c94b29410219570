"""The whole algorithm on one page: every party, every message, in one process.

    1. the server draws the points of each batch and deals the clients into cohorts
    2. every client checks its invitation, or refuses
    3. each cohort runs a secure sum of (counts of the points, number of records)
    4. the aggregator charges the ledger, opens the sums, scores, adds noise, signs
    5. the server receives the release, and nothing else                    [alg:sys_tagg]

Steps 2 and 3 are the round driver's (`aggregator.py`), over a transport. A deployment brings its
own transport; the parties and the driver are the same.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedprikl.errors import InvalidInputError, PolicyRefusal, ReleaseRefused, SecureSumError
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol.aggregator import Aggregator, RoundDriver, StepCount
from fedprikl.protocol.client import NO_ROOM, Client, ClientSession
from fedprikl.protocol.keys import SMALLEST, SigningKey
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.protocol.release import Release
from fedprikl.protocol.report_vector import report_points
from fedprikl.protocol.round import (
    Cohort,
    Reply,
    Round,
    Step,
    Transport,
    deal,
    plan_cohort,
    sum_nonce,
)
from fedprikl.protocol.server_round import ThreeServers
from fedprikl.protocol.sums import trust_of, view_places
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves


class Server:
    """Draws the points, deals the clients into batches and cohorts, checks the release.

    Holds: Pi, the plan, the points. May never see: an un-noised sum or score.
    """

    def __init__(self, signed: SignedPlan, reference: Reference) -> None:
        if signed.plan.reference != reference.fingerprint:
            raise InvalidInputError(
                "The plan is about another reference than the one that is given. Give the "
                "reference that the plan was made with, or plan again."
            )
        self._signed = signed
        self._reference = reference

    @property
    def plan(self) -> Plan:
        """What the parties agreed on."""
        return self._signed.plan

    def open_round(
        self,
        clients: Sequence[str],
        *,
        rng: np.random.Generator,
        randomness: Callable[[int], bytes],
        identities: Mapping[str, bytes] | None = None,
        together: Sequence[Sequence[str]] = (),
        period: int | None = None,
    ) -> Round:
        """A fresh round for the named clients. `rng` draws the points and deals: all public.

        `identities` are their public keys, used if the plan names a roster. `together` are the
        cohorts of an earlier round over the same people, in order: they stay together, because the
        differences between sums over changing groups tell more and more about single clients.
        `period` is the one of the plan's series that is counted.
        """
        plan, known = self._signed.plan, identities or {}
        self._check_clients(clients, known)
        self._check_asked(period)
        round_id, points, cohorts = randomness(16).hex(), None, []
        cells = np.zeros(0, dtype=np.int64)
        if plan.trust == "servers":
            points = report_points(plan, self._reference, period or 0)
        elif plan.points:
            points = trust_of(plan).draw_points(self._reference.probabilities, rng)
        for number, (batch, members) in enumerate(deal(plan, clients, together, rng)):
            if points is not None:
                cells = points.cells[points.batch == batch]
            nonce = sum_nonce(
                plan, round_id, cohort=number, batch=batch, cells=cells.tolist(), period=period
            )
            roster = [known[name] for name in members] if plan.roster else ()
            sums = plan_cohort(plan, clients=len(members), nonce=nonce, roster=roster)
            cohorts.append(Cohort(number, batch, tuple(members), cells, sums))
        return Round(round_id, self._signed, points, tuple(cohorts), self._reference, period)

    def _check_clients(self, clients: Sequence[str], identities: Mapping[str, bytes]) -> None:
        plan = self.plan
        if len(set(clients)) < len(clients):
            raise InvalidInputError("A client is named twice.")
        if len(clients) < SMALLEST * plan.sums.batches:
            raise InvalidInputError(
                f"{len(clients)} clients are too few for {plan.sums.batches} batches: a secure sum "
                f"needs at least {SMALLEST}. Use fewer batches."
            )
        if plan.roster and not identities.keys() >= set(clients):
            raise InvalidInputError(
                "The plan names a roster, so every client needs its identity. Run the round where "
                "the clients have theirs, or plan without a roster."
            )

    def _check_asked(self, period: int | None) -> None:
        view_places(self.plan, self._reference)  # all of them exist
        if self.plan.points and not self._reference.joint:
            raise InvalidInputError(
                "The reference has columns only, and the plan asks about the whole. Plan again."
            )
        when, cells = self.plan.when, int(np.count_nonzero(self._reference.whole.mass))
        if when.kind == "once":
            if period is not None:
                raise InvalidInputError("The plan has no series, so it has no periods.")
            return
        if period is None:
            raise InvalidInputError(
                "The plan is for a series of releases, one per period. Run what is due with "
                "`fedprikl monitor`."
            )
        when.period(period)
        if self.plan.points and self.plan.points != cells:
            raise InvalidInputError(
                f"The plan asks for {self.plan.points:,} of {cells:,} cells. A series asks for all "
                "of them, so that counts add up over time. Plan again."
            )

    def accept(self, current: Round, message: bytes, *, aggregator: str) -> Release:
        """The release of a round, if the aggregator made it and it is about this very plan."""
        release = Release.from_bytes(message)
        if not release.is_signed_by(aggregator):
            raise InvalidInputError("The release is not signed by the aggregator.")
        if release.round_id != current.round_id or not release.is_about(current.plan):
            raise InvalidInputError("The release belongs to another round or plan.")
        return release


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
        if step is Step.ADVERTISE:
            self._sessions.clear()  # of a cohort that is done
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


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """What a round ends with. Public."""

    round: Round
    release: Release
    refusals: dict[str, str]  # client -> why it took no part
    counted: frozenset[str] = frozenset()  # clients whose counts were sent


def run_round(
    server: Server,
    clients: Mapping[str, Client],
    *,
    key: SigningKey,
    ledger: Ledger | None,
    software: str,
    at: str,
    rng: np.random.Generator,
    transport: Transport | None = None,
    leaves: Mapping[str, Leaves] | None = None,
    randomness: Callable[[int], bytes] = os.urandom,
    source: NoiseSource = SECURE_NOISE,
    report: Callable[[StepCount], None] = lambda _: None,
    period: int | None = None,
    previous: str = "",
    no_client: str = "",
    lost: int | None = None,
    begin: Callable[[Round], None] = lambda _: None,
    keep: Callable[[RoundResult], None] = lambda _: None,
) -> RoundResult:
    """One round over real secure sums. `leaves` says which clients vanish before which message.

    With three servers there is one message of each client; `lost` is a server that is lost then.

    In a series, `period` is counted, and `previous` is the fingerprint of the release before.
    `begin` is told the round before anything is sent, `keep` the result before the ledger closes
    the round: who writes both down knows after a crash which rounds never ended, and has every
    release that the ledger calls released. A round that ended in between `finish_round` finishes.

    `no_client` says for the privacy statement what becomes of rows without an id, where the clients
    are the ids of one table.

    Another `transport` carries the messages of the same clients; who leaves is then its affair.
    """
    if transport is not None and server.plan.aggregator:
        raise InvalidInputError(
            "The plan names an aggregator's key, so answers that travel are sealed to it. Drive "
            "the round with `RoundDriver(round, aggregator, key)`, or plan without `aggregator`."
        )
    identities = {n: who.identity for n, who in clients.items() if who.identity is not None}
    current = server.open_round(
        sorted(clients), rng=rng, randomness=randomness, identities=identities, period=period
    )
    aggregator = Aggregator(
        current,
        key=key,
        ledger=ledger,
        software=software,
        source=source,
        previous=previous,
        no_client=no_client,
        keep=lambda message: keep(result(message)),
    )
    aggregator.check_budget()

    def result(message: bytes) -> RoundResult:
        release = server.accept(current, message, aggregator=key.public)
        return RoundResult(current, release, driver.refusals, frozenset(counted))

    begin(current)
    driver: RoundDriver | ThreeServers
    if server.plan.trust == "servers":
        driver, counted = ThreeServers(current, aggregator, source=source, lost=lost), set[str]()
        absent = [name for name, when in (leaves or {}).items() if when <= Leaves.BEFORE_INPUT]
        driver.collect(clients, at=at, absent=absent)
        counted = driver.counted
    else:
        driver, counted = RoundDriver(current, aggregator), set()
        steps = (
            driver.drive(transport)
            if transport
            else _cohort_by_cohort(
                driver, len(current.cohorts), InMemoryTransport(clients, at=at, leaves=leaves)
            )
        )
        for count in steps:
            if count.step is Step.INPUT:
                counted |= driver.answered
            report(count)
    try:
        message = driver.release(at=at, rng=rng)
    except ReleaseRefused as error:
        raise ReleaseRefused(f"{error}{_refused(driver.refusals)}") from None
    return result(message)


def _cohort_by_cohort(
    driver: RoundDriver, cohorts: int, transport: Transport
) -> Iterator[StepCount]:
    """All steps of one cohort, then of the next: only its clients' messages are in memory."""
    for number in range(cohorts):
        yield from driver.drive(transport, number)


def _refused(refusals: Mapping[str, str]) -> str:
    if not refusals:
        return ""
    first = next(iter(refusals.values()))
    advice = " Plan again with a larger most_records." if first == NO_ROOM else ""
    return f" {len(refusals)} clients refused, the first because: {first}.{advice}"
