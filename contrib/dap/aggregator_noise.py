"""The noise that leader and helper add to their shares of the sums, so that a plan's epsilon holds.

One client replaces k records by k others in each of B tasks (the whole, and every view). So it
moves the sums of all tasks by 2 k B in L1 at most. Discrete Laplace noise of scale 2 k B / epsilon
on every count is enough for epsilon, from one party alone. Each of the two adds all of it: then the
promise holds as long as one of them is honest, and the counts carry twice its variance.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from contrib.dap.prio3 import Prio3
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import CountNoise
from fedprikl.privacy import Counts, IntegerLaplaceMechanism, laplace_variance
from fedprikl.protocol import Plan

__all__ = ["AggregatorNoise", "aggregator_noise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatorNoise:
    """Discrete Laplace noise that each aggregator adds to each count of its share.

        P(noise = j)  proportional to  exp(-|j| / scale)

    >>> noise = AggregatorNoise(scale=2.0, sensitivity=2)
    >>> round(noise.epsilon, 6), round(noise.standard_deviation, 3)
    (1.0, 3.959)
    """

    parties: ClassVar[int] = 2  # leader and helper: both add noise, one has to be honest

    scale: float
    sensitivity: int  # L1, of one client over all tasks of the plan

    @property
    def epsilon(self) -> float:
        """Of one release, over all tasks of the plan, from the noise of one honest party. Pure."""
        return math.nextafter(self.sensitivity / self.scale, math.inf)

    @property
    def standard_deviation(self) -> float:
        """Of the noise that a released count carries: that of both parties."""
        return math.sqrt(self.parties * laplace_variance(self.scale))

    @property
    def released(self) -> CountNoise:
        """Its law, as a release of these counts states it."""
        return CountNoise(sd=self.standard_deviation, scale=self.scale)

    def service_epsilon(self, kind: Prio3) -> Fraction:
        """The `epsilon` of libprio's `PureDpDiscreteLaplace` that gives this scale.

        libprio divides a sensitivity of its own by it, which knows neither how many tasks there are
        nor that the counts of an honest client sum to k.
        """
        return Fraction(kind.service_sensitivity) / Fraction(self.scale)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"distribution": "discrete laplace", "scale": self.scale, "added_by": "each party"}


def aggregator_noise(plan: Plan, *, blocks: int) -> AggregatorNoise:
    """The least noise of one aggregator that gives the plan's epsilon, over `blocks` tasks."""
    if plan.questions[0].noise == "gaussian":
        raise InvalidInputError(
            "Aggregators of DAP add discrete Laplace noise to counts: plan with noise='laplace' or "
            "'auto'."
        )
    sensitivity = 2 * blocks * plan.contribution_bound
    mechanism = IntegerLaplaceMechanism.calibrated(
        Counts(coordinates=sensitivity), epsilon=plan.budget.epsilon, delta=0.0
    )
    return AggregatorNoise(scale=mechanism.scale, sensitivity=sensitivity)
