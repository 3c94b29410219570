"""A round: who is asked what, in which cohort and in which steps. All of it is public.

`RoundDriver` says what to send to whom; a `Transport` delivers it and hands over what comes back.
It needs to know nothing about rounds, and it need not be trusted: answers are sealed and signed
where the plan names an aggregator's key, and a message that is lost, late or changed costs the
round that one client at most.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import canonical, parse_document, read_exactly, to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.keys import SMALLEST, Address, Roster, SigningKey, verify_signature
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.protocol.sums import trust_of
from fedprikl.reference import QueryPoints, Reference
from fedprikl.secure_sum import NONCE_BYTES, SumPlan

_IDENTITY = b"fedprikl/identity/2/"
_KEY_BYTES = 32
_CHALLENGE = re.compile("[0-9a-f]{32}")
INDEX = re.compile(rb',"index":(0|[1-9][0-9]{0,8}),')  # a quote in a text would have a backslash


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """The clients of one secure sum; all of one batch."""

    number: int  # in its round
    batch: int
    members: tuple[str, ...]
    cells: Ints  # the points of the batch
    sums: SumPlan


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One run of the protocol."""

    round_id: str
    signed: SignedPlan
    points: QueryPoints | None  # of the joint domain; None: only columns are asked
    cohorts: tuple[Cohort, ...]
    reference: Reference  # the plan's
    period: int | None = None  # of the plan's series

    @property
    def plan(self) -> Plan:
        """What the parties agreed on."""
        return self.signed.plan


