"""What a verdict rests on: test statistics, their thresholds without drift, and the verdict."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedprikl.checks import Floats, Ints, check_false_alarm
from fedprikl.divergence import Score
from fedprikl.documents import to_plain
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.scoring import Terms
from fedprikl.libraries import scipy
from fedprikl.privacy import Mechanism
from fedprikl.reference import QueryPoints, Spread
from fedprikl.search import bisect

CONFIDENCE = 0.99  # that the simulation's own error does not raise the false-alarm rate
DRAWS = 4_000
HALVINGS = 14  # of the common tail level
COUNTS = "counts"  # a statistic that is no divergence: how much noisy counts vary
OUT_OF_DOMAIN = "out_of_domain"  # another: the share of records outside of all cells


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

    @property
    def mean(self) -> float:
        """Over all populations; noise of a mechanism has mean 0."""
        return float(self.values.mean())

    def above(self, threshold: float) -> Floats:
        """P(statistic > threshold), of each population."""
        if self.mechanism is None:
            return np.asarray((self.values > threshold).mean(axis=1), dtype=np.float64)
        return self.mechanism.survival(threshold - self.values[:, 0])

    def at_level(self, level: float) -> float:
        """The least threshold that a share `level` of all populations exceeds, at most."""
        if self.mechanism is None:
            return float(self._sorted[-1 - int(level * self._sorted.size)])
        low, high = _bracket(self.values, self.mechanism, level)
        return float(scipy.optimize.brentq(lambda t: self.above(t).mean() - level, low, high))

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.values, axis=None)


def joint_thresholds(nulls: Sequence[NullValues], *, false_alarm: float) -> tuple[float, ...]:
    """A threshold for each statistic: P(any exceeds its own) <= false_alarm without drift.

    Every statistic exceeds its threshold equally often. The values are of the same populations;
    given one, the noises of different statistics are independent, so that

        P(any | population) = 1 - product over statistics of (1 - P(above | population))

    and its upper 99% confidence limit over the populations stays within the rate, as in
    `alarm_threshold`.
    """
    rate = _check_draws(len(nulls[0].values), false_alarm)
    if len(nulls) == 1 and nulls[0].values.shape[1] == 1:
        return (
            alarm_threshold(nulls[0].values[:, 0], nulls[0].mechanism, false_alarm=false_alarm),
        )

    def thresholds(level: float) -> tuple[float, ...]:
        return tuple(null.at_level(level) for null in nulls)

    def fits(level: float) -> bool:
        calm = [1 - null.above(t) for null, t in zip(nulls, thresholds(level), strict=True)]
        return upper_limit(1 - np.prod(calm, axis=0)) <= rate

    least = rate / (4 * len(nulls))  # by the union bound it fits
    return thresholds(bisect(fits, least, rate, halvings=HALVINGS)[0])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStatistic:
    """A statistic beside the threshold that populations without drift rarely exceed."""

    name: str  # of the divergence, or "counts" or "out_of_domain", which are none
    value: float
    threshold: float
    unit: str  # of both

    @property
    def exceeds(self) -> bool:
        """Whether the statistic is above its threshold."""
        return self.value > self.threshold

    @property
    def words(self) -> tuple[str, str]:
        """What was seen, and beside which threshold."""
        value, threshold = _told_apart(self.value, self.threshold)
        seen = f"{value} {self.unit}".rstrip()
        if self.name == COUNTS:
            seen = f"the excess variation of the noisy counts, {value},"
        return seen, f"{'above' if self.exceeds else 'below'} {threshold}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether any statistic exceeds what populations without drift reach.

        drifted  if any  statistic_i > threshold_i,   P(any | no drift) <= false_alarm

    >>> tv = JudgedStatistic(name="tv", value=0.031, threshold=0.022, unit="")
    >>> kl = JudgedStatistic(name="kl", value=0.2, threshold=0.25, unit="nats")
    >>> verdict = Verdict(statistics=(kl, tv), false_alarm=0.01, design_effect=1.0)
    >>> verdict.drifted, verdict.exceeding
    (True, ('tv',))
    >>> print(verdict)  # doctest: +NORMALIZE_WHITESPACE
    Drift found: tv 0.031 is above 0.022 and kl 0.2 nats is below 0.25; populations without drift
    exceed any of these thresholds at most 1% of the time
    """

    statistics: tuple[JudgedStatistic, ...]
    false_alarm: float  # how often, at most, a population without drift exceeds any threshold
    design_effect: float | None  # None: not known, records of one client are taken as unrelated

    def __post_init__(self) -> None:
        names = [statistic.name for statistic in self.statistics]
        if not names or len(set(names)) < len(names):
            raise InvalidInputError("A verdict has one or more statistics, each of its own name.")

    @property
    def exceeding(self) -> tuple[str, ...]:
        """The names of the statistics that found drift."""
        return tuple(statistic.name for statistic in self.statistics if statistic.exceeds)

    @property
    def drifted(self) -> bool:
        """Whether drift was found."""
        return any(statistic.exceeds for statistic in self.statistics)

    def statistic(self, name: str) -> JudgedStatistic | None:
        """The statistic of this name, if there is one."""
        return next((each for each in self.statistics if each.name == name), None)

    def __str__(self) -> str:
        found = "Drift found" if self.drifted else "No drift found"
        related = ""
        if self.design_effect is None:
            related = ", if records of one client are unrelated (no client ids show it),"
        elif self.design_effect != 1:
            related = f" (design effect {self.design_effect:.3g})"
        often = f"at most {100 * self.false_alarm:.3g}% of the time"
        if len(self.statistics) == 1:
            seen, place = self.statistics[0].words
            return (
                f"{found}: {seen} is {place}, which populations without drift{related} exceed "
                f"{often}"
            )
        ordered = sorted(self.statistics, key=lambda statistic: not statistic.exceeds)
        *first, last = (_clause(statistic) for statistic in ordered)
        return (
            f"{found}: {', '.join(first)} and {last}; populations without drift{related} exceed "
            f"any of these thresholds {often}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "drifted": self.drifted,
            "exceeding": list(self.exceeding),
            "statistics": to_plain(self.statistics),
            "false_alarm": self.false_alarm,
            "design_effect": self.design_effect,
            "statement": f"{self}.",
        }


