"""Simulated releases of simulated populations: their errors, and intervals that follow. Public.

A forecast or an interval needs the error of a release at some drift. Populations of that drift are
drawn, and what would be released of each is compared with the divergence of its very records. On a
calibration grid of all sizes of drift, this tells which divergences a value does not contradict.
What holds for the kinds of drift that are drawn need not hold for every population: such an
interval is measured, not guaranteed.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.adaptive import adaptive_law
from fedprikl.estimation.drift_model import (
    KINDS,
    SEED,
    drifted_ratios,
    ratio_divergence,
    skew_of,
)
from fedprikl.estimation.no_drift import group_sizes, multinomial
from fedprikl.estimation.noisy_counts import WHOLE, CountNoise, CountsDesign
from fedprikl.estimation.scoring import BatchCounts, Terms, cached_by_value
from fedprikl.libraries import scipy
from fedprikl.privacy import LookedMechanism, Mechanism
from fedprikl.reference import QueryPoints
from fedprikl.search import bisect_each

POPULATIONS = 8
DRAWS = 16  # of what noisy counts were before noise, in a simulation
BISECTIONS = 60
LARGEST, RATIO = 0.9, 2.0  # the largest drift that is looked at, of an empty cell's; the next one
MOST_LEVELS = 24
CAUTION = 0.6  # of the tail: kinds of drift are examples, and sizes between levels not simulated
EFFORT = 1, 400  # of adaptive noise, which is slow to simulate
NO_DRIFT = 6, 400  # the same where there is only one kind


@dataclass(frozen=True, slots=True, eq=False)
class Populations:
    """Counts of simulated populations, one a row."""

    points: QueryPoints
    records: Ints  # N_t, per batch
    counts: Ints  # (populations, points)
    everybody: Ints  # (populations, terms): the counts of all batches together

    def truths(self, score: Score) -> Floats:
        """The divergence of each population's very records, of the asked cells."""
        terms, total = Terms.of(self.points, self.records), np.asarray(self.records.sum())
        return np.asarray(score.plain(self.everybody, terms.pi, total) @ terms.weights)


@dataclass(frozen=True, slots=True)
class ValueNoise:
    """The scored sum with additive noise of known law."""

    mechanism: Mechanism
    effort: ClassVar[tuple[int, int]] = (8, 200)

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """The noise is spread evenly over its quantiles."""
        del rng
        terms = Terms.of(drawn.points, drawn.records)
        sums = terms.sums(terms.pool(drawn.counts), score)
        return np.asarray(sums[:, None] + noise_quantiles(self.mechanism, draws))


@dataclass(frozen=True, slots=True)
class AdaptiveNoise:
    """The divergence by the inverse sensitivity mechanism. Cost: 30 ms for a population."""

    epsilon: float
    contribution: int = 1  # records of whoever is protected
    effort: ClassVar[tuple[int, int]] = (4, 200)

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """The noise of each population is spread evenly over its own quantiles."""
        del rng
        found = np.empty((len(drawn.counts), draws))
        for i, counts in enumerate(drawn.counts):
            current = BatchCounts(drawn.points, counts, drawn.records)
            value, law = adaptive_law(
                current, score, epsilon=self.epsilon, contribution=self.contribution
            )
            found[i] = value + np.interp(_levels(draws), law.below, law.edges)
        return found


