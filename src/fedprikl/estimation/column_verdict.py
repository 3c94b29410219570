"""Which columns drifted: one false-alarm rate for all of them.

Every column has statistics, and every statistic a threshold. All thresholds lie equally deep in the
tails of populations without drift (`column_tails.py`), and how deep is found by simulation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fedprikl.checks import Floats, check_false_alarm, check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.statistic import (
    JudgedStatistic,
    NullValues,
    Statistic,
    judged_statistics,
    simulated_draws,
    upper_limit,
)
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints, Spread
from fedprikl.search import bisect

SKEWS = (1e-3, 6.0)  # a chi-square variable of 2/9 degrees of freedom has a skewness of 6
KNEE = 0.1  # the share of populations beyond which the tail's decay is fitted once more
TIE = 1e-9  # of depths: populations at the knee differ by rounding, and none of them is beyond it
PRIOR = 50.0  # populations beyond the knee that would agree with the Gamma law
NODES, GRID, FURTHEST = 96, 192, 45.0  # exp(-45): no threshold lies further out
FITTED = 2_000  # populations that the tails are fitted to, apart from those that are counted
HALVINGS = 14


class Tail(Protocol):
    """A statistic's law without drift, by its upper tail."""

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about; increasing in `depth`."""
        ...


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
class GammaLike:
    """A shifted Gamma law with the mean, deviation and skewness of a sample."""

    mean: float
    sd: float
    skew: float

    @classmethod
    def of(cls, values: Floats) -> "GammaLike":
        """With the first three moments of these values."""
        mean, sd = float(values.mean()), float(values.std())
        least = 1e-12 * (1 + abs(mean))  # values that never differ
        skew = float(np.mean((values - mean) ** 3)) / max(sd, least) ** 3
        return cls(mean, max(sd, least), min(max(skew, SKEWS[0]), SKEWS[1]))

    def at(self, depth: Floats) -> Floats:
        """What is exceeded with probability exp(-depth)."""
        normal = -scipy.special.ndtri_exp(-depth)
        return np.asarray(self.mean + self.sd * gamma_like_deviate(normal, self.skew))

    def depth(self, values: Floats) -> Floats:
        """-ln P(more than this)."""
        s = self.skew
        root = np.cbrt(np.maximum(1 + s * (values - self.mean) / (2 * self.sd), 0.0))
        return np.asarray(-scipy.special.log_ndtr(-(root - 1 + s**2 / 36) * 6 / s))


@dataclass(frozen=True, slots=True)
class SmoothTail:
    """A Gamma law whose upper tenth decays as fast as that of the sample.

    On the scale of depths, -ln P, the law is stretched beyond its knee: sums of squares of Laplace
    noise, or counts of few clients, have heavier tails than a Gamma law of the same moments.
    """

    law: GammaLike
    knee: float  # depth by the law, where the sample's is ln 10
    stretch: float  # depth by the law, per depth beyond it

    @classmethod
    def of(cls, values: Floats) -> "SmoothTail":
        """Fitted to values of populations without drift."""
        law = GammaLike.of(values)
        depths = law.depth(values)
        knee = float(np.quantile(depths, 1 - KNEE))
        beyond = depths[depths > knee + TIE] - knee
        return cls(law, max(knee, 0.1), (beyond.sum() + PRIOR) / (len(beyond) + PRIOR))

    def at(self, depth: Floats) -> Floats:
        """What is exceeded with probability exp(-depth)."""
        ordinary = -math.log(KNEE)
        inner = depth * (self.knee / ordinary)
        outer = self.knee + (depth - ordinary) * self.stretch
        return self.law.at(np.where(depth <= ordinary, inner, outer))

    def depth(self, values: Floats) -> Floats:
        """-ln P(more than this), about: the inverse of `at`."""
        ordinary, found = -math.log(KNEE), self.law.depth(values)
        beyond = ordinary + (found - self.knee) / self.stretch
        return np.where(found <= self.knee, found * (ordinary / self.knee), beyond)

    def threshold(self, depth: float) -> float:
        """What it exceeds with probability exp(-depth), about."""
        return float(self.at(np.array(depth)))


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


def tail_of(values: Floats, mechanism: Mechanism | None) -> Tail:
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ColumnCase:
    """What was released about one column, and how its counts vary without drift. Public."""

    points: QueryPoints  # all cells of the column, one batch
    records: int  # N
    spread: float | Spread
    statistics: tuple[Statistic, ...]

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        names = [statistic.name for statistic in self.statistics]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("A column has one or more statistics, each of its own name.")

    @property
    def model(self) -> NoDrift:
        """The law of its counts without drift."""
        return NoDrift.of(self.points, np.array([self.records]), self.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnVerdict:
    """Whether a column drifted: whether any of its statistics is above its threshold."""

    statistics: tuple[JudgedStatistic, ...]
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    @property
    def drifted(self) -> bool:
        """Whether drift was found, at the rate that all columns share."""
        return any(statistic.exceeds for statistic in self.statistics)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnNull:
    """The statistics of one column without drift: smooth tails, and values of other populations."""

    tails: tuple[Tail, ...]
    values: tuple[NullValues, ...]

    @classmethod
    def simulate(cls, column: ColumnCase, draws: int, rng: np.random.Generator) -> "ColumnNull":
        """All statistics of the same populations, of which the first ones fit the tails."""
        model, found = column.model, [list[Floats]() for _ in column.statistics]
        for counts in model.chunks(FITTED + draws, rng):
            for values, statistic in zip(found, column.statistics, strict=True):
                values.append(statistic.simulated(model, counts, rng))
        drawn = [np.concatenate(values) for values in found]
        laws = [statistic.mechanism for statistic in column.statistics]
        return cls(
            tuple(tail_of(v[:FITTED].ravel(), law) for v, law in zip(drawn, laws, strict=True)),
            tuple(NullValues(v[FITTED:], law) for v, law in zip(drawn, laws, strict=True)),
        )

    def thresholds(self, depth: float) -> tuple[float, ...]:
        """Of each statistic, in its unit."""
        return tuple(tail.threshold(depth) for tail in self.tails)

    def alarms(self, depth: float) -> Floats:
        """P(any statistic above its threshold), of each counted population."""
        thresholds = self.thresholds(depth)
        calm = [1 - v.above(t) for v, t in zip(self.values, thresholds, strict=True)]
        return np.asarray(1 - np.prod(calm, axis=0))


def common_depth(columns: Sequence[ColumnNull], alarms: float) -> float:
    """The least depth at which at most so many columns without drift raise an alarm, on average.

    The mean number of alarms is the sum of the columns' rates, however columns depend on each
    other, and at least the probability of any. It is counted on simulated populations, with
    an upper 99% confidence limit, whatever the tails look like.
    """

    def fits(depth: float) -> bool:
        return upper_limit(np.sum([each.alarms(depth) for each in columns], axis=0)) <= alarms

    low, high = 0.0, math.log(len(columns) / alarms) + 1
    while not fits(high):
        low, high = high, 2 * high
    return bisect(fits, high, low, halvings=HALVINGS)[0]


def judge_columns(
    columns: Sequence[ColumnCase],
    *,
    false_alarm: float,
    control: Literal["family", "discovery"] = "family",
) -> tuple[ColumnVerdict, ...]:
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
    >>> from fedprikl.estimation.statistic import ScoredStatistic
    >>> from fedprikl.privacy import calibrate_laplace
    >>> from fedprikl.reference import all_points
    >>> points, noise = all_points([0.5, 0.3, 0.2]), calibrate_laplace(epsilon=1, sensitivity=0.002)
    >>> def column(tv):
    ...     statistic = ScoredStatistic(
    ...         value=tv,
    ...         score=Score(Skew(0.01), TV),
    ...         points=points,
    ...         records=np.array([5000]),
    ...         mechanism=noise,
    ...     )
    ...     return ColumnCase(points=points, records=5000, spread=1.0, statistics=(statistic,))
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

    def judge(alarms: float) -> tuple[ColumnVerdict, ...]:
        depth = common_depth(nulls, alarms)
        return tuple(_judge(*each, depth) for each in zip(columns, nulls, strict=True))

    expected = 1 if control == "family" else len(columns)
    while True:  # the largest number of columns that are as many as were expected
        verdicts = judge(rate * expected)
        found = sum(verdict.drifted for verdict in verdicts)
        if expected == 1 or found >= expected:
            return verdicts
        expected = max(found, 1)


def _judge(column: ColumnCase, null: ColumnNull, depth: float) -> ColumnVerdict:
    model = column.model
    return ColumnVerdict(
        statistics=judged_statistics(column.statistics, model, null.thresholds(depth)),
        design_effect=model.design_effect,
    )
