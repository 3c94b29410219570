"""A confidence interval from noisy counts (untrusted aggregator): it costs no privacy.

The noise on the counts is known; what it does to the estimate, a bias and a spread, depends on the
counts. So rounds are simulated at several divergences, with the drift model of `drift_model.py`: an
assumption, as for small batches in `interval.py`, and the interval has room for twice the bias.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from fedprikl.checks import Floats, check_open_unit
from fedprikl.divergence import Score, Skew
from fedprikl.estimation.drift_model import skew_of
from fedprikl.estimation.interval import DRIFT_GRID
from fedprikl.estimation.noisy_counts import NoisyCounts
from fedprikl.estimation.noisy_forecast import NoisyRound, forecast_noisy

__all__ = ["NoisyErrors", "noisy_interval"]

REPETITIONS = 60  # simulated rounds at each divergence: the bias is known to an eighth of a spread
CANDIDATES = 4001


def noisy_interval(
    noisy: NoisyCounts, value: float, *, score: Score, level: float = 0.95
) -> tuple[float, float] | None:
    """All divergences D that an estimate from noisy counts does not contradict, in their unit.

    None for a score other than a skew with lambda = 0, and for several batches. Cost: below a
    second for 500 cells.
    """
    check_open_unit(level, "level", "Use 0.95 for a 95% interval.")
    if not isinstance(score.smoothing, Skew) or score.control or noisy.points.batches > 1:
        return None
    return NoisyErrors.of(noisy, score).interval(value, level)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyErrors:
    """The error of an estimate from noisy counts, at every divergence that it might be of."""

    candidates: Floats
    spread: Floats  # of noise and sampling
    bias: Floats

    @classmethod
    def of(cls, noisy: NoisyCounts, score: Score) -> "NoisyErrors":
        """From rounds with these points, records and noise; the counts do not matter."""
        points, gamma, divergence = noisy.points, skew_of(score), score.divergence
        empty, highest = divergence.empty(gamma), 1 / points.pi_min
        seen = forecast_noisy(
            NoisyRound(
                points,
                records=int(noisy.records[0]),
                noise_sd=float(noisy.noise_sd[0]),
                laplace_scale=noisy.laplace_scale,
            ),
            score=score,
            drifts=(grid := empty * DRIFT_GRID).tolist(),
            sampling=[0.0] * len(grid),  # bounded below, for every candidate
            repetitions=REPETITIONS,
        )
        # Squares: fine steps near 0, where errors are small.
        largest = empty + divergence.rise(gamma, highest)
        candidates: Floats = largest * np.linspace(0, 1, CANDIDATES) ** 2
        noise = np.interp(candidates, grid, [each.noise_sd for each in seen])
        sampling = points.sampling_variance * divergence.square_ratio(gamma, highest) * candidates
        bias = np.interp(candidates, grid, [each.bias for each in seen])
        return cls(candidates, np.sqrt(noise**2 + sampling), np.asarray(bias))

    def interval(self, value: float, level: float) -> tuple[float, float]:
        """From the least to the largest candidate that the value does not contradict."""
        distance = value - self.candidates
        reach = scipy.special.ndtri((1 + level) / 2) * self.spread
        reach += np.where(self.bias * distance > 0, 2 * np.abs(self.bias), 0.0)
        inside = self.candidates[np.abs(distance) <= reach]
        # The nearest possible value too: noise may throw a value out of the range.
        inside = np.append(inside, np.clip(value, 0.0, self.candidates[-1]))
        return float(inside.min()), float(inside.max())