@dataclass(frozen=True, slots=True)
class CountsNoise:
    """Read off noisy counts of all cells and out of the domain."""

    noise: CountNoise  # on each count
    textbook: bool = False  # projected and debiased instead, as a textbook would
    effort: ClassVar[tuple[int, int]] = (8, 8)

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Simulated noise."""
        laws = (self.noise,) * drawn.points.batches
        found = CountsDesign(drawn.points, drawn.records, laws).simulate(
            np.repeat(drawn.counts, draws, axis=0),
            scores=[score.plain],
            rng=rng,
            draws=DRAWS,
            textbook=self.textbook,
        )
        return found.reshape(-1, draws)


@dataclass(frozen=True, slots=True)
class LookedNoise:
    """The divergence after a look: with adaptive noise, or above the switch with additive noise."""

    look: AdaptiveNoise
    small: AdaptiveNoise
    large: ValueNoise
    switch: float
    effort: ClassVar[tuple[int, int]] = AdaptiveNoise.effort

    @classmethod
    def of(cls, law: LookedMechanism, sensitivity: float, contribution: int) -> "LookedNoise":
        """That of a release about a number of this sensitivity."""
        return cls(
            AdaptiveNoise(law.look.epsilon, contribution),
            AdaptiveNoise(law.small.epsilon, contribution),
            ValueNoise(law.large.for_sensitivity(sensitivity)),
            law.switch,
        )

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Evenly spaced quantiles of each population's mixture of the two."""
        looks, small, large = (
            option.values(drawn, score, rng, draws)
            for option in (self.look, self.small, self.large)
        )
        above = (looks > self.switch).mean(axis=1, keepdims=True)
        both = np.hstack([small, large])
        weights = np.hstack([0 * small + 1 - above, 0 * large + above]) / draws
        order = np.argsort(both, axis=1)
        both, weights = (np.take_along_axis(each, order, axis=1) for each in (both, weights))
        below = np.cumsum(weights, axis=1) - weights / 2
        return np.stack([np.interp(_levels(draws), *row) for row in zip(below, both, strict=True)])


# How one number is released. `values` are what is released, (populations, draws); `effort` are the
# populations, and releases of each, that tell the mean error.
ReleaseOption = ValueNoise | AdaptiveNoise | LookedNoise | CountsNoise


@dataclass(frozen=True, slots=True, eq=False)
class Errors:
    """Released values less the divergence of the very records, (populations, draws)."""

    signed: Floats
    truths: Floats  # of the populations

    @property
    def mean_absolute(self) -> float:
        """E|error|."""
        return float(np.abs(self.signed).mean())

    @property
    def bias(self) -> float:
        """The mean error."""
        return float(self.signed.mean())

    @property
    def truth(self) -> float:
        """The mean divergence of the populations' very records: more than the drift's size."""
        return float(self.truths.mean())


def simulated_errors(
    points: QueryPoints,
    records: Ints,
    ratios: Floats,
    score: Score,
    release: ReleaseOption,
    *,
    design_effect: float = 1.0,
    effort: tuple[int, int] | None = None,
) -> Errors:
    """The errors of a release if P / Pi of the terms is `ratios`, or each of its rows.

    Several populations of each, each released several times (`effort`). The seed is fixed: the same
    question always gets the same answer. What the choice of points adds
    (`points.sampling_variance`) is not in it.

    >>> from fedprikl.estimation.drift_model import drifted_ratios
    >>> from fedprikl.privacy import Numbers, calibrate
    >>> from fedprikl.reference import all_points
    >>> points = all_points([0.4, 0.3, 0.2, 0.1])
    >>> noise = calibrate(Numbers(sensitivity=0.01), epsilon=1.0, law="laplace")
    >>> ratios = drifted_ratios(points.pi, "smooth", 0.1, Score())
    >>> found = simulated_errors(points, np.array([1000]), ratios, Score(), ValueNoise(noise))
    >>> round(found.mean_absolute, 4), bool(0.08 < found.truth < 0.12)
    (0.01, True)
    """
    rng, (populations, draws) = np.random.default_rng(SEED), effort or release.effort
    parts = [
        draw_populations(
            points, records, each, rng, populations=populations, design_effect=design_effect
        )
        for each in np.atleast_2d(ratios)
    ]
    drawn = Populations(
        points,
        records,
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.everybody for part in parts]),
    )
    truths = drawn.truths(score)
    return Errors(release.values(drawn, score, rng, draws) - truths[:, None], truths)


