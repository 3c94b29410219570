"""The score of a count, its smoothing, and how much one more record can change it.

A smoothing is a public rule, fixed before any data is seen, that keeps scores finite. It turns the
count h of a cell into an effective ratio v(h) = P'(x) / Pi(x). The paper calls P' the "prespecified
effective distribution" [rem:min_occurance]; it is the target of the estimate, and `str` describes
it.

>>> str(Skew(0.01)), str(Floor(0.001))
('0.01 Pi + 0.99 P', 'max(P, 0.001)')
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
import numpy.typing as npt

from fedprikl.checks import Floats, Ints, check_finite, check_open_unit, check_positive_int
from fedprikl.divergence.divergences import KL, Divergence, check_skew
from fedprikl.errors import InvalidInputError

Line = tuple[Floats, Floats]  # offset and slope of v(h) = offset + slope h


@dataclass(frozen=True, slots=True)
class Skew:
    """P' = gamma Pi + (1 - gamma) P: the default, with the same effect on every cell.

    With gamma = 0, P' = P. Where f(0) is infinite, as for KL, an empty cell then has an infinite
    score, and no noise can make it private.

    >>> str(Skew(0.0))
    'P'
    """

    gamma: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check_skew(self.gamma))

    def line(self, pi: Floats, records: Ints) -> Line:
        """v = gamma + (1 - gamma) h / (N Pi)."""
        return np.full(np.shape(pi), self.gamma), (1 - self.gamma) / (records * pi)

    def __str__(self) -> str:
        return f"{self.gamma:g} Pi + {1 - self.gamma:g} P" if self.gamma else "P"


@dataclass(frozen=True, slots=True)
class Additive:
    """P' = (h + pseudo) / (N + pseudo |X|): Laplace smoothing, the paper's suggestion.

    Not negligible on large domains: on 2^16 cells it pulls every P' towards uniform.
    """

    pseudo: float
    cells: int

    def __post_init__(self) -> None:
        check_positive_int(self.cells, "cells")
        if check_finite(self.pseudo, "pseudo") <= 0:
            raise InvalidInputError(f"The pseudo-count must be above 0, got {self.pseudo}.")

    def line(self, pi: Floats, records: Ints) -> Line:
        """v = (h + pseudo) / ((N + pseudo |X|) Pi)."""
        slope = 1 / ((records + self.pseudo * self.cells) * pi)
        return self.pseudo * slope, slope

    def __str__(self) -> str:
        return f"P with {self.pseudo:g} added to each of {self.cells} cells"


@dataclass(frozen=True, slots=True)
class Floor:
    """P' = max(P, tau): the paper's clipping in the baseline [alg:sys_dist]. Not a distribution."""

    tau: float

    def __post_init__(self) -> None:
        tau = check_open_unit(
            self.tau, "tau", "It is the smallest frequency that counts; try 1e-4."
        )
        object.__setattr__(self, "tau", tau)

    def line(self, pi: Floats, records: Ints) -> Line:
        """v before the floor: h / (N Pi)."""
        return NO_SKEW.line(pi, records)

    def __str__(self) -> str:
        return f"max(P, {self.tau:g})"


DEFAULT_SKEW, NO_SKEW = Skew(), Skew(0.0)
Smoothing = Skew | Additive | Floor


@dataclass(frozen=True, slots=True)
class Score:
    """s(h), the public function of one cell's count whose weighted sum is the estimate.

        s(h) = max( lambda (v - 1) + f(v),   s(0) - c h / |w| )

    with v(h) = o + a h the effective ratio of the smoothing and f the convex function of the
    divergence. For KL, f(v) = -ln v                                    [lem:estimator_sum_expect].

    `correction`: f of a sample is biased upwards, by about f''(v) Var(v) / 2, and Var(v) is close
    to rho a^2 h, where rho is the share of the population outside the sample (`outside`): counts
    of everybody are no sample. What is done about it is the divergence's own; KL has
    -ln(v + rho a^2 h / (2 v)). 0 switches it off, 1 is full, and more is right where records of one
    client are correlated and counts vary more (by the design effect).

    `maximum_step` (c): what noise hides is the maximum step, the first record of an empty cell.
    Clipping lets no record lower `weight * s` by more than c. The line starts at s(0), so a cell
    that vanished still scores exactly; cells that nearly vanished score a little high.

    All methods broadcast over `counts`, `pi` (Pi(x)), `records` (N of the cell's sample),
    `outside` and `weights`.

    >>> from fedprikl.divergence import Skew
    >>> score = Score(Skew(0.01))
    >>> score.target, score.unit
    ('D(Pi || 0.01 Pi + 0.99 P)', 'nats')
    >>> pi, records = np.array([0.2]), np.array([50])
    >>> score([0, 5, 20], pi, records).round(3).tolist()
    [4.605, 0.683, -0.688]
    >>> Score(Skew(0.01), maximum_step=0.4)([0, 1, 10], pi, records).round(3).tolist()
    [4.605, 4.205, 0.605]
    """

    smoothing: Smoothing = DEFAULT_SKEW
    divergence: Divergence = KL
    _: KW_ONLY
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
        if isinstance(self.smoothing, Floor) or not self.finite:
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
        """s(h) per entry; infinite at most for an empty cell without smoothing."""
        h = np.asarray(counts, dtype=np.float64)
        variance = None
        if self.correction:
            _, slope = self.smoothing.line(pi, records)
            variance = self.correction * np.asarray(outside) * slope**2 * h
        scores = self.of_ratio(self.ratio(h, pi, records), variance)
        empty = self.of_ratio(self.ratio(0, pi, records), None)
        return clip_steps(scores, empty, h, weights, self.maximum_step)

    def of_ratio(self, v: Floats, variance: Floats | None) -> Floats:
        """lambda (v - 1) + f(v), corrected for this variance of v; before clipping."""
        f = self.divergence.f(v) if variance is None else self.divergence.corrected(v, variance)
        return np.asarray(self.control * (v - 1) + f if self.control else f, dtype=np.float64)

    @property
    def finite(self) -> bool:
        """Whether an empty cell has a finite score: without a skew only if f(0) is finite."""
        smoothing = self.smoothing
        return not isinstance(smoothing, Skew) or self.divergence.empty(smoothing.gamma) < math.inf

    @property
    def plain(self) -> "Score":
        """f(v) alone: without lambda, correction and clipping. What a count of everybody scores."""
        return Score(self.smoothing, self.divergence)

    @property
    def target(self) -> str:
        """What the estimate is of, in words."""
        return self.divergence.target(str(self.smoothing))

    @property
    def unit(self) -> str:
        """Of the estimate."""
        return self.divergence.unit

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
        """At least |s(h)| + 1 for every h = 0 .. N; sizes the slack for rounding."""
        _, slope = self.smoothing.line(pi, records)
        least, most = self.ratio(0, pi, records), self.ratio(records, pi, records)
        # Var(v) is at most correction a^2 h, and a h <= v.
        size = self.divergence.size(least, most, self.correction * slope)
        return np.asarray(size + abs(self.control) * (most + 1), dtype=np.float64)

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
        law = {
            "outside": np.broadcast_to(outside, pi.shape)[:, None],
            "weights": np.broadcast_to(weights, pi.shape)[:, None],
        }

        def steps_at(counts: Floats) -> Floats:
            return self.increments(counts, pi[:, None], records[:, None], **law)

        steps = steps_at(candidates)
        row, low, high = np.arange(len(pi)), np.zeros(len(pi), np.int64), np.ones(len(pi), np.int64)
        if isinstance(self.smoothing, Floor):  # else rounding must not choose between equal steps
            low, high = np.argmin(steps, axis=1), np.argmax(steps, axis=1)
        found = ExtremeIncrements(
            lowest=steps[row, low],
            lowest_at=candidates[row, low].astype(np.int64),
            highest=steps[row, high],
            highest_at=candidates[row, high].astype(np.int64),
        )
        if not self.divergence.proved:
            self._check_extremes(found, records, steps_at)
        return found

    def _check_extremes(
        self, found: "ExtremeIncrements", records: Ints, steps_at: Callable[[Floats], Floats]
    ) -> None:
        """Refuses a score that is not convex on the very counts that may occur, as far as looked.

        The noise rests on it, and `register` cannot look at every cell and skew.
        """
        near, far = np.arange(16.0), np.geomspace(1.0, max(2.0, float(records.max())), 64)
        looked = np.minimum(np.concatenate([near, np.floor(far)]), records[:, None] - 1.0)
        steps = steps_at(looked)
        slack = 1e-9 * (1 + np.abs(found.lowest) + np.abs(found.highest))
        low, high = found.lowest - slack, found.highest + slack
        if np.any(steps < low[:, None]) or np.any(steps > high[:, None]):
            raise InvalidInputError(
                f"Scores of the divergence {self.divergence.name!r} are not convex in the count: "
                "the noise would be too small. Nothing was released; mend its `f` or `corrected`."
            )


def clip_steps(
    scores: Floats, empty: Floats, counts: Floats, weights: npt.ArrayLike, maximum_step: float
) -> Floats:
    """Clipped scores: raised to the line of `maximum_step` that starts at the `empty` cell's score.

    >>> clip_steps(np.array([4.6, 1.0]), np.array(4.6), np.array([0.0, 1.0]), 0.5, 1.0).tolist()
    [4.6, 2.5999999999999996]
    """
    if maximum_step == math.inf:
        return scores
    clipped: Floats = np.maximum(scores, empty - maximum_step * counts / np.abs(weights))
    return clipped


@dataclass(frozen=True, slots=True, eq=False)
class ExtremeIncrements:
    """Per cell: the extremes of s(h+1) - s(h) over h = 0 .. N-1 and the counts that attain them."""

    lowest: Floats
    lowest_at: Ints
    highest: Floats
    highest_at: Ints


class CellScores:
    """w s(h) of some of the cells at some counts; the same number as `score` itself gives.

    >>> pi = np.array([0.2, 0.8])
    >>> scores = CellScores(Score(), pi, np.array([50, 50]), outside=0.0, weights=pi)
    >>> scores(np.array([0]), np.array([0, 5])).round(3).tolist()
    [0.921, 0.137]
    """

    def __init__(
        self,
        score: Score,
        pi: Floats,
        records: Ints,
        *,
        outside: npt.ArrayLike = 1.0,
        weights: Floats,
    ) -> None:
        if isinstance(score.smoothing, Floor):
            raise InvalidInputError("Scores with a floor are no line of the count; use `Score`.")
        self._score, self._weights = score, weights
        self._offset, self._slope = score.smoothing.line(pi, records)
        self._empty = score.of_ratio(self._offset, None)
        variance = score.correction * np.asarray(outside) * self._slope**2
        self._variance = variance if np.any(variance) else None

    def __call__(self, cells: Ints, counts: Ints) -> Floats:
        """Of `cells` (positions) at `counts`; both broadcast."""
        weights, h = self._weights[cells], np.asarray(counts, dtype=np.float64)
        variance = None if self._variance is None else self._variance[cells] * h
        found = self._score.of_ratio(self._offset[cells] + self._slope[cells] * h, variance)
        step = self._score.maximum_step
        return weights * clip_steps(found, self._empty[cells], h, weights, step)
