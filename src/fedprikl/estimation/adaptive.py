"""One number with adaptive noise: the inverse sensitivity mechanism on exact sums."""

from fedprikl.divergence import Score
from fedprikl.estimation.counts import BatchCounts
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.score_ranges import score_ranges
from fedprikl.estimation.trusted_aggregator import TRUST
from fedprikl.privacy import (
    SECURE_NOISE,
    InverseSensitivityMechanism,
    NoiseSource,
    PrivacyStatement,
    adaptive_release,
)

__all__ = ["adaptive_estimate"]


def adaptive_estimate(
    counts: BatchCounts, *, epsilon: float, score: Score, source: NoiseSource = SECURE_NOISE
) -> Estimate:
    """The scored sum with noise that fits the population; how large it was is private."""
    mechanism = InverseSensitivityMechanism(epsilon=epsilon)
    ranges = score_ranges(counts, score, steps=mechanism.steps)
    return Estimate(
        method="trusted aggregator, adaptive noise",
        value=adaptive_release(ranges, epsilon=epsilon, source=source),
        target=score.target,
        unit=score.unit,
        payload=counts.points.payload,
        privacy=PrivacyStatement(
            epsilon=epsilon,
            delta=0.0,
            claimed_epsilon=epsilon,
            mechanism=str(mechanism),
            released="one number",
            trust=TRUST,
            insecure=source.insecure,
        ),
    )
