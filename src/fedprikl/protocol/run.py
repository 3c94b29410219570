"""The whole algorithm on one page: every party, every message, in one process.

    1. the server draws the points of each batch and deals the clients into cohorts
    2. every client checks its invitation, or refuses
    3. each cohort runs a secure sum of (counts of the points, number of records)
    4. the aggregator charges the ledger, opens the sums, scores, adds noise, signs
    5. the server receives the release, and nothing else                    [alg:sys_tagg]

Steps 2 and 3 are the round driver's (`round_driver.py`), over a transport. A deployment brings its
own transport; the parties and the driver are the same.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedprikl.errors import InvalidInputError, PolicyRefusal, ReleaseRefused, SecureSumError
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.client import NO_ROOM, Client, ClientSession
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.release import Release
from fedprikl.protocol.round import Reply, Round, Step, Transport
from fedprikl.protocol.round_driver import RoundDriver, StepCount
from fedprikl.protocol.server import Server
from fedprikl.secure_sum import Leaves


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
    begin: Callable[[Round], None] = lambda _: None,
    keep: Callable[[RoundResult], None] = lambda _: None,
) -> RoundResult:
    """One round over real secure sums. `leaves` says which clients vanish before which message.

    In a series, `period` is counted, and `previous` is the fingerprint of the release before.
    `begin` is told the round before anything is sent, `keep` the result before the ledger closes
    the round: who writes both down knows after a crash which rounds never ended, and has every
    release that the ledger calls released. A round that ended in between `finish_round` finishes.

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
        keep=lambda message: keep(result(message)),
    )
    aggregator.check_budget()

    def result(message: bytes) -> RoundResult:
        release = server.accept(current, message, aggregator=key.public)
        return RoundResult(current, release, driver.refusals, frozenset(counted))

    begin(current)
    driver, counted = RoundDriver(current, aggregator), set[str]()
    for count in driver.drive(transport or InMemoryTransport(clients, at=at, leaves=leaves)):
        if count.step is Step.INPUT:
            counted |= driver.answered
        report(count)
    try:
        message = driver.release(at=at, rng=rng)
    except ReleaseRefused as error:
        raise ReleaseRefused(f"{error}{_refused(driver.refusals)}") from None
    return result(message)


def _refused(refusals: Mapping[str, str]) -> str:
    if not refusals:
        return ""
    first = next(iter(refusals.values()))
    advice = " Plan again with a larger most_records." if first == NO_ROOM else ""
    return f" {len(refusals)} clients refused, the first because: {first}.{advice}"
