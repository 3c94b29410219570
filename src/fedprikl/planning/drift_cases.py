"""The drifts that a plan is judged by: none, small and large ones, of several kinds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedprikl.checks import Floats
from fedprikl.divergence import Score
from fedprikl.estimation.drift_model import drifted_ratios, ratio_divergence, smooth_examples

# Sizes in nats of KL with its usual skew, whatever is asked: the same populations for all.
JUDGED = (
    ("smooth", 0.01),
    ("smooth", 0.05),
    ("smooth", 0.2),
    ("smooth", 1.0),
    ("rare", 0.05),
    ("heavy", 0.05),
)
# Of a smooth drift, up to so many cells: the fewer, the more it matters which ones it raises.
EXAMPLES = ((16, 16), (512, 8))
POWER_KINDS = ("smooth", "rare", "heavy")  # the smallest drift is looked for in each
WORDS = {
    "none": "nothing has drifted",
    "smooth": "every cell by a little",
    "rare": "the rarer half shrinks",
    "heavy": "the heaviest cell shrinks",
    "gone": "the heaviest cell is gone",
}
TIE = 1e-9  # relative: processors round differently, and errors that differ by less are equal


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
    if kind == "smooth":
        number = next((each for most, each in EXAMPLES if len(pi) <= most), 1)
        found = smooth_examples(pi, size, score, number)
    else:
        one = drifted_ratios(pi, kind, size, score)
        found = None if one is None else one[None]
    return None if found is None else DriftCase(kind, size, found)


def _gone(pi: Floats, score: Score) -> DriftCase | None:
    if len(pi) < 2:
        return None
    heaviest = int(np.argmax(pi))
    ratios = np.full((1, len(pi)), pi.sum() / (pi.sum() - pi[heaviest]))
    ratios[0, heaviest] = 0.0
    return DriftCase("gone", _size(pi, ratios, score), ratios)


def _size(pi: Floats, ratios: Floats, score: Score) -> float:
    return float(ratio_divergence(pi, ratios, score).mean())


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Forecast:
    """The mean absolute error to expect if the population has drifted like this.

    >>> Forecast("smooth", 0.05, 0.002).to_dict()
    {'kind': 'smooth', 'size': 0.05, 'error': 0.002}
    """

    kind: str  # none, smooth, rare, heavy or gone
    size: float  # in the unit of the divergence, like the error
    error: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def typical_error(errors: Sequence[float]) -> float:
    """The geometric mean: a factor counts the same wherever it is won or lost.

    >>> round(typical_error([0.001, 0.1]), 6)
    0.01
    """
    return float(np.exp(np.mean(np.log(np.maximum(errors, 1e-300)))))


def least(found: Iterable[T], error: Callable[[T], float]) -> T:
    """The first of those with the least error: equal ones are told apart by their order.

    >>> least([("a", 0.3), ("b", 0.1 * 3 / 3), ("c", 0.1)], lambda each: each[1])[0]
    'b'
    """
    pairs = [(error(each), each) for each in found]
    limit = (1 + TIE) * min(value for value, _ in pairs)
    return next(each for value, each in pairs if value <= limit)


def six_digits(value: float) -> float:
    """What a plan states of a number that was simulated: the same on every processor.

    >>> six_digits(0.1 * 3), six_digits(0.3), six_digits(1234567.8)
    (0.3, 0.3, 1234570.0)
    """
    return float(f"{value:.6g}")