def draw_populations(
    points: QueryPoints,
    records: Ints,
    ratios: Floats,
    rng: np.random.Generator,
    *,
    populations: int = POPULATIONS,
    design_effect: float = 1.0,
) -> Populations:
    """Multinomial counts of every batch, given the ratios of the terms.

    With a design effect, records come in groups of equal ones (see `NoDrift`).
    """
    terms = Terms.of(points, records)
    chances = terms.pi * ratios
    counts = np.zeros((populations, len(points)), dtype=np.int64)
    for t, size in enumerate(records.tolist()):
        asked = np.flatnonzero(points.batch == t)
        p = chances[terms.of_point[asked]]
        # Large ratios of few sampled cells may exceed 1 together. A rest that is rounding alone is
        # none: a draw of mean 0 takes no random number, and one of mean 1e-16 does.
        rest = 1 - float(p.sum())
        cells = np.append(p, rest if rest > WHOLE else 0.0)
        for group, number in group_sizes(size, design_effect):
            drawn = multinomial(number, cells / cells.sum(), populations, rng)
            counts[:, asked] += group * drawn[:, :-1]
    everybody = terms.pool(counts)
    elsewhere = np.maximum(records.sum() - terms.records, 0)
    for group, number in group_sizes(int(records.sum()), design_effect):
        share = elsewhere * (number / records.sum())
        everybody += group * rng.poisson(share * chances, everybody.shape)
    return Populations(points, records, counts, everybody)


@cached_by_value(16)
def noise_quantiles(mechanism: Mechanism, draws: int) -> Floats:
    """Quantiles of the noise at evenly spaced levels, by bisection of its survival function."""
    levels = _levels(draws)
    reach = mechanism.standard_deviation
    while mechanism.survival(np.array([reach]))[0] > 1 - levels.max():
        reach *= 2
    ends = np.full(len(levels), reach)
    low, high = bisect_each(
        lambda noise: mechanism.survival(noise) > 1 - levels, -ends, ends, halvings=BISECTIONS
    )
    return (low + high) / 2


def _levels(draws: int) -> Floats:
    return (np.arange(draws) + 0.5) / draws


def sampling_variance(points: QueryPoints, score: Score) -> float:
    """What the choice of points adds to the variance per unit of D, at most: V R.

    With s = f(v) and E[v] = 1, the mean of the gap g(v) = f(v) - f'(1) (v - 1) is D, and
    s^2 <= R g(v) for every ratio that can occur, R the divergence's `square_ratio`. So
    E[s^2] <= R D whatever the population.
    """
    if not points.sampling_variance:
        return 0.0
    ratio = score.divergence.square_ratio(skew_of(score), 1 / points.pi_min)
    return points.sampling_variance * ratio


def vanished_ratios(mass: Floats, size: float, score: Score) -> Iterator[Floats]:
    """P / Pi if one cell, or the rarest cells, are empty: about this size, at most RATIO times it.

    Adaptive noise is largest where a cell is empty, and a drift of just this size may leave a few
    records in it.
    """
    share = mass / mass.sum()
    order = np.argsort(share, kind="stable")[:-1]  # one cell stays

    def without(cells: Ints) -> Floats:
        ratios = np.ones(len(share))
        ratios[cells] = 0.0
        return np.asarray(ratios / (share @ ratios))

    def size_without(cells: Ints) -> float:
        return float(ratio_divergence(share, without(cells), score))

    for several in (False, True):
        empty = [order[: i + 1] if several else order[[i]] for i in range(len(order))]
        at = bisect_left(empty, RATIO * size, key=size_without) - 1
        if at >= 0 and size_without(empty[at]) > size / RATIO:
            yield without(empty[at])


class GridLevel(NamedTuple):
    """The errors at one size of drift: the lowest and the highest of all its kinds."""

    truth: float
    low: float
    high: float


