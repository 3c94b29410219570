"""What the estimators work on: the summed counts of the asked points, per batch."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Ints, check_counts
from fedprikl.errors import InvalidInputError
from fedprikl.reference import QueryPoints

__all__ = ["BatchCounts"]


@dataclass(frozen=True, slots=True, eq=False)
class BatchCounts:
    """h_t(x) for every asked point, and N_t for every batch: sums over clients, before noise.

    SECRET: this is what the aggregator sees, and nobody else.
    """

    points: QueryPoints
    counts: Ints  # h_t(x), in the order of `points`
    records: Ints  # N_t

    def __post_init__(self) -> None:
        counts, records = check_counts(self.counts, "counts"), check_counts(self.records, "records")
        points = self.points
        if len(counts) != len(points) or len(records) != points.batches:
            raise InvalidInputError(
                f"{len(points)} points in {points.batches} batches were asked, but there are "
                f"{len(counts)} counts and {len(records)} record totals."
            )
        if np.any(records == 0):
            raise InvalidInputError(
                f"Batch {int(np.argmin(records))} holds no records, so it has no distribution. "
                "Use fewer batches or more clients. Nothing was released."
            )
        asked = np.bincount(points.batch, weights=counts, minlength=points.batches)
        if np.any(asked > records):
            raise InvalidInputError(
                f"The counts of batch {int(np.argmax(asked > records))} exceed its number of "
                "records. A client lied or a sum is damaged; nothing was released."
            )
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "records", records)

    @property
    def records_per_point(self) -> Ints:
        """N_t of each point's batch."""
        return self.records[self.points.batch]

    def __repr__(self) -> str:  # the counts are secret
        return f"BatchCounts({len(self.points)} points in {self.points.batches} batches)"
