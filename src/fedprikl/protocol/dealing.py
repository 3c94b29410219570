"""Dealing: which clients form a cohort, and which cohorts a batch. All of it is public."""

from collections.abc import Sequence

import numpy as np

from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes

__all__ = ["deal"]

SMALLEST = 3  # clients of a secure sum


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
    if len(kept) >= plan.batches:
        known = {name for group in kept for name in group}
        new = [name for name in clients if name not in known]
        groups = _with_newcomers(plan, kept, [new[i] for i in rng.permutation(len(new))])
        shares = np.array_split(np.arange(len(groups)), plan.batches)
        return [(batch, groups[i]) for batch, share in enumerate(shares) for i in share.tolist()]
    shuffled = [clients[i] for i in rng.permutation(len(clients))]
    return [
        (batch, group)
        for batch, members in enumerate(_split(shuffled, plan.batches))
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
    if len(new) >= max(plan.cohort, SMALLEST):
        return kept + _split(new, len(cohort_sizes(plan, len(new))))
    for name in new:
        min(kept, key=len).append(name)
    return kept


def _split(items: Sequence[str], parts: int) -> list[list[str]]:
    """Into so many parts of nearly equal size."""
    return [list(part) for part in np.array_split(np.array(items, dtype=object), parts)]
