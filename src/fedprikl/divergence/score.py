"""The score of a count, and how much one more record can change it."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite
from fedprikl.divergence.smoothing import DEFAULT_SKEW, Floor, Smoothing, Unsmoothed
from fedprikl.errors import InvalidInputError

__all__ = ["ExtremeIncrements", "Score", "clip_steps"]


@dataclass(frozen=True, slots=True)
class Score:
    """s(h), the public function of one cell's count whose weighted sum is the estimate.

        s(h) = max( lambda (v - 1) - ln(v + rho a^2 h / (2 v)),   s(0) - c h / |w| )

    with v(h) = o + a h the effective ratio of the smoothing.

    `correction`: the logarithm of a sample is biased. E[-ln v] exceeds -ln E[v] by about
    Var(v) / (2 v^2), and Var(v) is close to rho a^2 h, where rho is the share of the population
    outside the sample (`outside`): counts of everybody are no sample at all. Inside the logarithm
    the correction keeps s convex; 0 switches it off, 1 is full, and more is right where records of
    one client resemble each other and counts vary more (by the design effect).

    `maximum_step` (c): what noise hides is the maximum step, the first record of an empty cell. The
    line lets no record lower `weight * s` by more than c. It starts at s(0), so a cell that
    vanished still scores exactly; cells that nearly vanished score a little high.

    All methods broadcast over `counts`, `pi` (Pi(x)), `records` (N of the cell's sample),
    `outside` and `weights`.
    """

    smoothing: Smoothing = DEFAULT_SKEW
    control: float = 0.0
    correction: float = 0.0
    maximum_step: float = math.inf

    def __post_init__(self) -> None:
        check_finite(self.control, "control")
        if check_finite(self.correction, "correction") < 0:
            raise InvalidInputError(
                f"The correction is 0 (none), 1 (full) or a design effect, got {self.correction}."
            )
        if not self.maximum_step > 0:
            raise InvalidInputError(f"The maximum step must be above 0, got {self.maximum_step}.")
        if isinstance(self.smoothing, Floor | Unsmoothed):
            if self.correction:
                raise InvalidInputError("The bias correction needs a smoothing; use a skew.")
            if self.maximum_step < math.inf:
                raise InvalidInputError("A maximum step needs a smoothing; use a skew.")

    def __call__(
        self,
        counts: npt.ArrayLike,
        pi: Floats,
        records: Ints,
        *,
        outside: npt.ArrayLike = 1.0,
        weights: npt.ArrayLike = 1.0,
    ) -> Floats:
        """s(h) per entry; infinite only for an empty cell without smoothing."""
        h = np.asarray(counts, dtype=np.float64)
        v = self.ratio(h, pi, records)
        inside = v
        if self.correction:
            _, slope = self.smoothing.line(pi, records)
            inside = v + self.correction * np.asarray(outside) * slope**2 * h / (2 * v)
        with np.errstate(divide="ignore"):
            scores = self.control * (v - 1) - np.log(inside)
        if self.maximum_step < math.inf:
            v = self.ratio(0, pi, records)
            empty = self.control * (v - 1) - np.log(v)
            scores = clip_steps(scores, empty, h, weights, self.maximum_step)
        return np.asarray(scores, dtype=np.float64)

    def ratio(self, counts: npt.ArrayLike, pi: Floats, records: Ints) -> Floats:
        """v(h), the effective ratio P'(x) / Pi(x)."""
        offset, slope = self.smoothing.line(pi, records)
        v = offset + slope * np.asarray(counts, dtype=np.float64)
        if isinstance(self.smoothing, Floor):
            v = np.maximum(v, self.smoothing.tau / pi)
        return np.asarray(v, dtype=np.float64)

    def increments(
        self,
        counts: npt.ArrayLike,
        pi: Floats,
        records: Ints,
        *,
        outside: npt.ArrayLike = 1.0,
        weights: npt.ArrayLike = 1.0,
    ) -> Floats:
        """s(h+1) - s(h): what one more record in the cell does to its score."""
        h = np.asarray(counts)
        after = self(h + 1, pi, records, outside=outside, weights=weights)
        return after - self(h, pi, records, outside=outside, weights=weights)

    def bound(self, pi: Floats, records: Ints) -> Floats:
        """At least |s(h)| + 1 for every h = 0 .. N; sizes the slack for rounding.

        The 1 stands for the rounding of v, which reaches ln v undiminished where ln v is small.
        """
        _, slope = self.smoothing.line(pi, records)
        least, most = self.ratio(0, pi, records), self.ratio(records, pi, records)
        with np.errstate(divide="ignore"):
            # As a h <= v, the correction adds at most rho a / 2 to v.
            above = most + self.correction * slope / 2
            size = np.maximum(np.abs(np.log(least)), np.abs(np.log(above)))
            size = np.maximum(size, np.abs(np.log(most)))
        return np.asarray(size + 1 + abs(self.control) * (most + 1), dtype=np.float64)

    def extreme_increments(
        self,
        pi: Floats,
        records: Ints,
        *,
        outside: npt.ArrayLike = 1.0,
        weights: npt.ArrayLike = 1.0,
    ) -> "ExtremeIncrements":
        """Smallest and largest increment of each cell over h = 0 .. N-1, and where they occur.

        Increments of a convex s rise, so the extremes lie at h = 0 and h = N-1; those of a floor,
        which is not convex, also beside its kink at h = tau N. A handful of evaluations per cell,
        whatever N.
        """
        last = np.asarray(records - 1, dtype=np.float64)
        candidates = np.stack([np.zeros_like(last), last], axis=1)
        if isinstance(self.smoothing, Floor):
            kink = np.floor(self.smoothing.tau * records)[:, None] + np.arange(-2, 3)
            candidates = np.sort(np.concatenate([candidates, kink], axis=1), axis=1)
        candidates = np.clip(candidates, 0, last[:, None])
        steps = self.increments(
            candidates,
            pi[:, None],
            records[:, None],
            outside=np.broadcast_to(outside, pi.shape)[:, None],
            weights=np.broadcast_to(weights, pi.shape)[:, None],
        )
        row, low, high = np.arange(len(pi)), np.zeros(len(pi), np.int64), np.ones(len(pi), np.int64)
        if isinstance(self.smoothing, Floor):  # else rounding must not choose between equal steps
            low, high = np.argmin(steps, axis=1), np.argmax(steps, axis=1)
        return ExtremeIncrements(
            lowest=steps[row, low],
            lowest_at=candidates[row, low].astype(np.int64),
            highest=steps[row, high],
            highest_at=candidates[row, high].astype(np.int64),
        )


def clip_steps(
    scores: Floats, empty: Floats, counts: Floats, weights: npt.ArrayLike, maximum_step: float
) -> Floats:
    """Scores raised to the line of `maximum_step` that starts at the `empty` cell's score."""
    if maximum_step == math.inf:
        return scores
    limited: Floats = np.maximum(scores, empty - maximum_step * counts / np.abs(weights))
    return limited


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeIncrements:
    """Per cell: the extremes of s(h+1) - s(h) over h = 0 .. N-1 and the counts that attain them."""

    lowest: Floats
    lowest_at: Ints
    highest: Floats
    highest_at: Ints
