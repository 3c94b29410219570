"""The paper's reference point: exact sums, no noise."""

import math

from fedprikl.divergence import Score
from fedprikl.estimation.estimate import Estimate
from fedprikl.estimation.scoring import BatchCounts, weighted_score
from fedprikl.estimation.statistic import scored_statistic
from fedprikl.privacy import PrivacyStatement

PLAIN_SCORE = Score()


def no_privacy(counts: BatchCounts, *, score: Score = PLAIN_SCORE) -> Estimate:
    """The weighted sum of scores without noise; with i.i.d. points, the paper's "No privacy"."""
    value = weighted_score(counts, score)
    return Estimate(
        method="no privacy",
        value=value,
        target=score.target,
        unit=score.unit,
        payload=counts.points.payload,
        noise_sd=0.0,
        statistic=scored_statistic(
            value,
            score=score,
            points=counts.points,
            records=counts.records,
            mechanism=None,
        ),
        privacy=PrivacyStatement(
            epsilon=math.inf,
            delta=0.0,
            claimed_epsilon=None,
            mechanism="no noise",
            released="one exact number",
            trust="everyone who sees the number.",
        ),
    )
