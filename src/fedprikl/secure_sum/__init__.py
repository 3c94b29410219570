"""Secure sums: the aggregator learns the sum of a cohort's vectors and nothing else.

Start with `secure_sum` below, the whole protocol on one page: every message, in order, in one
process. docs/secure-sum.md explains it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum

from fedprikl.checks import Ints
from fedprikl.errors import InvalidInputError
from fedprikl.secure_sum.masking import SEED_BYTES
from fedprikl.secure_sum.sum_aggregator import AggregatorStep, SumAggregator, SumResult
from fedprikl.secure_sum.sum_client import ClientRules, ClientStep, SumClient
from fedprikl.secure_sum.sum_plan import (
    DEFAULT_FAILURE,
    NONCE_BYTES,
    Degree,
    SumPlan,
    choose_degree,
    plan_sum,
)

__all__ = [
    "DEFAULT_FAILURE",
    "NONCE_BYTES",
    "SEED_BYTES",
    "AggregatorStep",
    "ClientRules",
    "ClientStep",
    "Degree",
    "Leaves",
    "SumAggregator",
    "SumClient",
    "SumPlan",
    "SumResult",
    "choose_degree",
    "plan_sum",
    "secure_sum",
]


class Leaves(IntEnum):
    """The message a client does not send any more, nor any after it."""

    BEFORE_ADVERT = 0
    BEFORE_SHARES = 1
    BEFORE_INPUT = 2
    BEFORE_ECHO = 3
    BEFORE_UNMASK = 4


def secure_sum(
    plan: SumPlan,
    inputs: Sequence[Sequence[int] | Ints] | Ints,
    *,
    dropouts: Mapping[int, Leaves] | None = None,
    identities: Sequence[bytes] = (),
    randomness: Callable[[int], bytes] = os.urandom,
) -> SumResult:
    """The sum of the inputs of all clients who stay until their input is sent.

    `inputs[i]` is the vector of client i, `dropouts` says who leaves when, `identities` are
    Ed25519 private keys if the plan has a roster. All parties are the real ones and talk in
    bytes; a deployment replaces the loops by its network.
    """
    if len(inputs) != plan.clients:
        raise InvalidInputError(f"The plan is for {plan.clients} clients, got {len(inputs)}.")
    if identities and len(identities) != plan.clients:
        raise InvalidInputError(f"Pass {plan.clients} identities, one per client, or none.")
    leaves = dropouts or {}
    cohort = range(plan.clients)
    strange = {i: x for i, x in leaves.items() if i not in cohort or not isinstance(x, Leaves)}
    if strange:
        raise InvalidInputError(
            f"`dropouts` maps clients, 0 to {plan.clients - 1}, to `Leaves`; got {strange!r}."
        )
    aggregator = SumAggregator(plan)
    clients = [
        SumClient(plan, i, randomness(SEED_BYTES), identity=identities[i] if identities else None)
        for i in cohort
    ]

    def stay(messages: Mapping[int, bytes], answer: Leaves) -> Iterator[tuple[int, bytes]]:
        """The messages to clients who still send this answer."""
        return ((i, x) for i, x in messages.items() if leaves.get(i, len(Leaves)) > answer)

    start = dict.fromkeys(cohort, b"")
    for i, _ in stay(start, Leaves.BEFORE_ADVERT):
        aggregator.receive(i, clients[i].advertise())
    for i, keys in stay(aggregator.send_keys(), Leaves.BEFORE_SHARES):
        aggregator.receive(i, clients[i].share_keys(keys))
    for i, boxes in stay(aggregator.send_shares(), Leaves.BEFORE_INPUT):
        aggregator.receive(i, clients[i].mask_input(boxes, inputs[i]))
    for i, survivors in stay(aggregator.send_survivors(), Leaves.BEFORE_ECHO):
        aggregator.receive(i, clients[i].echo(survivors))
    for i, echoes in stay(aggregator.send_echoes(), Leaves.BEFORE_UNMASK):
        aggregator.receive(i, clients[i].reveal(echoes))
    return aggregator.unmask()
