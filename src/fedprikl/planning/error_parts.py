"""Where the error of a scored sum comes from: what a search of designs adds up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ErrorParts", "mean_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorParts:
    """The error to expect if the population has drifted by `divergence`.

    It has three sources: the choice of points (sampling), batches that are samples of the
    population and clipping (small-batch bias and spread), and the noise. All are in the unit of the
    divergence.

    >>> ErrorParts(divergence=0.1, sampling=0.03, bias=0.0, spread=0.0, noise_sd=0.04).error
    0.05
    """

    divergence: float
    sampling: float  # standard deviation from the choice of points
    bias: float  # of scores of small batches, and of clipping
    spread: float  # standard deviation from the choice of the batches' clients
    noise_sd: float  # standard deviation of the noise

    @property
    def error(self) -> float:
        """Root mean square of all of them."""
        return math.hypot(self.sampling, self.bias, self.spread, self.noise_sd)


def mean_error(parts: Sequence[ErrorParts]) -> float:
    """Root mean square of the predicted errors: what the search minimises."""
    return math.sqrt(sum(f.error**2 for f in parts) / len(parts))
