"""Whether more records lie outside the reference's cells than a finite reference has missed."""

from dataclasses import dataclass

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.verdict import UNSEEN
from fedprikl.reference import QueryPoints, Unseen

__all__ = ["UnseenStatistic"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class UnseenStatistic:
    """The noisy share of records in cells that the reference never saw: rest / N.

    One batch, all cells asked. The rest of a simulated population is drawn apart from its counts,
    from the law of what the reference has missed: both rise together, so this errs towards
    fewer alarms of the two together.
    """

    noisy: NoisyCounts
    law: Unseen
    name: str = UNSEEN
    unit: str = ""
    mechanism: None = None

    @property
    def points(self) -> QueryPoints:
        """All cells."""
        return self.noisy.points

    @property
    def records(self) -> Ints:
        """N, of the only batch."""
        return self.noisy.records

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released share."""
        return float(self.noisy.rest[0] / self.records[0])

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,
    ) -> Floats:
        """The share in as many populations, with noise."""
        records = int(self.records[0])
        outside = self.law.draw(records, len(counts), rng)
        noise = self.noisy.draw_rest_noise(rng, len(counts))
        return np.asarray((outside + noise) / records)[:, None]
