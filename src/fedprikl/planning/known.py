"""What a user knows of a federation before any data is touched, and what fits into it."""

import math
from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints, check_probabilities
from fedprikl.errors import InvalidInputError
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.policy import Policy
from fedprikl.protocol.round import cohort_sizes, size_cohort
from fedprikl.reference import Reference, Spread, one_each
from fedprikl.secure_sum import SumPlan

SINGLE, GROUPS = 1024, 1024  # cells that stand for themselves, and groups of the others


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Probabilities above 0, falling, and how many cells have each (nearly)."""

    pi: Floats
    copies: Ints

    @classmethod
    def of(cls, probabilities: Floats) -> "Spectrum":
        """The spectrum of a reference. Cost: a sort."""
        checked = check_probabilities(probabilities, "probabilities")
        falling = np.sort(checked[checked > 0])[::-1]
        if len(falling) <= SINGLE + GROUPS:
            return cls(falling, np.ones(len(falling), np.int64))
        starts = np.concatenate(
            [np.arange(SINGLE), np.linspace(SINGLE, len(falling), GROUPS, endpoint=False)]
        ).astype(np.int64)
        copies = np.diff(starts, append=len(falling))
        return cls(np.add.reduceat(falling, starts) / copies, copies)

    @property
    def cells(self) -> int:
        """Cells with probability above 0."""
        return int(self.copies.sum())

    @property
    def mass(self) -> Floats:
        """Of all cells of each probability."""
        mass: Floats = self.pi * self.copies
        return mass

    def shares(self, points: int, exponent: float) -> Floats:
        """f(x) = min(1, k Pi^exponent) with sum m: `spread_shares` for the spectrum."""
        if points >= self.cells:
            return np.ones(len(self.pi))
        if not 0 <= exponent <= 1:
            raise InvalidInputError(f"The exponent lies between 0 and 1, got {exponent}.")
        sizes = self.pi**exponent  # falling, so those that reach 1 come first
        before = np.concatenate([[0], np.cumsum(self.copies)[:-1]])
        rest = np.cumsum((sizes * self.copies)[::-1])[::-1]
        scale = (points - before) / rest  # if all before are certain and none after
        first = int(np.argmax(scale * sizes < 1))
        shares: Floats = np.minimum(1.0, scale[first] * sizes)
        shares[:first] = 1.0
        return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class SumCost:
    """What the secure sums cost. Bytes are exact up to some fixed headers."""

    cohorts: int
    clients: int  # of the largest cohort
    neighbours: int  # key agreements of each client
    masked_bytes: int  # the counts themselves
    sent_bytes: int  # by one client in all
    received_bytes: int

    @classmethod
    def of(cls, sums: SumPlan, cohorts: int) -> "SumCost":
        """Per neighbour: 92 bytes of sealed shares, 20 of a tag, 40 of revealed shares sent, and
        164 of keys, 92 and 20 received (docs/secure-sum.md).
        """
        packed = sums.ring().packed_bytes
        return cls(
            cohorts=cohorts,
            clients=sums.clients,
            neighbours=sums.neighbours,
            masked_bytes=packed,
            sent_bytes=152 * sums.neighbours + packed,
            received_bytes=276 * sums.neighbours,
        )

    def to_dict(self) -> dict[str, int]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


MOST_POINTS = Policy().most_points  # what clients accept by default


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What the user said. Public."""

    reference: Reference
    spectrum: Spectrum
    clients: int
    records: int
    payload: int
    cohort: int | None  # clients of one secure sum; None: what is best

    def spread(self, plan: Plan) -> float | Spread:
        """How counts vary without drift: by the plan, or by the reference."""
        if plan.verdict.design_effect is not None:
            return plan.verdict.design_effect
        batches = plan.sums.batches
        return self.reference.whole.spread(clients=[self.clients // batches] * batches)

    def design_effect(self, plan: Plan) -> float:
        """The same as one number, on average over cells."""
        if plan.verdict.design_effect is not None:
            return plan.verdict.design_effect
        return self.reference.whole.design_effect(clients=self.clients, records=self.records)

    def notes(self, plan: Plan) -> tuple[str, ...]:
        """What the plan's promises rest on and nobody has said."""
        return (*self._alike(plan), *_few_records(plan))

    def _alike(self, plan: Plan) -> tuple[str, ...]:
        """Where nobody has said how alike the records of one client are."""
        pi = self.reference
        known = pi.whole.correlation is not None or any(view.correlation for view in pi.views)
        if known or plan.verdict.design_effect is not None or one_each(self.records, self.clients):
            return ()
        return (
            f"The clients {'contribute' if plan.unit.kind == 'client' else 'hold'} "
            f"{self.records / self.clients:.3g} records each on average, and "
            "nothing says how alike one client's are. The false-alarm rate of the verdict holds "
            "for unrelated records only. Build the reference with client ids (--client-column, "
            "or clients=...), or give a design effect (--design-effect).",
        )

    def cohort_of(self, usual: int) -> int:
        """Clients of one secure sum: what the user said, or as many as usual; at least 3."""
        return max(3, min(self.clients, self.cohort or usual))

    def points_that_fit(self, plan: Plan) -> int:
        """The most points whose counts, packed, fit into the payload."""
        sums = size_cohort(plan, clients=self._largest_cohort(plan), points=1)
        first, *others = ((top * sums.clients).bit_length() for top in sums.maxima)
        points = (8 * self.payload - sum(others)) // first
        if points < 1:
            raise InvalidInputError(
                f"A payload of {self.payload} bytes has no room for a count of {first} bits beside "
                "the number of records. Allow more bytes, or lower most_records."
            )
        return min(points, self.spectrum.cells, MOST_POINTS - plan.column_points)

    def column_bytes(self, plan: Plan) -> int:
        """What the counts of the columns take, packed, with the number of records."""
        sums = size_cohort(plan, clients=self._largest_cohort(plan), points=0)
        return sums.ring().packed_bytes

    def cost(self, plan: Plan) -> SumCost:
        """Of the secure sums of this plan."""
        largest = self._largest_cohort(plan)
        sums = size_cohort(plan, clients=largest, points=plan.points)
        members = self.clients // plan.sums.batches
        return SumCost.of(sums, plan.sums.batches * len(cohort_sizes(plan, members)))

    def _largest_cohort(self, plan: Plan) -> int:
        return max(cohort_sizes(plan, math.ceil(self.clients / plan.sums.batches)))


def _few_records(plan: Plan) -> tuple[str, ...]:
    """What a draw of so many records assumes of the clients."""
    if plan.unit.kind == "record":
        return ()
    away = (
        "Clients without records stay away (--empty away), so whether a client has any is not "
        "protected, and the number of records tells how many have.",
    )
    seen = away if plan.unit.empty == "away" else ()
    if plan.unit.records == 1:
        return seen
    return (
        *seen,
        f"Every client contributes {plan.unit.records:,} records. One that holds fewer repeats its "
        "own, which the false-alarm rate does not allow for: nearly all clients should hold as "
        "many (--per-client). Every client weighs the same, so build the reference from equally "
        "many records of each of its clients too.",
    )
