"""What error to expect of a release, for one kind and size of drift."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

__all__ = ["Forecast", "least", "six_digits", "typical_error"]

TIE = 1e-9  # relative: processors round differently, and errors that differ by less are equal
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
