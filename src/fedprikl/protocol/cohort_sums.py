"""What all secure sums of cohorts have in common, whoever is trusted."""

from dataclasses import dataclass, field
from functools import cache

from fedprikl.checks import Ints
from fedprikl.protocol.plan import Plan
from fedprikl.secure_sum import Degree, choose_degree

__all__ = ["Noised", "OpenedSum", "cohort_degree", "expected_records"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSum:
    """SECRET: what one cohort, or several of a batch, sum to."""

    counts: Ints = field(repr=False)  # of the asked points
    views: Ints = field(repr=False)  # of the cells of all views, one after the other
    records: int = field(repr=False)
    noise_variance: float = 0.0  # of the clients' own noise on each count
    insecure: bool = False  # whether any client's noise is not from a secure source

    def __add__(self, other: "OpenedSum") -> "OpenedSum":
        return OpenedSum(
            self.counts + other.counts,
            self.views + other.views,
            self.records + other.records,
            self.noise_variance + other.noise_variance,
            self.insecure or other.insecure,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Noised:
    """What the noise made of the sums of a round: final numbers, and all that leaves the sums.

    Public. Numbers of records have no noise: they are public anyway.
    """

    records: tuple[int, ...]  # of each batch
    values: tuple[float, ...] = ()  # of the questions that numbers answer, in order
    counts: tuple[float, ...] = ()  # of the points, then of the rest of each batch
    views: tuple[tuple[float, ...], ...] = ()  # of the cells of each view, then of its rest
    vectors: tuple[tuple[float, ...], ...] = ()  # of divergences: one number per view
    variances: tuple[float, ...] = ()  # of the clients' own noise on each count, by batch
    insecure: bool = False  # whether any of the noise is not from a secure source


def expected_records(plan: Plan, included: int, *, said: int) -> int:
    """The records of a cohort of so many clients: known, if each contributes equally many.

    Else what the clients say together, as far as it is possible.
    """
    if plan.per_client is not None:
        return plan.per_client * included
    return min(said, plan.most_records * included)


def cohort_degree(plan: Plan, clients: int, *, complete: bool) -> Degree:
    """How many neighbours each client of a cohort has, and how many of them reveal its mask."""
    return _degree(clients, plan.dropout, plan.corruption, complete)


@cache
def _degree(clients: int, dropout: float, corruption: float, complete: bool) -> Degree:
    return choose_degree(clients, dropout=dropout, corruption=corruption, complete=complete)
