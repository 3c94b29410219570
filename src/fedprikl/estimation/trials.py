"""Trials: simulated releases of simulated populations, from public quantities only.

A forecast or an interval needs the error of a release at some drift. Populations of that drift are
drawn, and what would be released of each is compared with the divergence of its very records.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation.adaptive import adaptive_law
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.no_drift import group_sizes, multinomial
from fedprikl.estimation.noisy_counts import WHOLE, CountNoise, CountsDesign
from fedprikl.estimation.scoring import BatchCounts, Terms
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints
from fedprikl.search import bisect_each

POPULATIONS = 8
RESAMPLES = 10  # of the debiasing of noisy counts, in a trial
BISECTIONS = 60


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


class Release(Hashable, Protocol):
    """How one number is released."""

    effort: ClassVar[tuple[int, int]]  # populations, and releases of each, that tell the mean error

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Released values, (populations, draws)."""
        ...


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
        sums = terms.scores(terms.pool(drawn.counts), score) @ terms.weights
        noise: Floats = noise_quantiles(cast(Any, self.mechanism), draws)
        return np.asarray(sums[:, None] + noise)


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
    """Read off noisy counts of all cells and out of the domain, projected and debiased."""

    noise: CountNoise  # on each count
    shrink: bool = True  # see `CountsDesign.debias`
    resamples: int = RESAMPLES  # of the debiasing: few add errors of their own
    effort: ClassVar[tuple[int, int]] = (8, 8)

    def values(
        self, drawn: Populations, score: Score, rng: np.random.Generator, draws: int
    ) -> Floats:
        """Simulated noise."""
        rows, batches = len(drawn.counts), drawn.points.batches
        design = CountsDesign(drawn.points, drawn.records, (self.noise,) * batches)
        counts = np.repeat(drawn.counts, draws, axis=0)
        records = np.broadcast_to(drawn.records, (rows * draws, batches))
        on_counts, on_outside = design.draw_noise(rng, rows * draws)
        found, _ = design.debias(
            counts + on_counts,
            records - design.asked(counts) + on_outside,
            records,
            score=score.plain,
            rng=rng,
            resamples=self.resamples,
            shrink=self.shrink,
        )
        return found.reshape(rows, draws)


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
    def root_mean_square(self) -> float:
        """Of the errors."""
        return float(np.sqrt(np.mean(self.signed**2)))

    @property
    def bias(self) -> float:
        """The mean error."""
        return float(self.signed.mean())

    @property
    def truth(self) -> float:
        """The mean divergence of the populations' very records: more than the drift's size."""
        return float(self.truths.mean())

    def quantiles(self, probabilities: Floats) -> Floats:
        """Of the errors of all populations together."""
        return np.asarray(np.quantile(self.signed, probabilities))


def trial_errors(
    points: QueryPoints,
    records: Ints,
    ratios: Floats,
    score: Score,
    release: Release,
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
    >>> found = trial_errors(points, np.array([1000]), ratios, Score(), ValueNoise(noise))
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


@lru_cache(maxsize=16)
def noise_quantiles(mechanism: Any, draws: int) -> Floats:
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
