"""Verdicts: thresholds that populations without drift rarely exceed, and what exceeds them.

One engine for a release as a whole, for its columns and for a series: populations without drift are
simulated (`no_drift.py`), statistics of them computed (`statistic.py`), and thresholds found at
which all of them together keep a false-alarm rate, each with its share of it. For many columns, and
for the periods of a series, thresholds lie in smooth tails, and how deep is found by simulation
too. What the thresholds could have found is told by `findable.py`, the words by `outcome.py`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from fedprikl.checks import Floats, Ints, check_false_alarm
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.findable import findable_drift
from fedprikl.estimation.no_drift import NoDrift, public_noise, public_simulation
from fedprikl.estimation.outcome import JudgedStatistic, Verdict
from fedprikl.estimation.simulated_releases import noise_quantiles
from fedprikl.estimation.statistic import (
    ANYTHING,
    SKEWS,
    Statistic,
    above,
    alarm_shares,
)
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism
from fedprikl.search import bisect

CONFIDENCE = 0.99  # that the simulation's own error does not raise the false-alarm rate
DRAWS = 4_000
HALVINGS = 14  # of the common tail level, or depth
KNEE = 0.1  # the share of populations beyond which the tail's decay is fitted once more
TIE = 1e-9  # of depths: populations at the knee differ by rounding, and none of them is beyond it
PRIOR = 50.0  # populations beyond the knee that would agree with the Gamma law
NODES, GRID, FURTHEST = 96, 192, 45.0  # exp(-45): no threshold lies further out
QUANTILES = 64  # of noise, where a mean is wanted
TINY = 1e-300
FITTED = 2_000  # populations that the tails are fitted to, apart from those that are counted


def simulated_draws(false_alarm: float) -> int:
    """How many populations to simulate: at least 4,000, and 40 above the threshold."""
    return max(DRAWS, math.ceil(40 / check_false_alarm(false_alarm)))


@dataclass(frozen=True, eq=False)
class NullValues:
    """A statistic of many populations without drift: (populations, draws of the noise).

    With a `mechanism` its noise is not in the values yet, and there is one value per population.
    """

    values: Floats
    mechanism: Mechanism | None = None
    possible: tuple[float, float] = ANYTHING  # the least and the largest value of any population
    sparse: bool = False  # which half of the alarm rate it shares: see `alarm_shares`
    noise: Floats | None = None  # in the values, where it depends on the counts

    @property
    def mean(self) -> float:
        """Of the released value, clamped into what is possible."""
        return float(with_noise(self.values, self.mechanism).clip(*self.possible).mean())

    def above(self, threshold: float) -> Floats:
        """P(statistic > threshold), of each population."""
        return above(self.values, threshold, self.mechanism)

    def at_level(self, level: float) -> float:
        """The least threshold that a share `level` of all populations exceeds, at most."""
        if self.mechanism is None:
            return float(self._sorted[-1 - int(level * self._sorted.size)])
        low, high = _bracket(self.values, self.mechanism, level)
        return float(scipy.optimize.brentq(lambda t: self.above(t).mean() - level, low, high))

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.values, axis=None)


def with_noise(values: Floats, mechanism: Mechanism | None) -> Floats:
    """Values (populations, m) as they are released: with noise at many of its quantiles."""
    if mechanism is None:
        return values
    return np.asarray(values[:, :1] + noise_quantiles(mechanism, QUANTILES))


def any_above(nulls: Sequence[NullValues], thresholds: Sequence[float]) -> Floats:
    """P(any statistic above its threshold), of each population; noises are independent."""
    calm = [1 - null.above(t) for null, t in zip(nulls, thresholds, strict=True)]
    return np.asarray(1 - np.prod(calm, axis=0))


def joint_thresholds(nulls: Sequence[NullValues], *, false_alarm: float) -> tuple[float, ...]:
    """A threshold for each statistic: P(any exceeds its own) <= false_alarm without drift.

    Statistics exceed their thresholds in proportion to their `alarm_shares`. The values are of the
    same populations; given one, the noises of different statistics are independent, so that

        P(any | population) = 1 - product over statistics of (1 - P(above | population))

    and its upper 99% confidence limit over the populations stays within the rate, as in
    `alarm_threshold`. Infinite: the statistic is hopeless, and has no share of the rate.
    """
    rate = _check_draws(len(nulls[0].values), false_alarm)
    return hopeful_thresholds(nulls, lambda some: _joint([nulls[i] for i in some], rate))


def hopeful_thresholds(
    nulls: Sequence[NullValues], thresholds: Callable[[Sequence[int]], Sequence[float]]
) -> tuple[float, ...]:
    """The thresholds of all statistics that some population could exceed; of others infinite.

    A threshold that is not below the largest possible value is exceeded by noise alone. The most
    hopeless statistic is left out, and `thresholds` are found again for the others. That depends
    on the design only.
    """
    hopeful = list(range(len(nulls)))
    while hopeful:
        found = thresholds(hopeful)
        largest = [max(nulls[i].possible[1], TINY) for i in hopeful]
        excess = np.array(found) / largest
        if excess.max() < 1:
            known = dict(zip(hopeful, found, strict=True))
            return tuple(known.get(i, math.inf) for i in range(len(nulls)))
        del hopeful[int(np.argmax(excess))]
    return (math.inf,) * len(nulls)


def _joint(nulls: Sequence[NullValues], rate: float) -> tuple[float, ...]:
    """Thresholds for statistics of the same populations, hopeless or not."""
    if len(nulls) == 1 and nulls[0].values.shape[1] == 1:
        return (alarm_threshold(nulls[0].values[:, 0], nulls[0].mechanism, false_alarm=rate),)
    shares = alarm_shares([null.sparse for null in nulls])

    def thresholds(level: float) -> tuple[float, ...]:
        levels = (level * shares).tolist()
        return tuple(null.at_level(each) for null, each in zip(nulls, levels, strict=True))

    def fits(level: float) -> bool:
        return upper_limit(any_above(nulls, thresholds(level))) <= rate

    # By the union bound a quarter of the rate fits; no statistic alone has more than all of it.
    return thresholds(bisect(fits, rate / 4, rate / float(shares.max()), halvings=HALVINGS)[0])


def alarm_threshold(values: Floats, mechanism: Mechanism | None, *, false_alarm: float) -> float:
    """The least t with P(value + noise > t) <= false_alarm, in the unit of the values.

    `values` are draws of the value before noise without drift; the noise enters by its exact
    distribution function F. With S_i = 1 - F(t - value_i) over n draws, and z the 99% point of the
    normal law, t solves

        mean(S) + z sd(S) / sqrt(n) + z^2 / (2n) = false_alarm

    an upper 99% confidence limit of the false-alarm rate, so that the error of the simulation
    makes t too large rather than too small.
    """
    rate = _check_draws(len(values), false_alarm)
    if mechanism is None:
        return _order_statistic(values, rate)

    def excess(t: float) -> float:
        return upper_limit(mechanism.survival(t - values)) - rate

    return float(scipy.optimize.brentq(excess, *_bracket(values, mechanism, rate)))


def _check_draws(draws: int, false_alarm: float) -> float:
    rate = check_false_alarm(false_alarm)
    if draws < 40 / rate - 1e-6:
        raise InvalidInputError(
            f"A false-alarm rate of {rate:g} needs at least {math.ceil(40 / rate)} simulated "
            f"populations, got {draws}."
        )
    return rate


def _bracket(values: Floats, mechanism: Mechanism, level: float) -> tuple[float, float]:
    reach = -2 * math.log(level) * mechanism.standard_deviation
    return float(values.min() - reach), float(values.max() + 3 * reach)


def upper_limit(samples: Floats) -> float:
    """Of the mean that independent samples are drawn with: 99% confidence."""
    z, n = float(scipy.special.ndtri(CONFIDENCE)), len(samples)
    return float(samples.mean() + z * samples.std() / math.sqrt(n) + z**2 / (2 * n))


def _order_statistic(values: Floats, rate: float) -> float:
    """The same without noise: as many values may exceed t as the limit allows."""
    n, z = len(values), float(scipy.special.ndtri(CONFIDENCE))
    share = np.arange(n) / n
    limits = share + z * np.sqrt(share * (1 - share) / n) + z**2 / (2 * n)
    above = int(np.flatnonzero(limits <= rate)[-1])
    return float(np.sort(values)[n - 1 - above])


def simulate_together(
    statistics: Sequence[Statistic],
    model: NoDrift,
    *,
    draws: int,
    rng: np.random.Generator | None = None,
    populations: Iterable[Ints] | None = None,
) -> tuple[NullValues, ...]:
    """All statistics of the same simulated populations without drift.

    `populations` are as many counts of the model, where they were drawn already. Without a
    generator, a plan and a release of as many records have the same populations and noise.
    """
    if populations is None:
        populations = model.chunks(draws, rng or public_simulation())
    rng, found = rng or public_noise(), [list[Floats]() for _ in statistics]
    noises, draw = [list[Floats]() for _ in statistics], None
    for counts in populations:
        if draw is None:  # the first one's costly noise serves all: it differs little
            draw = [each.noise and each.noise(counts) for each in statistics]
        for values, noise, statistic, drawn in zip(found, noises, statistics, draw, strict=True):
            values.append(statistic.simulated(model, counts, rng))
            if drawn is not None:
                noise.append(drawn(rng, len(counts)))
                values[-1] = values[-1] + noise[-1]
    return tuple(
        NullValues(
            np.concatenate(values),
            statistic.mechanism,
            statistic.possible(model),
            statistic.sparse,
            np.concatenate(noise) if noise else None,
        )
        for values, noise, statistic in zip(found, noises, statistics, strict=True)
    )


def judge_together(
    statistics: Sequence[Statistic],
    model: NoDrift,
    nulls: Sequence[NullValues] | None = None,
    *,
    false_alarm: float,
) -> Verdict:
    """The verdict on all statistics of a release: drift, if any is above its threshold.

    `nulls` are those of `simulate_together`, where they are known already.
    """
    if nulls is None:
        nulls = simulate_together(statistics, model, draws=simulated_draws(false_alarm))
    thresholds = joint_thresholds(nulls, false_alarm=false_alarm)
    return _verdict(statistics, model, nulls, thresholds, false_alarm)


def _verdict(
    statistics: Sequence[Statistic],
    model: NoDrift,
    nulls: Sequence[NullValues],
    thresholds: Sequence[float],
    false_alarm: float,
) -> Verdict:
    """What was released, beside the thresholds; hopeless statistics are left out."""
    judged, noises, shown = [], [], []
    for statistic, null, limit in zip(statistics, nulls, thresholds, strict=True):
        if limit == math.inf:
            continue
        least, largest = null.possible
        threshold = max(limit, least)  # so that a value that is clamped exceeds it no sooner
        judged.append((statistic, threshold))
        noises.append(null.noise)
        shown.append(
            JudgedStatistic(
                name=statistic.name,
                value=min(max(statistic.observed(model), least), largest),
                threshold=threshold,
                unit=statistic.unit,
            )
        )
    can_tell, findable = findable_drift(judged, model, noises)
    return Verdict(
        statistics=tuple(shown),
        false_alarm=false_alarm,
        design_effect=model.design_effect,
        can_tell=can_tell,
        findable=findable,
    )


def gamma_like_deviate(normal: Floats, skew: Floats | float) -> Floats:
    """Of mean 0, sd 1 and some skewness, from standard normal ones: a shifted Gamma law.

        x = (2 / s) [ max(0, 1 - s^2 / 36 + s z / 6)^3 - 1 ]        Wilson and Hilferty (1931)

    >>> gamma_like_deviate(np.array([3.0]), 1.0).round(2).tolist()  # exactly: 4.34
    [4.38]
    """
    s = np.where(np.abs(skew) < SKEWS[0], SKEWS[0], skew)
    root = np.maximum(1 - s**2 / 36 + s * normal / 6, 0.0)
    return np.asarray(2 / s * (root**3 - 1))


@dataclass(frozen=True, slots=True)
class SmoothTail:
    """A statistic's law without drift, by its upper tail.

    A shifted Gamma law with the mean, deviation and skewness of a sample, whose upper tenth decays
    as fast as that of the sample: on the scale of depths, -ln P, the law is stretched beyond its
    knee. Sums of squares of Laplace noise, or counts of few clients, have heavier tails than a
    Gamma law of the same moments.
    """

    mean: float
    sd: float
    skew: float = SKEWS[0]
    knee: float = -math.log(KNEE)  # depth by the Gamma law, where the sample's is ln 10
    stretch: float = 1.0  # depth by the Gamma law, per depth beyond it

    @classmethod
    def of(cls, values: Floats) -> "SmoothTail":
        """Fitted to values of populations without drift."""
        mean, sd = float(values.mean()), float(values.std())
        least = 1e-12 * (1 + abs(mean))  # values that never differ
        apart = values - mean
        skew = float(np.mean(apart * apart * apart)) / max(sd, least) ** 3  # a power takes longer
        law = cls(mean, max(sd, least), min(max(skew, SKEWS[0]), SKEWS[1]))
        # Depths increase with values: only the largest need one, and the two next to the knee.
        place, part = divmod((1 - KNEE) * (len(values) - 1), 1)
        upper = np.partition(values, int(place))[int(place) :]
        depths = law._plain_depth(upper)
        nearest = np.partition(depths, min(1, len(depths) - 1))[:2]
        knee = float(nearest[0] + part * (nearest[-1] - nearest[0]))
        beyond = depths[depths > knee + TIE] - knee
        stretch = (beyond.sum() + PRIOR) / (len(beyond) + PRIOR)
        return cls(law.mean, law.sd, law.skew, max(knee, 0.1), stretch)

    def at(self, depth: Floats) -> Floats:
        """What is exceeded with probability exp(-depth)."""
        ordinary = -math.log(KNEE)
        inner = depth * (self.knee / ordinary)
        outer = self.knee + (depth - ordinary) * self.stretch
        normal = -scipy.special.ndtri_exp(-np.where(depth <= ordinary, inner, outer))
        return np.asarray(self.mean + self.sd * gamma_like_deviate(normal, self.skew))

    def depth(self, values: Floats) -> Floats:
        """-ln P(more than this), about: the inverse of `at`."""
        ordinary, found = -math.log(KNEE), self._plain_depth(values)
        beyond = ordinary + (found - self.knee) / self.stretch
        return np.where(found <= self.knee, found * (ordinary / self.knee), beyond)

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about."""
        return float(self.at(np.array(depth)))

    def _plain_depth(self, values: Floats) -> Floats:
        """By the Gamma law alone."""
        s = self.skew
        root = np.cbrt(np.maximum(1 + s * (values - self.mean) / (2 * self.sd), 0.0))
        return np.asarray(-scipy.special.log_ndtr(-(root - 1 + s**2 / 36) * 6 / s))


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTail:
    """A smooth law plus noise of a known law."""

    values: Floats  # increasing
    depths: Floats  # of each, increasing

    @classmethod
    def of(cls, before: SmoothTail, mechanism: Mechanism) -> "NoisyTail":
        """P(more than x) is a mean of the noise's survival function over the law before noise."""
        nodes, weights = _nodes(before)
        reach = mechanism.standard_deviation
        while mechanism.survival(np.array([reach]))[0] > math.exp(-FURTHEST):
            reach *= 1.5
        # Values of high probability stand close together, far ones apart.
        ends = np.geomspace(1, 1 + (nodes[-1] - nodes[0] + 2 * reach) / reach * 8, GRID) - 1
        values = nodes[0] - reach + ends * reach / 8
        above = mechanism.survival(values[:, None] - nodes) @ weights
        depths = -np.log(np.clip(above, math.exp(-2 * FURTHEST), 1.0))
        kept = np.concatenate([[True], np.diff(np.maximum.accumulate(depths)) > 0])
        return cls(values[kept], depths[kept])

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about; straight on beyond the grid."""
        if depth > self.depths[-1]:
            slope = (self.values[-1] - self.values[-2]) / (self.depths[-1] - self.depths[-2])
            return float(self.values[-1] + (depth - self.depths[-1]) * slope)
        return float(np.interp(depth, self.depths, self.values))


def tail_of(values: Floats, mechanism: Mechanism | None) -> SmoothTail | NoisyTail:
    """The smooth law of a statistic: values without drift, plus the mechanism's noise."""
    before = SmoothTail.of(values)
    return before if mechanism is None else NoisyTail.of(before, mechanism)


