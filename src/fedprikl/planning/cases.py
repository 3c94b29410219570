"""Public drifts that plans are judged by: of several kinds, each in all sizes it can have."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import (
    drifted_ratios,
    ratio_divergence,
    skew_of,
    smooth_examples,
)
from fedprikl.reference import View

# Sizes in nats of KL with its usual skew, whatever is asked: the same populations for all.
JUDGED = (
    ("none", 0.0),
    ("smooth", 0.01),
    ("smooth", 0.05),
    ("smooth", 0.2),
    ("smooth", 1.0),
    ("rare", 0.05),
    ("heavy", 0.05),
    ("gone", math.inf),  # as large as it is
    ("unseen", 0.01),  # of the records
)
# Of a smooth drift, up to so many cells: the fewer, the more it matters which ones it raises.
EXAMPLES = ((16, 16), (512, 8))
# The same where the chance to find a drift is counted: each population has one answer, yes or no,
# so more examples cost no more populations.
MANY_EXAMPLES = ((512, 128), (4096, 32))
WORDS = {
    "none": "nothing has drifted",
    "smooth": "every cell by a little",
    "rare": "the rarer half shrinks",
    "heavy": "the heaviest cell shrinks",
    "gone": "the heaviest cell is gone",
    "fading": "one cell of median size shrinks",
    "growing": "the rarest twelfth of the cells grows",
    "unseen": "values that the reference never saw",
}
# The smallest drift of each kind is looked for: of the whole, and of a column, where fewer kinds
# tell plans apart. The size of "unseen" is its share of the records.
POWER_KINDS = ("smooth", "rare", "heavy", "fading", "growing", "unseen")
COLUMN_KINDS = ("smooth", "rare", "fading", "unseen")
ALL = 0.999  # of the records, unseen: a P has cells
MOST_NATS = 1e3  # beyond every drift


@dataclass(frozen=True, slots=True, eq=False)
class DriftCase:
    """A drift of some kind and size: P / Pi of every cell with Pi > 0, one example a row."""

    kind: str
    size: float  # in the unit of the asked divergence
    ratios: Floats  # (examples, cells): it matters which cells a smooth drift raises


def drift_cases(pi: Floats, score: Score) -> tuple[DriftCase, ...]:
    """The drifts that a plan is judged by: all that cells of these probabilities can have.

    Sizes are in the score's unit.

    >>> cases = drift_cases(np.array([0.4, 0.3, 0.2, 0.1]), Score())
    >>> [(case.kind, round(case.size, 2)) for case in cases][-3:]
    [('heavy', 0.05), ('gone', 1.54), ('unseen', 0.01)]
    """
    found = (drift_case(pi, kind, nats, Score()) for kind, nats in JUDGED)
    return tuple(
        replace(case, size=_size(pi, case.ratios, score)) for case in found if case is not None
    )


def drift_case(
    pi: Floats, kind: str, size: float, score: Score, *, many: bool = False
) -> DriftCase | None:
    """A drift of this kind and size, in the score's unit; None if there is none as large.

    "gone" has one size only: that of the heaviest cell. `many` asks for many examples.
    """
    if kind == "none":
        return DriftCase("none", 0.0, np.ones((1, len(pi))))
    if kind == "gone":
        return _gone(pi, score)
    if kind == "unseen":
        return DriftCase(kind, size, np.full((1, len(pi)), 1 - size)) if size <= ALL else None
    if kind == "smooth":
        examples = MANY_EXAMPLES if many else EXAMPLES
        number = next((each for most, each in examples if len(pi) <= most), 1)
        found = smooth_examples(pi, size, score, number)
    else:
        one = drifted_ratios(pi, kind, size, score)
        found = None if one is None else one[None]
    return None if found is None else DriftCase(kind, size, found)


def largest_drift(pi: Floats, kind: str, score: Score) -> float:
    """The size of the largest drift of a kind, in the score's unit; 0 if there is none.

    >>> round(largest_drift(np.array([0.4, 0.3, 0.2, 0.1]), "heavy", Score()), 2)
    1.54
    """
    if kind == "unseen":
        return ALL
    ratios = drifted_ratios(pi, kind, MOST_NATS, score, nearest=True)
    return 0.0 if ratios is None else float(f"{(1 - 1e-5) * _size(pi, ratios, score):.6g}")


@lru_cache(maxsize=8)  # all options of a plan are judged by the same ones
def cases_of(view: View, score: Score) -> tuple[DriftCase, ...]:
    """The drifts of a view that a plan is judged by."""
    return drift_cases(positive(view), score)


def positive(view: View) -> Floats:
    """The probabilities of the cells that the reference has seen."""
    probabilities = view.probabilities
    return probabilities[probabilities > 0]


def _gone(pi: Floats, score: Score) -> DriftCase | None:
    if len(pi) < 2:
        return None
    heaviest = int(np.argmax(pi))
    ratios = np.full((1, len(pi)), pi.sum() / (pi.sum() - pi[heaviest]))
    ratios[0, heaviest] = 0.0
    return DriftCase("gone", _size(pi, ratios, score), ratios)


def _size(pi: Floats, ratios: Floats, score: Score) -> float:
    if np.ptp(ratios) == 0:  # nothing but unseen values: what all cells lose alike
        skew = skew_of(score)
        return float(score.divergence.f(skew + (1 - skew) * ratios.ravel()[:1])[0])
    return float(ratio_divergence(pi, ratios, score).mean())
