"""What error to expect of a release, for one kind and size of drift."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["Forecast", "typical_error"]


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
