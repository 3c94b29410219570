"""Whom the clients trust with exact sums, and the object that owns what follows from it."""

from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan, Trust
from fedprikl.protocol.scored_sum import ScoredSum

TrustMode = ScoredSum | NoisyHistogram
MODES: dict[Trust, type[ScoredSum] | type[NoisyHistogram]] = {
    "aggregator": ScoredSum,
    "none": NoisyHistogram,
}


def trust_of(plan: Plan) -> TrustMode:
    """The object that owns what follows from the plan's trust: points, vectors, noise, estimate.

    Examples
    --------
    >>> from fedprikl.protocol import AskedView, Budget, Plan, Question, trust_of
    >>> asked = {"views": (AskedView(points=3),), "questions": (Question(release="counts"),)}
    >>> who = {"population": "p", "reference": 64 * "0", "trust": "none"}
    >>> plan = Plan(budget=Budget(epsilon=1.0), **who, **asked)
    >>> trust_of(plan).shares_noise
    True

    """
    return MODES[plan.trust](plan)
