"""How the questions of a plan share its budget."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedprikl.estimation.no_drift import public_simulation
from fedprikl.planning.forecast import six_digits
from fedprikl.planning.trial_round import TrialRound
from fedprikl.privacy import Calibrated
from fedprikl.protocol.question import Question

__all__ = ["BESIDE_LOUD_COUNTS", "MOST_BESIDE_COUNTS", "needed_shares"]

DRAWS = 400  # populations without drift
QUIET = 0.35  # noise over the spread of a statistic without drift: more would cost power
LEAST, MOST = 0.03, {"tv": 0.55}  # of the budget, for one further question
USUAL_MOST = 0.15
HOPELESS = 4.0  # times the most: the noise would still be twice the spread, and drown the statistic
MOST_TOGETHER = 0.5  # of all further questions: the first one is the size
MOST_BESIDE_COUNTS = 0.08  # where the counts tell the size and most of the verdict
BESIDE_LOUD_COUNTS = (0.25, 0.2, 0.16, 0.12)  # where their noise is loud: what the size can spare


def needed_shares(
    trial: TrialRound, questions: Sequence[Question], calibrated: Calibrated
) -> Mapping[str, float]:
    """The share of each further question whose answer has noise of its own.

    The least for which the noise is at most 0.35 of the spread that the statistic has without drift
    anyway: from there on more budget hardly helps the verdict. Where that is far out of reach, the
    least that is given at all. `calibrated` is the noise of the whole budget of a release.
    """
    counts = trial.no_drift.counts(DRAWS, public_simulation())
    found = {}
    for question in questions:
        score = question.score(correction=trial.plan.client_effect, limited=True)
        spread = float(np.std(trial.before_noise(counts, score)))
        whole = calibrated.for_sensitivity(trial.sensitivity(score)).standard_deviation
        most = MOST.get(question.divergence, USUAL_MOST)
        wanted = whole / (QUIET * spread) if spread > 0 else most
        hopeless = wanted > HOPELESS * most
        found[question.divergence] = LEAST if hopeless else float(np.clip(wanted, LEAST, most))
    total = sum(found.values())
    scale = min(1.0, MOST_TOGETHER / total) if total else 1.0
    return {name: six_digits(scale * share) for name, share in found.items()}
