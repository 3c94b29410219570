"""A round: who is asked what, and in which cohort. Made by the server; all of it is public."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fedprikl.checks import Ints
from fedprikl.documents import canonical, parse_document
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import SharedMechanism, calibrate_shared
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.protocol.sealing import Address
from fedprikl.reference import QueryPoints
from fedprikl.secure_sum import DEFAULT_FAILURE, NONCE_BYTES, Degree, SumPlan, choose_degree

__all__ = [
    "LARGEST_MARK",
    "Cohort",
    "Invitation",
    "Round",
    "cohort_sizes",
    "entry_maxima",
    "noise_share",
    "plan_cohort",
    "smallest_cohort",
    "sum_nonce",
]


LARGEST_MARK = 2**32  # of insecure noise
FIELDS = {"round", "signed", "cohort", "batch", "index", "cells", "sums"}  # of an invitation


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
    points: QueryPoints
    cohorts: tuple[Cohort, ...]

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

    @classmethod
    def to_member(cls, this: Round, cohort: Cohort, index: int) -> "Invitation":
        """The invitation of one member of a cohort."""
        cells = tuple(cohort.cells.tolist())
        return cls(
            this.round_id, this.signed, cohort.number, cohort.batch, index, cells, cohort.sums
        )

    def address(self, step: str) -> Address:
        """Where the answer of a step belongs: to this invitation, whole, and to no other.

        It travels in the open. A relay that changes any of it gets letters that do not open.
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
        sums = self.sums
        return canonical(
            {
                "round": self.round_id,
                "signed": self.signed.to_dict(),
                "cohort": self.cohort,
                "batch": self.batch,
                "index": self.index,
                "cells": list(self.cells),
                "sums": {
                    "nonce": sums.nonce.hex(),
                    "clients": sums.clients,
                    "neighbours": sums.neighbours,
                    "threshold": sums.threshold,
                    "minimum": sums.minimum,
                    "maxima": list(sums.maxima),
                    "roster": [key.hex() for key in sums.roster],
                },
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Invitation":
        """The invitation in a message; anything else is refused."""
        document = parse_document(data, "invitation")
        if set(document) != FIELDS:
            raise InvalidInputError("This invitation cannot be used: its fields are not the usual.")
        try:
            sums: dict[str, Any] = dict(document["sums"])
            return cls(
                round_id=_text(document["round"]),
                signed=SignedPlan.from_dict(document["signed"]),
                cohort=_whole(document["cohort"]),
                batch=_whole(document["batch"]),
                index=_whole(document["index"]),
                cells=tuple(_whole(cell) for cell in document["cells"]),
                sums=SumPlan(
                    nonce=bytes.fromhex(sums.pop("nonce")),
                    maxima=tuple(sums.pop("maxima")),
                    roster=tuple(bytes.fromhex(key) for key in sums.pop("roster")),
                    **sums,
                ),
            )
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            detail = str(error) if isinstance(error, InvalidInputError) else "a field is malformed."
            raise InvalidInputError(f"This invitation cannot be used: {detail}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(value)
    return value


def noise_share(plan: Plan, *, clients: int, minimum: int) -> SharedMechanism | None:
    """The noise each client adds without a trusted aggregator; None where the aggregator does.

    A sum can be opened with `minimum` inputs, of which a share `corruption` of the cohort may
    collude and subtract its own noise: the rest must suffice. At least one share is discounted:
    whoever takes part knows its own and sees the release.
    """
    if plan.estimator != "baseline":
        return None
    honest = minimum - max(1, int(np.ceil(plan.corruption * clients)))
    if honest < 1:
        raise InvalidInputError(
            f"Of {minimum} inputs none would be honest for certain. Use larger cohorts, or a "
            "smaller corruption."
        )
    sparse = _plan_degree(plan, clients).neighbours < clients - 1
    return calibrate_shared(
        epsilon=plan.epsilon,
        delta=plan.delta,
        shares=honest,
        kind=plan.noise,
        failure=DEFAULT_FAILURE if sparse else 0.0,  # a complete graph leaves nothing to chance
    )


def entry_maxima(plan: Plan, points: int, share: SharedMechanism | None) -> tuple[int, ...]:
    """The largest value of each entry of a client's vector.

        counts of the points, number of records                           trusted aggregator
        noised counts of the points and of the rest, records, insecure    noise in shares

    Exact counts have twice the room they need: the aggregator folds impossible sums back into what
    is possible (`possible_counts`), and folding takes a ring twice as large. Noise may be
    negative, so noised entries are shifted up by its reach. `insecure` is a random number from 1
    for a client whose noise is not from a secure source, and 0 for all others: whoever wants to
    cancel the mark of another has to guess it.
    """
    if share is None:
        return (2 * plan.most_records,) * points + (plan.most_records,)
    return (plan.most_records + 2 * share.reach,) * (points + 1) + (plan.most_records, LARGEST_MARK)


def cohort_sizes(plan: Plan, members: int) -> list[int]:
    """How many clients each cohort of a batch of so many members has: nearly equal."""
    size = members // max(1, round(members / plan.cohort))
    groups = max(1, members // max(size, 3))
    return [members // groups + (n < members % groups) for n in range(groups)]


def plan_cohort(
    plan: Plan,
    clients: int,
    points: int,
    nonce: bytes = bytes(NONCE_BYTES),
    roster: Sequence[bytes] = (),
) -> SumPlan:
    """The secure sum of one cohort, as the plan demands it: a client computes the same.

    `nonce` is the sum's own, from `sum_nonce`; sizes do not depend on it.

    """
    degree = _plan_degree(plan, clients)
    least = degree.threshold + 1
    minimum = max(least, int(np.floor((1 - plan.dropout) * clients)))
    share = noise_share(plan, clients=clients, minimum=minimum)
    return SumPlan(
        nonce=nonce,
        clients=clients,
        neighbours=degree.neighbours,
        threshold=degree.threshold,
        minimum=minimum if share else least,
        maxima=entry_maxima(plan, points, share),
        roster=tuple(roster),
    )


def sum_nonce(plan: Plan, round_id: str, *, cohort: int, batch: int, cells: Sequence[int]) -> bytes:
    """The nonce of a cohort's secure sum: it stands for all that its members are asked.

    Members who were asked different things (another plan, other cells, another batch) have
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
    return hashlib.sha256(b"fedprikl/round/2/" + canonical(asked)).digest()


def _plan_degree(plan: Plan, clients: int) -> Degree:
    """How many neighbours each client has.

    Where nobody is trusted, neither is whoever gives the clients their places. Only in a
    complete graph is no place surrounded by colluders.
    """
    alone = plan.estimator == "baseline" and plan.roster != ""
    return _degree(clients, plan.dropout, plan.corruption, alone)


@cache
def _degree(clients: int, dropout: float, corruption: float, complete: bool) -> Degree:
    return choose_degree(clients, dropout=dropout, corruption=corruption, complete=complete)


def smallest_cohort(plan: Plan, roster: int) -> int:
    """The fewest clients of a cohort, of a roster of so many, that may rely on each other's noise.

    Up to a share `corruption` of a cohort may collude. Whoever deals the cohorts could deal all
    colluders to one client; so a cohort is the whole roster, but for as many as may vanish.
    """
    if plan.estimator != "baseline":
        return 3
    return max(3, int(np.floor((1 - plan.dropout) * roster)))