def _clause(statistic: JudgedStatistic) -> str:
    seen, place = statistic.words
    name = "" if statistic.name == COUNTS else f"{statistic.name} "
    return f"{name}{seen} is {place}"


def _told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with four digits, or with as many as show that they differ."""
    digits = 4
    while digits < 17 and f"{one:.{digits}g}" == f"{other:.{digits}g}" and one != other:
        digits += 1
    return f"{one:.{digits}g}", f"{other:.{digits}g}"


# Noise on each of the populations with these counts (draws, terms), some draws each: (draws, m).
CountsNoise = Callable[[np.random.Generator, Ints], Floats]


class Statistic(Protocol):
    """One statistic: what was released, and what it would be of simulated counts."""

    @property
    def name(self) -> str:
        """Of the statistic."""
        ...

    @property
    def unit(self) -> str:
        """Of the statistic."""
        ...

    @property
    def points(self) -> QueryPoints:
        """The points whose counts it is computed from."""
        ...

    @property
    def records(self) -> Ints:
        """N_t, per batch."""
        ...

    @property
    def mechanism(self) -> Mechanism | None:
        """Noise that `simulated` leaves out, because its law is the same for all counts."""
        ...

    def observed(self, model: NoDrift) -> float:
        """As released."""
        ...

    def simulated(self, model: NoDrift, counts: Ints, rng: np.random.Generator) -> Floats:
        """Of populations with these counts (draws, terms): (draws, m), m draws of the noise."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredStatistic:
    """A scored sum with noise of one known law, or without noise."""

    value: float
    score: Score
    points: QueryPoints
    records: Ints
    mechanism: Mechanism | None

    @property
    def name(self) -> str:
        """Of the divergence."""
        return self.score.divergence.name

    @property
    def unit(self) -> str:
        """Of the divergence."""
        return self.score.unit

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released value."""
        return self.value

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,  # noqa: ARG002  the noise enters by its distribution function
    ) -> Floats:
        """The values before noise."""
        terms = Terms.of(self.points, self.records)
        found: Floats = terms.scores(counts, self.score) @ terms.weights
        return found[:, None]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdaptiveStatistic:
    """A number whose noise depends on the counts: drawn afresh for simulated counts."""

    name: str
    unit: str
    value: float
    points: QueryPoints
    records: Ints
    before_noise: Callable[[Ints], Floats]  # counts (draws, terms) -> (draws,)
    noise: CountsNoise
    mechanism: None = None

    def observed(self, model: NoDrift) -> float:  # noqa: ARG002
        """The released value."""
        return self.value

    def simulated(
        self,
        model: NoDrift,  # noqa: ARG002
        counts: Ints,
        rng: np.random.Generator,
    ) -> Floats:
        """The values with noise, some draws for each population."""
        found: Floats = self.before_noise(counts)[:, None] + self.noise(rng, counts)
        return found


def simulate_together(
    statistics: Sequence[Statistic], model: NoDrift, *, false_alarm: float
) -> tuple[NullValues, ...]:
    """All statistics of the same simulated populations without drift."""
    rng, found = public_simulation(), [list[Floats]() for _ in statistics]
    for counts in model.chunks(simulated_draws(false_alarm), rng):
        for values, statistic in zip(found, statistics, strict=True):
            values.append(statistic.simulated(model, counts, rng))
    return tuple(
        NullValues(np.concatenate(values), statistic.mechanism)
        for values, statistic in zip(found, statistics, strict=True)
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
        nulls = simulate_together(statistics, model, false_alarm=false_alarm)
    thresholds = joint_thresholds(nulls, false_alarm=false_alarm)
    return Verdict(
        statistics=judged_statistics(statistics, model, thresholds),
        false_alarm=false_alarm,
        design_effect=model.design_effect,
    )


def judged_statistics(
    statistics: Sequence[Statistic], model: NoDrift, thresholds: Sequence[float]
) -> tuple[JudgedStatistic, ...]:
    """What was released, beside the thresholds."""
    return tuple(
        JudgedStatistic(
            name=statistic.name,
            value=statistic.observed(model),
            threshold=threshold,
            unit=statistic.unit,
        )
        for statistic, threshold in zip(statistics, thresholds, strict=True)
    )


def judge_release(
    value: float,
    false_alarm: float,
    spread: float | Spread,
    *,
    mechanism: Mechanism | None,
    points: QueryPoints,
    records: Ints,
    score: Score,
) -> Verdict:
    """The verdict on one released value."""
    statistic = ScoredStatistic(
        value=value, score=score, points=points, records=records, mechanism=mechanism
    )
    model = NoDrift.of(points, records, spread)
    return judge_together([statistic], model, false_alarm=false_alarm)
