"""The whole algorithm on one page: every party, every message, in one process.

    1. the server draws the points of each batch and deals the clients into cohorts
    2. every client checks its invitation, or refuses
    3. each cohort runs a secure sum of (counts of the points, number of records)
    4. the aggregator charges the ledger, opens the sums, scores, adds noise, signs
    5. the server receives the release, and nothing else                    [alg:sys_tagg]

A deployment replaces the loops by its network; the parties are the same.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from fedprikl.errors import PolicyRefusal, ReleaseRefused, SecureSumError
from fedprikl.privacy import SECURE_NOISE, Ledger, NoiseSource
from fedprikl.protocol.aggregator import Aggregator
from fedprikl.protocol.client import Client
from fedprikl.protocol.keys import SigningKey
from fedprikl.protocol.outcome import Outcome
from fedprikl.protocol.release import Release
from fedprikl.protocol.round import Cohort, Invitation, Round
from fedprikl.protocol.server import Server
from fedprikl.secure_sum import Leaves, SumAggregator

__all__ = ["RoundResult", "run_round"]

Report = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """What a round ends with. Public."""

    round: Round
    release: Release
    outcomes: tuple[Outcome, ...]
    refusals: dict[str, str]  # client -> why it took no part


def run_round(
    server: Server,
    clients: Mapping[str, Client],
    *,
    key: SigningKey,
    ledger: Ledger | None,
    software: str,
    at: str,
    rng: np.random.Generator,
    leaves: Mapping[str, Leaves] | None = None,
    randomness: Callable[[int], bytes] = os.urandom,
    source: NoiseSource = SECURE_NOISE,
    report: Report = lambda _: None,
) -> RoundResult:
    """One round over real secure sums. `leaves` says which clients vanish before which message."""
    identities = {n: each.identity for n, each in clients.items() if each.identity is not None}
    this = server.open_round(sorted(clients), rng=rng, randomness=randomness, identities=identities)
    aggregator = Aggregator(this, key=key, ledger=ledger, software=software, source=source)
    aggregator.check_budget()
    refusals: dict[str, str] = {}
    outcomes = []
    for number, cohort in enumerate(this.cohorts):
        members = _invite(this, cohort, clients, refusals, at)
        try:
            _sum_cohort(aggregator.sums[number], cohort, members, leaves or {})
            outcome = aggregator.close(number, at=at)
        except SecureSumError as error:
            outcome = aggregator.drop(number, str(error))
        outcomes.append(outcome)
        report(outcome)
    try:
        message = aggregator.release(at=at, rng=rng)
    except ReleaseRefused as error:
        raise ReleaseRefused(f"{error}{_refused(refusals)}") from None
    release = server.accept(this, message, aggregator=key.public)
    return RoundResult(this, release, tuple(outcomes), refusals)


def _refused(refusals: Mapping[str, str]) -> str:
    if not refusals:
        return ""
    first = next(iter(refusals.values()))
    return f" {len(refusals)} clients refused, the first because: {first}."


def _invite(
    this: Round,
    cohort: Cohort,
    clients: Mapping[str, Client],
    refusals: dict[str, str],
    at: str,
) -> dict[int, Client]:
    """The members who agree to take part, by their number in the cohort."""
    joined = {}
    for index, name in enumerate(cohort.members):
        try:
            clients[name].join(Invitation.to_member(this, cohort, index).to_bytes(), at=at)
            joined[index] = clients[name]
        except PolicyRefusal as refusal:
            refusals[name] = refusal.reason
    return joined


def _sum_cohort(
    sums: SumAggregator,
    cohort: Cohort,
    members: Mapping[int, Client],
    leaves: Mapping[str, Leaves],
) -> None:
    """The steps of one secure sum, up to the point where it can be opened."""
    last = {i: leaves[name].value for i, name in enumerate(cohort.members) if name in leaves}

    def stay(letters: Mapping[int, bytes], message: Leaves) -> Iterator[tuple[int, bytes]]:
        """The letters to members who still answer with this message."""
        return (
            (i, letter)
            for i, letter in letters.items()
            if i in members and last.get(i, len(Leaves)) > message.value
        )

    def answer(i: int, step: Callable[[bytes], bytes], letter: bytes) -> None:
        """One member's answer; one that refuses or sends damage is left out, as if it had left."""
        with suppress(SecureSumError):  # the aggregator keeps what it rejected, and why
            sums.receive(i, step(letter))

    start = dict.fromkeys(members, b"")
    for i, letter in stay(start, Leaves.BEFORE_ADVERT):
        answer(i, members[i].advertise, letter)
    for i, letter in stay(sums.send_keys(), Leaves.BEFORE_SHARES):
        answer(i, members[i].share_keys, letter)
    for i, letter in stay(sums.send_shares(), Leaves.BEFORE_INPUT):
        answer(i, members[i].mask_input, letter)
    for i, letter in stay(sums.send_survivors(), Leaves.BEFORE_ECHO):
        answer(i, members[i].echo, letter)
    for i, letter in stay(sums.send_echoes(), Leaves.BEFORE_UNMASK):
        answer(i, members[i].reveal, letter)