class CalibrationGrid:
    """The errors of a release at drifts of all sizes; each size is simulated when needed."""

    def __init__(
        self,
        points: QueryPoints,
        records: Ints,
        score: Score,
        release: ReleaseOption,
        level: float,
        design_effect: float,
    ) -> None:
        self._points, self._records, self._score = points, records, score
        self._release, self._level = release, level
        # Groups of equal records leave more cells empty than clients whose records are correlated.
        self._effects = sorted({1.0, design_effect})
        self._terms = Terms.of(points, records)
        gamma, highest = skew_of(score), 1 / points.pi_min
        self.largest = score.divergence.largest(gamma, highest)
        sizes = LARGEST * score.divergence.empty(gamma) / RATIO ** np.arange(MOST_LEVELS)
        least = len(self._terms.pi) / (8 * records.sum())  # far below what no drift gives
        if isinstance(release, ValueNoise):
            least = max(least, release.mechanism.standard_deviation / 2)
        self.sizes: Floats = np.append(0.0, sizes[sizes > least][::-1])
        self._known: dict[int, GridLevel | None] = {}
        self._sampling = sampling_variance(points, score)

    def interval(self, value: float) -> tuple[float, float]:
        """From the least to the largest divergence that the value does not contradict."""
        at = int(np.searchsorted(self.sizes, value))
        first, last = max(at - 1, 0), min(at, len(self.sizes) - 1)
        while True:
            found = [each for i in range(first, last + 1) if (each := self.at(i)) is not None]
            if not found:
                first -= 1
                continue
            low, high = _crossings(value, found, self.largest)
            if first > 0 and low < found[0].truth:
                first -= 1
            elif last + 1 < len(self.sizes) and high > found[-1].truth:
                last += 1
            else:
                return low, high

    def at(self, i: int) -> GridLevel | None:
        """The errors at the i-th size; None if there is no drift, as with one cell only."""
        if i not in self._known:
            self._known[i] = self._simulated(float(self.sizes[i]))
        return self._known[i]

    def _simulated(self, size: float) -> GridLevel | None:
        terms, score, adaptive = self._terms, self._score, isinstance(self._release, AdaptiveNoise)
        effort = (EFFORT if size > 0 else NO_DRIFT) if adaptive else None
        kinds = [
            drifted_ratios(terms.pi, kind, size, score, mass=terms.weights, nearest=True)
            for kind in (KINDS if size > 0 else KINDS[:1])
        ]
        found = [
            each for ratios in kinds if ratios is not None for each in self._of(ratios, effort)
        ]
        if not found:
            return None
        truth = max(each.truth for each in found)
        if adaptive:  # these are of about this size only
            for ratios in vanished_ratios(terms.weights, size, score):
                found += self._of(ratios, effort)
        return GridLevel(truth, min(each.low for each in found), max(each.high for each in found))

    def _of(self, ratios: Floats, effort: tuple[int, int] | None) -> list[GridLevel]:
        """The errors at these ratios, with and without groups of equal records."""
        return [
            self._bounds(
                simulated_errors(
                    self._points,
                    self._records,
                    ratios,
                    self._score,
                    self._release,
                    design_effect=effect,
                    effort=effort,
                )
            )
            for effect in self._effects
        ]

    def _bounds(self, errors: Errors) -> GridLevel:
        """Mean truth, and quantiles of the errors with what the choice of points adds."""
        tail, middle = CAUTION * (1 - self._level) / 2, errors.bias
        low, high = np.quantile(errors.signed, [tail, 1 - tail])
        z = float(scipy.special.ndtri(1 - tail))
        sampling = z * np.sqrt(self._sampling * max(errors.truth, 0.0))
        return GridLevel(
            errors.truth,
            float(middle - np.hypot(middle - low, sampling)),
            float(middle + np.hypot(high - middle, sampling)),
        )


calibration_grid = cached_by_value(16)(CalibrationGrid)  # the same one if it is asked for again


def _crossings(value: float, levels: Sequence[GridLevel], largest: float) -> tuple[float, float]:
    """The least D with D + high >= value and the largest with D + low <= value.

    Between levels the errors are interpolated, beyond the outermost they stay the same.
    """
    truths, low, high = np.array([levels[0], *levels, levels[-1]]).T
    divergences = np.append(0.0, np.maximum.accumulate(truths[1:]))
    divergences[-1] = max(largest, float(divergences[-1]))
    highs, lows = divergences + high, divergences + low
    able, also = np.flatnonzero(highs >= value), np.flatnonzero(lows <= value)
    if not able.size or not also.size:  # the noise threw the value far out of the possible range
        nearest = min(max(value, 0.0), largest)
        return nearest, nearest
    return (
        _crossing(value, divergences, highs, int(able[0]) - 1),
        _crossing(value, divergences, lows, int(also[-1])),
    )


def _crossing(value: float, divergences: Floats, bounds: Floats, i: int) -> float:
    """Where the line from the i-th to the next bound meets the value; the end if there is none."""
    if i < 0 or i + 1 == len(bounds):
        return float(divergences[max(i, 0)])
    rise = float(bounds[i + 1] - bounds[i])
    share = min(max((value - float(bounds[i])) / rise, 0.0), 1.0) if rise else 0.0
    return float(divergences[i] + share * (divergences[i + 1] - divergences[i]))
