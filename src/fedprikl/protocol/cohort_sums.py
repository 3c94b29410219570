"""What all secure sums of cohorts have in common, whoever is trusted."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score, Skew, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.plan import Plan
from fedprikl.reference import Reference, Spread, View
from fedprikl.secure_sum import Degree, choose_degree


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
    if plan.unit.kind == "client":
        return plan.unit.records * included
    return min(said, plan.sums.most_records * included)


def cohort_degree(plan: Plan, clients: int, *, complete: bool) -> Degree:
    """How many neighbours each client of a cohort has, and how many of them reveal its mask."""
    return _degree(clients, plan.sums.dropout, plan.sums.corruption, complete)


@cache
def _degree(clients: int, dropout: float, corruption: float, complete: bool) -> Degree:
    return choose_degree(clients, dropout=dropout, corruption=corruption, complete=complete)


def asked_views(plan: Plan, reference: Reference) -> tuple[View, ...]:
    """The reference's views that a plan asks about, in the plan's order."""
    return tuple(reference.views[i] for i in view_places(plan, reference))


def view_places(plan: Plan, reference: Reference) -> list[int]:
    """Where the asked columns stand among the views of the reference."""
    places = {view.columns: place for place, view in enumerate(reference.views)}
    if not all(asked.columns in places for asked in plan.columns):
        raise InvalidInputError("The plan asks about columns that the reference does not have.")
    found = [places[asked.columns] for asked in plan.columns]
    if [reference.views[place].size for place in found] != [each.points for each in plan.columns]:
        raise InvalidInputError("The plan asks for another number of counts than a column has.")
    return found


def view_score(divergence: str) -> Score:
    """Of a view's counts: everybody's, so they need no correction; no step is limited."""
    found = divergence_named(divergence)
    return Score(Skew(found.skew), found, correction=0.0)


def split_views(plan: Plan, counts: Ints, *, more: int = 0) -> list[Ints]:
    """The counts of each view, with `more` entries after the cells of each."""
    ends = np.cumsum([view.points + more for view in plan.columns], dtype=np.int64)
    return np.split(counts, ends[:-1]) if plan.columns else []


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


def spread_of(plan: Plan, reference: Reference, outcomes: Iterable[Outcome]) -> float | Spread:
    """How counts vary without drift: by the plan, or by the reference for who was counted."""
    if plan.verdict.design_effect is not None:
        return plan.verdict.design_effect
    clients = [0] * plan.sums.batches
    for outcome in outcomes:
        clients[outcome.batch] += outcome.included
    return reference.whole.spread(clients=clients)
