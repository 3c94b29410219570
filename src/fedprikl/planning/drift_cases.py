"""The drifts that a plan is judged by: none, small and large ones, of several kinds."""

from dataclasses import dataclass, replace

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimation.drift_kinds import drifted_ratios, ratio_divergence
from fedprikl.estimation.drift_model import SEED

__all__ = ["POWER_KINDS", "WORDS", "DriftCase", "drift_case", "drift_cases"]

# Sizes in nats of KL with its usual skew, whatever is asked: the same populations for all.
JUDGED = (
    ("smooth", 0.01),
    ("smooth", 0.05),
    ("smooth", 0.2),
    ("smooth", 1.0),
    ("rare", 0.05),
    ("heavy", 0.05),
)
EXAMPLES, FEW = 4, 512  # of a smooth drift, up to so many cells; of more, all are alike
POWER_KINDS = ("smooth", "rare", "heavy")  # the smallest drift is looked for in each
WORDS = {
    "none": "nothing has drifted",
    "smooth": "every cell by a little",
    "rare": "the rarer half shrinks",
    "heavy": "the heaviest cell shrinks",
    "gone": "the heaviest cell is gone",
}


@dataclass(frozen=True, slots=True, eq=False)
class DriftCase:
    """A drift of some kind and size: P / Pi of every cell with Pi > 0, one example a row."""

    kind: str
    size: float  # in the unit of the asked divergence
    ratios: Floats  # (examples, cells): it matters which cells a smooth drift raises


def drift_cases(pi: Floats, score: Score) -> tuple[DriftCase, ...]:
    """All cases that cells of these probabilities can have; sizes in the score's unit.

    >>> cases = drift_cases(np.array([0.4, 0.3, 0.2, 0.1]), Score())
    >>> [(case.kind, round(case.size, 2)) for case in cases][-3:]
    [('rare', 0.05), ('heavy', 0.05), ('gone', 1.54)]
    """
    found = [DriftCase("none", 0.0, np.ones((1, len(pi))))]
    for kind, nats in JUDGED:
        case = drift_case(pi, kind, nats, Score())
        if case is not None:
            found.append(replace(case, size=_size(pi, case.ratios, score)))
    gone = drift_case(pi, "gone", 0.0, score)
    return tuple(found if gone is None else [*found, gone])


def drift_case(pi: Floats, kind: str, size: float, score: Score) -> DriftCase | None:
    """A drift of this kind and size, in the score's unit; None if there is none as large.

    "gone" has one size only: that of the heaviest cell.
    """
    if kind == "none":
        return DriftCase("none", 0.0, np.ones((1, len(pi))))
    if kind == "gone":
        return _gone(pi, score)
    several = kind == "smooth" and len(pi) <= FEW
    seeds = range(SEED, SEED + (EXAMPLES if several else 1))
    found = [drifted_ratios(pi, kind, size, score, seed=seed) for seed in seeds]
    known = [ratios for ratios in found if ratios is not None]
    return DriftCase(kind, size, np.stack(known)) if known else None


def _gone(pi: Floats, score: Score) -> DriftCase | None:
    if len(pi) < 2:
        return None
    heaviest = int(np.argmax(pi))
    ratios = np.full((1, len(pi)), pi.sum() / (pi.sum() - pi[heaviest]))
    ratios[0, heaviest] = 0.0
    return DriftCase("gone", _size(pi, ratios, score), ratios)


def _size(pi: Floats, ratios: Floats, score: Score) -> float:
    return float(ratio_divergence(pi, ratios, score).mean())