def _nodes(law: SmoothTail) -> tuple[Floats, Floats]:
    """Points of a law, increasing, and the probability each stands for; fine in the upper tail."""
    upper = np.linspace(math.log(2), FURTHEST, NODES)
    lower = -np.log1p(-np.geomspace(1e-9, 0.5, NODES // 2))
    edges = np.concatenate([[0.0], lower[:-1], upper, [math.inf]])
    chances = np.exp(-edges)
    weights = chances[:-1] - chances[1:]
    middle = -np.log((chances[:-1] + chances[1:]) / 2)
    return np.sort(law.at(middle)), weights


Judged = tuple[NoDrift, Sequence[Statistic]]  # a view: the law of its counts, its statistics


@dataclass(frozen=True, slots=True, eq=False)
class ColumnNull:
    """The statistics of one column without drift: smooth tails, and values of other populations."""

    tails: tuple[SmoothTail | NoisyTail, ...]
    values: tuple[NullValues, ...]

    @classmethod
    def simulate(cls, column: Judged, draws: int, rng: np.random.Generator) -> "ColumnNull":
        """All statistics of the same populations, of which the first ones fit the tails."""
        model, statistics = column
        drawn = simulate_together(statistics, model, draws=FITTED + draws, rng=rng)
        return cls(
            tuple(tail_of(null.values[:FITTED].ravel(), null.mechanism) for null in drawn),
            tuple(replace(null, values=null.values[FITTED:]) for null in drawn),
        )

    def thresholds(self, depth: float) -> tuple[float, ...]:
        """Of each statistic, in its unit: the deeper the less of the alarm rate it has."""

        def of_some(places: Sequence[int]) -> list[float]:
            shares = alarm_shares([self.values[i].sparse for i in places]).tolist()
            deeper = [depth - math.log(share) for share in shares]
            return [self.tails[i].threshold(d) for i, d in zip(places, deeper, strict=True)]

        return hopeful_thresholds(self.values, of_some)

    def alarms(self, depth: float) -> Floats:
        """P(any statistic above its threshold), of each counted population."""
        return any_above(self.values, self.thresholds(depth))


def least_depth(fits: Callable[[float], bool], guess: float, *, halvings: int) -> float:
    """The least depth that fits, where all deeper ones do; found from a guess upwards."""
    low, high = 0.0, guess
    while not fits(high):
        low, high = high, 2 * high
    return bisect(fits, high, low, halvings=halvings)[0]


def common_depth(columns: Sequence[ColumnNull], alarms: float) -> float:
    """The least depth at which at most so many columns without drift raise an alarm, on average.

    The mean number of alarms is the sum of the columns' rates, however columns depend on each
    other, and at least the probability of any. It is counted on simulated populations, with
    an upper 99% confidence limit, whatever the tails look like.
    """

    def fits(depth: float) -> bool:
        return upper_limit(np.sum([each.alarms(depth) for each in columns], axis=0)) <= alarms

    return least_depth(fits, math.log(len(columns) / alarms) + 1, halvings=HALVINGS)


def judge_columns(
    columns: Sequence[Judged],
    *,
    false_alarm: float,
    control: Literal["family", "discovery"] = "family",
) -> tuple[Verdict, ...]:
    """The verdicts on all columns of a release, together.

    "family": the probability that any column is called drifted, if none is, is at most
    `false_alarm`. That holds however columns depend on each other, by the union bound; columns that
    go together raise fewer alarms. Columns without drift are rarely called drifted also where
    others are.

    "discovery": of the columns called drifted, a share of at most `false_alarm` has not, on average
    (Benjamini and Hochberg, 1995): the most columns, k, that lie as deep as k false_alarm alarms on
    average. That holds for columns that are independent, or positively dependent.

    The simulation is public and has a fixed seed. Cost: 20 ms a column of 12 cells.

    >>> from fedprikl.divergence import TV, Score, Skew
    >>> from fedprikl.estimation.statistic import scored_statistic
    >>> from fedprikl.privacy import Numbers, calibrate
    >>> from fedprikl.reference import all_points
    >>> points = all_points([0.5, 0.3, 0.2])
    >>> noise = calibrate(Numbers(sensitivity=0.002), epsilon=1.0, law="laplace")
    >>> records, score = np.array([5000]), Score(Skew(0.01), TV)
    >>> def column(tv):
    ...     statistic = scored_statistic(
    ...         tv, score=score, points=points, records=records, mechanism=noise
    ...     )
    ...     return NoDrift.of(points, records, 1.0), [statistic]
    >>> found = judge_columns([column(0.01), column(0.05)], false_alarm=0.01)
    >>> [each.drifted for each in found]
    [False, True]
    """
    rate = check_false_alarm(false_alarm)
    if control not in ("family", "discovery"):
        raise InvalidInputError(
            f"False alarms are controlled over the 'family' or by 'discovery', got {control!r:.40}."
        )
    if not columns:
        return ()
    rng, draws = public_simulation(), simulated_draws(rate)
    nulls = [ColumnNull.simulate(column, draws, rng) for column in columns]

    def drifted(thresholds: Sequence[Sequence[float]]) -> int:
        return sum(
            any(each.observed(model) > t for each, t in zip(statistics, limits, strict=True))
            for (model, statistics), limits in zip(columns, thresholds, strict=True)
        )

    expected = 1 if control == "family" else len(columns)
    while True:  # the largest number of columns that are as many as were expected
        depth = common_depth(nulls, rate * expected)
        thresholds = [null.thresholds(depth) for null in nulls]
        if expected == 1 or (found := drifted(thresholds)) >= expected:
            break
        expected = max(found, 1)
    return tuple(
        _verdict(statistics, model, null.values, limits, rate)
        for (model, statistics), null, limits in zip(columns, nulls, thresholds, strict=True)
    )
