"""Who takes part in a round: batches, the cohorts they consist of, and clients who leave."""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Ints, check_finite, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.simulation.population import GONE, deal_clients

__all__ = ["Turnout", "deal_round"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Turnout:
    """The batch and the cohort of each client of one round.

    A cohort is one secure sum; a batch is a set of cohorts asked the same points. So batches may
    be as large as the population without a huge secure sum.
    """

    batch: Ints  # t of each client; GONE if its counts reach no sum
    cohort: Ints  # of each client, numbered through over all batches
    batches: int  # T

    @property
    def clients(self) -> int:
        """How many clients' counts are summed."""
        return int(np.count_nonzero(self.batch != GONE))


def deal_round(
    clients: int,
    *,
    batches: int,
    rng: np.random.Generator,
    cohort: int = 100,
    dropout: float = 0.0,
    quorum: float = 2 / 3,
) -> Turnout:
    """Deals clients into batches, batches into cohorts of at most `cohort`, and lets some leave.

    Each client leaves with probability `dropout`. A cohort of which fewer than `quorum` remain
    cannot be opened, so all its counts are lost, as in a real secure sum.
    """
    check_positive_int(cohort, "cohort")
    if (
        not 0 <= check_finite(dropout, "dropout") < 1
        or not 0 <= check_finite(quorum, "quorum") <= 1
    ):
        raise InvalidInputError(
            f"The dropout rate must be from 0 to below 1 and the quorum from 0 to 1, got {dropout} "
            f"and {quorum}."
        )
    batch = deal_clients(clients, batches, rng)
    of_cohort, sizes = _cut(batch, batches, cohort)
    stays = rng.random(clients) >= dropout
    needed = np.array([math.ceil(quorum * size) for size in sizes])
    opened = np.bincount(of_cohort[stays], minlength=len(sizes)) >= needed
    heard = stays & opened[of_cohort]
    return Turnout(batch=np.where(heard, batch, GONE), cohort=of_cohort, batches=batches)


def _cut(batch: Ints, batches: int, cohort: int) -> tuple[Ints, list[int]]:
    """The cohort of each client: every batch in equal parts of at most `cohort` clients."""
    of_cohort = np.empty_like(batch)
    sizes: list[int] = []
    for t in range(batches):
        members = np.flatnonzero(batch == t)
        for part in np.array_split(members, math.ceil(len(members) / cohort)):
            of_cohort[part] = len(sizes)
            sizes.append(len(part))
    return of_cohort, sizes