@dataclass(frozen=True, slots=True, eq=False)
class Invitation:
    """What a client is asked: server -> client. Public."""

    round_id: str
    signed: SignedPlan
    cohort: int  # its number in the round
    batch: int
    index: int  # the client's number in its cohort
    cells: tuple[int, ...]
    sums: SumPlan
    period: int | None = None  # of the plan's series: only its records are counted

    @classmethod
    def to_member(cls, current: Round, cohort: Cohort, index: int) -> "Invitation":
        """The invitation of one member of a cohort."""
        about, cells = (cohort.number, cohort.batch, index), tuple(cohort.cells.tolist())
        return cls(current.round_id, current.signed, *about, cells, cohort.sums, current.period)

    @classmethod
    def to_members(cls, current: Round, cohort: Cohort) -> dict[int, bytes]:
        """The messages to all members of a cohort: they differ in `index` only."""
        before, _, after = INDEX.split(cls.to_member(current, cohort, 0).to_bytes())
        members = range(len(cohort.members))
        return {index: b'%b,"index":%d,%b' % (before, index, after) for index in members}

    def address(self, step: str) -> Address:
        """Where the answer of a step belongs: to this invitation, whole, and to no other.

        It travels in the open. A relay that changes any of it gets answers that do not open.
        """
        return Address(
            round_id=self.round_id,
            cohort=self.sums.round_id,
            member=self.index,
            invitation=hashlib.sha256(self.to_bytes()).digest(),
            step=step,
        )

    def to_bytes(self) -> bytes:
        """As it travels."""
        return canonical(to_plain(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Invitation":
        """The invitation in a message; anything else is refused."""
        try:
            return read_exactly(cls, parse_document(data, "invitation"), "invitation")
        except (InvalidInputError, OverflowError) as error:
            raise InvalidInputError(f"This invitation cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cohort ended: its counts are in the sum of its batch, or it was dropped. Public.

    >>> Outcome(batch=0, clients=9, included=8)
    Outcome(batch=0, clients=9, included=8, reason='')
    """

    batch: int
    clients: int
    included: int  # clients whose counts are in the sum; 0 if the cohort was dropped
    reason: str = ""  # why it was dropped


def cohort_sizes(plan: Plan, members: int) -> list[int]:
    """How many clients each cohort of a batch of so many members has: nearly equal.

    Reports to three servers are one sum.
    """
    if plan.trust == "servers":
        return [members]
    size = members // max(1, round(members / plan.sums.cohort))
    groups = max(1, members // max(size, 3))
    return [members // groups + (n < members % groups) for n in range(groups)]


def deal(
    plan: Plan,
    clients: Sequence[str],
    together: Sequence[Sequence[str]],
    rng: np.random.Generator,
) -> list[tuple[int, list[str]]]:
    """The batch and the members of each cohort.

    At random where nobody was dealt before. Clients who were `together` in an earlier round stay
    together; newcomers form cohorts of their own if they are enough for one, and join the smallest
    cohorts if not. With fewer earlier cohorts than batches, all are dealt anew.
    """
    kept = _kept(clients, together)
    if len(kept) >= plan.sums.batches:
        known = {name for group in kept for name in group}
        new = [name for name in clients if name not in known]
        groups = _with_newcomers(plan, kept, [new[i] for i in rng.permutation(len(new))])
        shares = np.array_split(np.arange(len(groups)), plan.sums.batches)
        return [(batch, groups[i]) for batch, share in enumerate(shares) for i in share.tolist()]
    shuffled = [clients[i] for i in rng.permutation(len(clients))]
    return [
        (batch, group)
        for batch, members in enumerate(_split(shuffled, plan.sums.batches))
        for group in _split(members, len(cohort_sizes(plan, len(members))))
    ]


def _kept(clients: Sequence[str], together: Sequence[Sequence[str]]) -> list[list[str]]:
    """The earlier cohorts without those who are gone; what is left of a tiny one joins another."""
    present = set(clients)
    groups = [[name for name in group if name in present] for group in together]
    large = [group for group in groups if len(group) >= SMALLEST]
    if not large:
        return []
    for group in groups:
        if len(group) < SMALLEST:
            min(large, key=len).extend(group)
    return large


def _with_newcomers(plan: Plan, kept: list[list[str]], new: list[str]) -> list[list[str]]:
    if len(new) >= max(plan.sums.cohort, SMALLEST):
        return kept + _split(new, len(cohort_sizes(plan, len(new))))
    for name in new:
        min(kept, key=len).append(name)
    return kept


def _split(items: Sequence[str], parts: int) -> list[list[str]]:
    """Into so many parts of nearly equal size."""
    return [list(part) for part in np.array_split(np.array(items, dtype=object), parts)]


def plan_cohort(
    plan: Plan, *, clients: int, nonce: bytes = bytes(NONCE_BYTES), roster: Sequence[bytes] = ()
) -> SumPlan:
    """The secure sum of one cohort, as the plan demands it: a client computes the same.

    `nonce` is the sum's own, from `sum_nonce`; a sum that is never run, to see what it costs, needs
    none. `roster` are the clients' identities, if the plan names a roster.
    """
    trust = trust_of(plan)
    degree = trust.degree(clients)
    return SumPlan(
        nonce=nonce,
        clients=clients,
        neighbours=degree.neighbours,
        threshold=degree.threshold,
        minimum=trust.minimum(clients),
        maxima=trust.maxima(clients),
        roster=tuple(roster),
    )


def sum_nonce(
    plan: Plan,
    round_id: str,
    *,
    cohort: int,
    batch: int,
    cells: Sequence[int],
    period: int | None = None,
) -> bytes:
    """The nonce of a cohort's secure sum: it stands for all that its members are asked.

    Members who were asked different things (another plan, period, cells or batch) have
    different sums, so their masks do not cancel and their messages are foreign to each other.
    Otherwise a lying server could ask one client for the real cells and all others for cells that
    nobody holds, and the sum would be that one client's counts.
    """
    asked = {
        "plan": plan.fingerprint,
        "round": round_id,
        "cohort": cohort,
        "batch": batch,
        "cells": [int(cell) for cell in cells],
    }
    if period is not None:
        asked["period"] = period
    return hashlib.sha256(b"fedprikl/round/2/" + canonical(asked)).digest()


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


def _body(challenge: str, name: str) -> bytes:
    return _IDENTITY + canonical({"challenge": challenge, "name": name})


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
