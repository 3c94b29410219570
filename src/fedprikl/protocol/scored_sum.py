"""Trust "aggregator": it opens exact sums, scores them, and adds noise to one number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import BatchCounts, Estimate, estimate_scored_sum
from fedprikl.privacy import Calibrated, Charge, NoiseSource
from fedprikl.protocol.cohort_sums import OpenedSum, cohort_degree
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.possible_counts import possible_counts
from fedprikl.reference import QueryPoints, spread_points
from fedprikl.secure_sum import Degree

__all__ = ["ScoredSum"]


@dataclass(frozen=True, eq=False)
class ScoredSum:
    """What follows from a trusted aggregator: the sum of scores of exact counts, with noise."""

    plan: Plan
    shares_noise: ClassVar[bool] = False

    @cached_property
    def calibrated(self) -> Calibrated:
        """Made once: the ledger reserves its charge, it draws, and the release states it."""
        return Calibrated(self.plan.epsilon, self.plan.delta, self.plan.noise)

    @property
    def score(self) -> Score:
        """Corrected for small batches of clients whose records are alike; steps are limited."""
        return self.plan.question.score(correction=self.plan.client_effect, limited=True)

    def draw_points(self, pi: Floats, rng: np.random.Generator) -> QueryPoints:
        """Points of all batches, pooled where several are asked the same cell."""
        plan, question = self.plan, self.plan.question
        return spread_points(
            pi, question.points, batches=plan.batches, exponent=question.exponent, rng=rng
        )

    def degree(self, clients: int) -> Degree:
        """Of the graph of a cohort's secure sum."""
        return cohort_degree(self.plan, clients, complete=False)

    def minimum(self, clients: int) -> int:
        """The fewest inputs with which a sum may be opened."""
        return self.degree(clients).threshold + 1

    def smallest_cohort(self, roster: int) -> int:  # noqa: ARG002  nobody relies on the others
        """The fewest clients of a cohort: a sum of fewer hides nobody."""
        return 3

    def maxima(self, *, clients: int, points: int) -> tuple[int, ...]:  # noqa: ARG002
        """The largest value of each entry of a client's vector: counts of the points, records.

        Counts have twice the room they need: the aggregator folds impossible sums back into what
        is possible (`possible_counts`), and folding takes a ring twice as large.
        """
        most = self.plan.most_records
        return (2 * most,) * points + (most,)

    def vector(
        self,
        asked: Ints,
        records: int,
        *,
        clients: int,  # noqa: ARG002
        source: NoiseSource,  # noqa: ARG002  the aggregator adds the noise
        randomness: Callable[[int], bytes],  # noqa: ARG002
    ) -> Ints:
        """What a client hands to the secure sum of a cohort. SECRET."""
        return np.append(asked, records).astype(np.int64)

    def open(self, total: Ints, *, clients: int, included: int) -> OpenedSum:  # noqa: ARG002
        """The sum of a cohort. One that cannot be right is made possible."""
        top = self.plan.most_records * included
        records = min(int(total[-1]), top)
        return OpenedSum(possible_counts(total[:-1], top=top, records=records), records)

    def charge(self, cohorts: Sequence[int]) -> Charge:  # noqa: ARG002
        """What a release costs, known before any sum is. `cohorts` are their sizes."""
        return self.calibrated.charge

    def client_charge(self, clients: int) -> Charge | None:  # noqa: ARG002
        """What a client of a cohort charges to a ledger of its own: the aggregator's will do."""
        return None

    def estimate(
        self,
        points: QueryPoints,
        batches: Sequence[OpenedSum],
        cohorts: Sequence[int],  # noqa: ARG002
        *,
        source: NoiseSource,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> Estimate:
        """One number with noise for its exact sensitivity, its interval and verdict."""
        counts = BatchCounts(
            points,
            np.concatenate([batch.counts for batch in batches]),
            np.array([batch.records for batch in batches]),
        )
        return estimate_scored_sum(
            counts,
            calibrated=self.calibrated,
            score=self.score,
            client_effect=self.plan.client_effect,
            source=source,
        )
