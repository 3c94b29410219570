"""The score of a count, and how much one more record can change it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite
from fedprikl.divergence.smoothing import DEFAULT_SKEW, Floor, Smoothing, Unsmoothed
from fedprikl.errors import InvalidInputError

__all__ = ["ExtremeIncrements", "Score"]


@dataclass(frozen=True, slots=True)
class Score:
    """s(h), the public function of one cell's count whose weighted sum is the estimate.

        s(h) = lambda (v - 1) - ln v - rho a^2 h / (2 v^2),    v(h) = o + a h

    with v the effective ratio of the smoothing. The last term removes, to second order, the upward
    bias of the logarithm of a sample: E[-ln v] exceeds -ln E[v] by Var(v) / (2 v^2), and Var(h) is
    close to rho h. rho (`correction`) is the share of the target population outside the batch:
    1 for a small sample, 1 - 1/T for one of T batches, 0 if the batch is the whole population,
    whose counts are no sample at all. Part of the score, so the sensitivity covers it.

    All methods broadcast over `counts`, `pi` (Pi(x)) and `records` (N of the cell's batch).
    """

    smoothing: Smoothing = DEFAULT_SKEW
    control: float = 0.0
    correction: float = 0.0

    def __post_init__(self) -> None:
        check_finite(self.control, "control")
        if not 0 <= check_finite(self.correction, "correction") <= 1:
            raise InvalidInputError(
                f"The correction lies between 0 (none) and 1 (full), got {self.correction}."
            )
        if self.correction and isinstance(self.smoothing, Floor | Unsmoothed):
            raise InvalidInputError("The bias correction needs a smoothing; use a skew.")

    def __call__(self, counts: npt.ArrayLike, pi: Floats, records: Ints) -> Floats:
        """s(h) per entry; infinite only for an empty cell without smoothing."""
        h = np.asarray(counts, dtype=np.float64)
        v = self.ratio(h, pi, records)
        with np.errstate(divide="ignore"):
            scores = self.control * (v - 1) - np.log(v)
        if self.correction:
            _, slope = self.smoothing.line(pi, records)
            scores = scores - self.correction * slope**2 * h / (2 * v**2)
        return np.asarray(scores, dtype=np.float64)

    def ratio(self, counts: npt.ArrayLike, pi: Floats, records: Ints) -> Floats:
        """v(h), the effective ratio P'(x) / Pi(x)."""
        offset, slope = self.smoothing.line(pi, records)
        v = offset + slope * np.asarray(counts, dtype=np.float64)
        if isinstance(self.smoothing, Floor):
            v = np.maximum(v, self.smoothing.tau / pi)
        return np.asarray(v, dtype=np.float64)

    def increments(self, counts: npt.ArrayLike, pi: Floats, records: Ints) -> Floats:
        """s(h+1) - s(h): what one more record in the cell does to its score."""
        h = np.asarray(counts)
        return self(h + 1, pi, records) - self(h, pi, records)

    def bound(self, pi: Floats, records: Ints) -> Floats:
        """At least |s(h)| + 1 for every h = 0 .. N; sizes the slack for rounding.

        The 1 stands for the rounding of v, which reaches ln v undiminished where ln v is small.
        """
        least, most = self.ratio(0, pi, records), self.ratio(records, pi, records)
        with np.errstate(divide="ignore"):
            size = np.maximum(np.abs(np.log(least)), np.abs(np.log(most)))
        size = size + 1 + abs(self.control) * (most + 1)
        if self.correction:
            offset, slope = self.smoothing.line(pi, records)
            # a^2 h / v^2 is at most a / (4 o), and at most 1 as v >= a h.
            size = size + self.correction * np.minimum(slope / (8 * offset), 0.5)
        return np.asarray(size, dtype=np.float64)

    def extreme_increments(self, pi: Floats, records: Ints) -> "ExtremeIncrements":
        """Smallest and largest increment of each cell over h = 0 .. N-1, and where they occur.

        Increments rise where s is convex and fall where it is concave, so the extremes lie at
        h = 0, at h = N-1 or beside a count where the convexity of s changes: a handful of
        evaluations per cell, whatever N.
        """
        last = np.asarray(records - 1, dtype=np.float64)
        beside = self._bends(pi, records)[..., None] + np.arange(-2, 3)
        candidates = np.concatenate(
            [np.zeros_like(pi)[:, None], beside.reshape(len(pi), -1), last[:, None]], axis=1
        )
        candidates = np.sort(np.clip(candidates, 0, last[:, None]), axis=1)
        steps = self.increments(candidates, pi[:, None], records[:, None])
        low, high = np.argmin(steps, axis=1), np.argmax(steps, axis=1)
        row = np.arange(len(pi))
        return ExtremeIncrements(
            lowest=steps[row, low],
            lowest_at=candidates[row, low].astype(np.int64),
            highest=steps[row, high],
            highest_at=candidates[row, high].astype(np.int64),
        )

    def _bends(self, pi: Floats, records: Ints) -> Floats:
        """Whole counts at or just below each change of convexity of s; 0 where there is none.

        Without correction only the kink of a floor, at h = tau N. With correction
        s'' is proportional to v^2 - b v + 3 b o with b = rho a, which has the roots
        v = (b +- sqrt(b^2 - 12 b o)) / 2.
        """
        if isinstance(self.smoothing, Floor):
            kink: Floats = np.floor(self.smoothing.tau * records)[:, None]
            return kink
        if not self.correction:
            return np.zeros((len(pi), 0))
        offset, slope = self.smoothing.line(pi, records)
        b = self.correction * slope
        root = np.sqrt(np.maximum(b**2 - 12 * b * offset, 0.0))
        at = np.stack([b - root, b + root], axis=1) / 2
        counts: Floats = (at - offset[:, None]) / slope[:, None]
        below: Floats = np.floor(np.clip(counts, 0.0, records[:, None]))
        return below


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeIncrements:
    """Per cell: the extremes of s(h+1) - s(h) over h = 0 .. N-1 and the counts that attain them."""

    lowest: Floats
    lowest_at: Ints
    highest: Floats
    highest_at: Ints
