"""Test statistics: what was released, and what it would be of populations without drift."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score, Skew
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import CountsDesign, NoisyCounts
from fedprikl.estimation.scoring import Terms
from fedprikl.privacy import Mechanism
from fedprikl.reference import OutOfDomain, QueryPoints, Spread

COUNTS = "counts"  # a statistic that is no divergence: how much noisy counts vary
LARGEST_CELL = "largest_cell"  # another: the largest deviation of a noisy count, in normal ones
OUT_OF_DOMAIN = "out_of_domain"  # another: the share of records outside of all cells
ANYTHING = (-math.inf, math.inf)
GROUPS = (2, 4, 8)  # of neighbouring cells, and of equally rare ones
RANKING = 0.2  # of the reference's records: they say which cells are rare
GROUPED_DRAWS = 400  # populations that tell how groups vary without drift
MOMENT_DRAWS = 2_000  # populations that tell how each count does
SKEWS = (1e-3, 6.0)  # a chi-square variable of 2/9 degrees of freedom has a skewness of 6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Statistic:
    """One test statistic of a release.

    Noise whose law is the same for all counts is a `mechanism`, and enters by its distribution
    function. Noise that depends on the counts is drawn: by `noise`, where that is costly, or in
    `simulated`.
    """

    name: str  # of the divergence, or "counts", "largest_cell" or "out_of_domain", which are none
    unit: str
    points: QueryPoints  # whose counts it is computed from
    records: Ints  # N_t, per batch
    observed: Callable[[NoDrift], float]  # as released
    # Of populations with these counts (draws, terms): (draws, m), m draws of the noise.
    simulated: Callable[[NoDrift, Ints, np.random.Generator], Floats]
    mechanism: Mechanism | None = None
    # The noise of populations with such counts: (draws, m), of so many draws. Costly to make.
    noise: Callable[[Ints], Callable[[np.random.Generator, int], Floats]] | None = None
    # The least and the largest value that any population has, before noise.
    possible: Callable[[NoDrift], tuple[float, float]] = lambda _: ANYTHING
    sparse: bool = False  # finds drift of few cells: see `alarm_shares`
    score: Score | None = None  # of a divergence

    def draw(self, model: NoDrift, counts: Ints, rng: np.random.Generator) -> Floats:
        """Of populations with these counts, (draws, m); without the noise of the mechanism."""
        values = self.simulated(model, counts, rng)
        if self.noise is None:
            return values
        return np.asarray(values + self.noise(counts)(rng, len(counts)))


def alarm_shares(sparse: Sequence[bool]) -> Floats:
    """The share of the false-alarm rate that each statistic of a view has.

    Half of it is for all statistics of sparse drift together, half for all others: which kind of
    drift comes is not known, and either half costs the other little. A group that is absent leaves
    its half to the other.

    >>> alarm_shares([False, False, True]).tolist(), alarm_shares([True, True]).tolist()
    ([0.25, 0.25, 0.5], [0.5, 0.5])
    """
    of_kind = np.array([sum(each is kind for each in sparse) for kind in sparse], np.float64)
    return 1 / (of_kind * len(set(sparse)))


def possible_values(score: Score, points: QueryPoints) -> tuple[float, float]:
    """The least and the largest value of a divergence, in whatever population.

    >>> from fedprikl.reference import all_points
    >>> [round(end, 2) for end in possible_values(Score(), all_points([0.6, 0.4]))]
    [0.0, 4.61]
    """
    smoothing = score.smoothing
    if not isinstance(smoothing, Skew) or score.control or not score.finite:
        return ANYTHING
    return 0.0, score.divergence.largest(smoothing.gamma, 1 / points.pi_min)


def above(values: Floats, threshold: float, mechanism: Mechanism | None) -> Floats:
    """P(statistic > threshold) of each population, from its values (populations, draws)."""
    if mechanism is None or threshold == math.inf:
        return np.asarray((values > threshold).mean(axis=1), dtype=np.float64)
    return np.asarray(mechanism.survival(threshold - values).mean(axis=1))


def scored_statistic(
    value: float, *, score: Score, points: QueryPoints, records: Ints, mechanism: Mechanism | None
) -> Statistic:
    """A scored sum with noise of one known law, or without noise."""
    terms = Terms.of(points, records)
    return Statistic(
        name=score.divergence.name,
        unit=score.unit,
        points=points,
        records=records,
        observed=lambda _: value,
        simulated=lambda _model, counts, _rng: terms.sums(counts, score)[:, None],
        mechanism=mechanism,
        possible=lambda _: possible_values(score, points),
        score=score,
    )


def overdispersion(
    noisy: Floats,
    pi: Floats,
    records: Ints,
    noise_sd: Floats,
    *,
    design_effect: float | Floats = 1.0,
) -> Floats:
    """U, the score statistic for counts that vary more than they should; near 0 without drift.

        U = sum_x N Pi / var^2 [ (h - N Pi)^2 - var ],   var = noise^2 + d N Pi (1 - Pi)

    Without noise it is Pearson's chi-square statistic, which finds a drift of some KL about equally
    well in whatever cells it is. Cells that the noise exceeds have the less weight the rarer
    they are: they can tell nothing. Cells in which clients differ most have the largest d and count
    less. `noisy` may have leading axes; all else is per term.
    """
    mean = records * pi
    return _excess(noisy, mean, noise_sd**2 + design_effect * mean * (1 - pi))


def _excess(noisy: Floats, mean: Floats, variance: Floats) -> Floats:
    if np.any(variance <= 0):
        raise InvalidInputError("A count without noise or spread tells nothing; leave it out.")
    terms = mean / variance**2 * ((noisy - mean) ** 2 - variance)
    return np.asarray(terms.sum(axis=-1), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Others:
    """What most of a reference's records say of groups that the other ones made: `by_rarity`."""

    share: Floats  # of each group, by these records alone, over that of Pi
    chance: Floats  # the variance that this has more, because they are fewer


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Which counts are added up: those of cells that often drift together.

    The noise of a group's cells averages out, a common drift adds up: a drift of many rare cells,
    each of them noise-dominated, is seen in their group.

    >>> Grouping(np.array([0, 2, 1]), np.array([0, 2])).sums(np.array([3.0, 4.0, 9.0]))
    array([12.,  4.])
    """

    order: Ints  # of the counts, group after group
    starts: Ints  # where in this order each group begins
    kind: Literal["cells", "groups", "out_of_domain"] = "groups"
    others: Others | None = None

    def sums(self, values: Floats | Ints) -> Floats:
        """Values of cells, along the last axis, added up in every group."""
        return np.asarray(np.add.reduceat(values[..., self.order], self.starts, axis=-1))

    def real(self, counts: Floats, mean: Floats, variance: Floats) -> Floats:
        """Sums of released counts, as far from their mean by Pi as those of simulated ones.

        Mean and variance are those of simulated sums. All may have leading axes.
        """
        sums, others = self.sums(counts), self.others
        if others is None:
            return sums
        off = sums - mean * others.share
        return np.asarray(mean + off * np.sqrt(variance / (variance + mean**2 * others.chance)))


def by_place(cells: Ints, number: int) -> Grouping:
    """So many groups of neighbours in the reference: bins of a number, an hour and the next one."""
    return Grouping(np.argsort(cells, kind="stable"), np.arange(number) * len(cells) // number)


def by_rarity(pi: Floats, cells: Ints, number: int, *, counted: int = 0) -> Grouping:
    """So many groups of about equally rare cells, of a Pi from `counted` records (0: exact).

    Of cells that are equally likely, the rarest of the reference are those that it happened to see
    seldom. All of them are more frequent in the population, and would be called drifted. So a
    fifth of the reference's records decides how rare a cell is, and the others what to expect.
    A cell may stand in several places, where batches count it apart.
    """
    starts = np.arange(number) * len(pi) // number
    if not counted:
        return Grouping(np.argsort(pi, kind="stable"), starts)
    held = np.rint(pi * counted).astype(np.int64)
    _, first, which = np.unique(cells, return_index=True, return_inverse=True)
    part = public_simulation().binomial(held[first], RANKING)[which]
    left = np.maximum(held - part, 0)
    found = Grouping(np.argsort(part, kind="stable"), starts)
    usual, by_others = found.sums(pi), found.sums(left) / max(left.sum(), 1) * pi.sum()
    chance = RANKING / (1 - RANKING) / (counted * usual)
    return replace(found, others=Others(by_others / usual, chance))


@lru_cache(maxsize=2)  # one model serves all populations of a simulation
def _groups_of(model: NoDrift) -> tuple[tuple[Grouping, Floats], ...]:
    """2, 4 and 8 groups of the terms: neighbours and equally rare ones; how counts of each vary.

    Clients shift the cells of a group together, so their variance is simulated.
    """
    counted = model.spread.counted if isinstance(model.spread, Spread) else 0
    numbers = [number for number in GROUPS if number < len(model.pi)]
    groupings = [by_place(model.cells, number) for number in numbers]
    groupings += [by_rarity(model.pi, model.cells, number, counted=counted) for number in numbers]
    counts = model.counts(GROUPED_DRAWS, public_simulation()) if groupings else np.zeros(0)
    return tuple((each, each.sums(counts).var(axis=0)) for each in groupings)


def variation(noisy: Floats, model: NoDrift, noise_sd: Floats, *, real: bool = False) -> Floats:
    """U of noisy counts, one per term of the model, plus U of the counts of groups of cells.

    Near 0 without drift. `noisy` may have leading axes; `real` ones were released, not simulated.
    Groups are left out where clients' records are known to be correlated, as a precaution: what
    clients have in common could add up in a group as drift does, and be too little in each cell to
    be measured there.
    """
    records = model.records_per_term
    alone = overdispersion(noisy, model.pi, records, noise_sd, design_effect=model.design_effects)
    spread = model.spread
    if spread.correlation is not None if isinstance(spread, Spread) else spread != 1:
        return alone
    for grouping, varied in _groups_of(model):
        variance, mean = grouping.sums(noise_sd**2) + varied, grouping.sums(records * model.pi)
        counts = grouping.real(noisy, mean, variance) if real else grouping.sums(noisy)
        alone = alone + _excess(counts, mean, variance)
    return alone


@lru_cache(maxsize=2)
def _moments_of(model: NoDrift) -> tuple[Floats, Floats, Floats]:
    """Mean, variance and third central moment of each count without drift, before noise.

    Simulated: they contain how clumped a client's records are in rare cells. A formula covers cells
    too rare to be simulated.
    """
    counts = model.counts(MOMENT_DRAWS, public_simulation()).astype(np.float64)
    expected = model.records_per_term * model.pi
    mean = np.where(expected < 1, expected, counts.mean(axis=0))
    formula = model.design_effects * expected * (1 - model.pi)
    off = counts - mean
    return mean, np.maximum(np.mean(off**2, axis=0), formula), np.mean(off**3, axis=0)


def normal_scores(noisy: Floats, model: NoDrift, noise_sd: Floats) -> Floats:
    """How far each noisy count is from what it is without drift, in normal deviations.

        (h - mean) / sd,   sd^2 = noise^2 + var,   var at least d N Pi (1 - Pi)

    and less far above the mean where the count's own law is skewed, by that of a shifted Gamma law
    (Wilson and Hilferty, 1931): a rare cell that few clients hold has many records now and then.
    `noisy` may have leading axes.
    """
    mean, variance, third = _moments_of(model)
    sd = np.sqrt(np.maximum(noise_sd**2 + variance, 1e-12))
    skew = np.clip(third / sd**3, *SKEWS)
    off = (noisy - mean) / sd
    root = np.cbrt(np.maximum(1 + skew * off / 2, 0.0))
    return np.where(off < 0, off, (root - 1 + skew**2 / 36) * 6 / skew)


class NoisyPopulations:
    """Noisy counts of simulated populations: one noise for all statistics of the same counts."""

    def __init__(self, design: CountsDesign) -> None:
        self._design = design
        self._held: Ints | None = None
        self._noisy: Floats = np.zeros(0)

    def of(self, held: Ints, rng: np.random.Generator) -> Floats:
        """Those of these counts (draws, terms); drawn where other counts were asked for last."""
        if held is not self._held:
            self._noisy = held + self._design.draw_noise(rng, len(held))[0]
            self._held = held
        return self._noisy


def variation_statistic(
    design: CountsDesign, counts: Floats, populations: NoisyPopulations | None = None
) -> Statistic:
    """U of public noisy counts, one per point, simulated with noise of the same law.

    The estimate itself is a poor statistic of noisy counts: the score of a noisy count is mostly
    bias. Drift makes counts vary more than their sampling and the noise explain.
    """
    noise_sd = design.noise_sd[design.points.batch]
    drawn = populations or NoisyPopulations(design)
    return Statistic(
        name=COUNTS,
        unit="",
        points=design.points,
        records=design.records,
        observed=lambda model: float(variation(counts, model, noise_sd, real=True)),
        simulated=lambda model, held, rng: variation(drawn.of(held, rng), model, noise_sd)[:, None],
    )


def largest_cell_statistic(
    design: CountsDesign, counts: Floats, populations: NoisyPopulations | None = None
) -> Statistic:
    """The largest of the `normal_scores` of public noisy counts, simulated in the same way.

    It finds what a sum over all cells hides: one cell that fades, or a rare one that grows.
    """
    noise_sd = design.noise_sd[design.points.batch]
    drawn = populations or NoisyPopulations(design)

    def largest(noisy: Floats, model: NoDrift) -> Floats:
        return np.asarray(np.abs(normal_scores(noisy, model, noise_sd)).max(axis=-1))

    def possible(model: NoDrift) -> tuple[float, float]:
        """All records in one cell, or none of them."""
        full = model.records_per_term.astype(np.float64)
        return 0.0, float(max(largest(full, model), largest(0 * full, model)))

    return Statistic(
        name=LARGEST_CELL,
        unit="",
        points=design.points,
        records=design.records,
        observed=lambda model: float(largest(counts, model)),
        simulated=lambda model, held, rng: largest(drawn.of(held, rng), model)[:, None],
        possible=possible,
        sparse=True,
    )


def out_of_domain_statistic(points: QueryPoints, noisy: NoisyCounts, law: OutOfDomain) -> Statistic:
    """The noisy share of records in cells that the reference never saw.

    One batch, all cells asked. Those of a simulated population are drawn apart from its counts,
    from the law of what the reference has missed: both rise together, so this errs towards
    fewer alarms of the two together. They are no fewer than its counts leave out.
    """
    (records,), (noise,) = noisy.records, noisy.noise

    def simulated(_model: NoDrift, held: Ints, rng: np.random.Generator) -> Floats:
        outside = np.maximum(law.draw(records, len(held), rng), records - held.sum(axis=1))
        on_count = noise.draw(rng, (len(held), 1))[:, 0]
        return np.asarray((outside + on_count) / records)[:, None]

    return Statistic(
        name=OUT_OF_DOMAIN,
        unit="",
        points=points,
        records=np.array([records]),
        observed=lambda _: noisy.out_of_domain[0] / records,
        simulated=simulated,
        possible=lambda _: (0.0, 1.0),
        sparse=True,
    )


def counts_statistics(
    points: QueryPoints, noisy: NoisyCounts, outside: OutOfDomain | None
) -> tuple[Statistic, ...]:
    """All statistics of the noisy counts of a view.

    `outside` is the law of records outside its cells. They are counted where all cells are asked of
    one batch.
    """
    design, counts = CountsDesign.of(points, noisy), np.array(noisy.counts)
    populations = NoisyPopulations(design)
    found = (
        variation_statistic(design, counts, populations),
        largest_cell_statistic(design, counts, populations),
    )
    if outside is None or points.batches > 1:
        return found
    return (*found, out_of_domain_statistic(points, noisy, outside))
