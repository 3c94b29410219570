"""Answers: one number with its interval, as it is shown; and estimates, which can be judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation.interval import Interval, counts_interval, value_interval
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.noisy_counts import (
    CountedView,
    CountNoise,
    CountsDesign,
    NoisyCounts,
    read_noisy_counts,
)
from fedprikl.estimation.outcome import Verdict
from fedprikl.estimation.scoring import AskedNumber, BatchCounts, Terms
from fedprikl.estimation.statistic import (
    ANYTHING,
    COUNTS,
    Statistic,
    counts_statistics,
    possible_values,
    variation_statistic,
)
from fedprikl.estimation.verdict import (
    judge_together,
    simulate_together,
    simulated_draws,
    with_noise,
)
from fedprikl.privacy import Mechanism, NoiseSource, PrivacyStatement
from fedprikl.reference import OutOfDomain, QueryPoints, Spread

POPULATIONS, DRAWS = 200, 20  # that tell what no drift gives
COMPARED = 40  # populations that tell how well a value and counts estimate
TINY = 1e-300
MOST, CHUNK = 20_000_000, 500_000  # numbers in all, and at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An estimate of one divergence between the reference Pi and the records P of the clients.

    `value` estimates `target`, as D(Pi || (1 - s) P + s Pi) for a skew of s, and `interval` is
    its 95% interval; `guaranteed` covers for every population, not only for those that were tried.
    All account for the noise that `mechanism` names.  [alg:sys_tagg]
    `no_drift` is what the value would be on average if nothing had drifted: few records differ from
    Pi by chance.

    >>> answer = Answer(
    ...     divergence="tv",
    ...     value=0.21,
    ...     interval=(0.19, 0.23),
    ...     no_drift=0.2,
    ...     target="TV(Pi, P)",
    ...     unit="",
    ...     mechanism="Laplace noise of scale 0.2693",
    ... )
    >>> round(answer.excess, 3)
    0.01
    >>> print(answer)
    TV(Pi, P) is about 0.2100, of which about 0.2000 is what no drift gives.
    """

    divergence: str  # its name
    value: float
    interval: tuple[float, float] | None  # 95%, holds the value; None where it is not known
    guaranteed: tuple[float, float] | None = None  # 95% for every population, where it is known
    no_drift: float | None = None  # mean of the value without drift; None where it is not known
    target: str  # the divergence as a formula, smoothing included
    unit: str
    mechanism: str  # the noise, in words

    @property
    def excess(self) -> float | None:
        """The value less what no drift gives. Negative values are no drift."""
        return None if self.no_drift is None else self.value - self.no_drift

    def __str__(self) -> str:
        value = f"{self.value:.4f} {self.unit}".rstrip()
        if self.no_drift is None:
            return f"{self.target} is about {value}."
        return (
            f"{self.target} is about {value}, of which about {self.no_drift:.4f} is what no drift "
            "gives."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of a divergence of P from Pi, whose interval and verdict wait to be asked for."""

    method: str
    value: float
    target: str  # the divergence that is estimated, smoothing included
    unit: str  # of `value`
    privacy: PrivacyStatement
    payload: int  # counts each client reported
    noise_sd: float | None = None  # standard deviation of the noise on `value`, where it is known
    mechanism: str = ""  # all noise in it, in words, where it is not that of `privacy` alone
    limits: Callable[[], Interval | None] = field(default=lambda: None, repr=False)
    statistic: Statistic | None = field(default=None, repr=False)  # what a verdict rests on
    possible: tuple[float, float] = ANYTHING  # the least and the largest value of the target
    # Its mean without drift, where that is not the mean of its statistic.
    typical: Callable[[NoDrift], float] | None = field(default=None, repr=False)
    false_alarm: float = 0.01  # of `drifted`
    spread: float | Spread = 1.0  # of `drifted`: a design effect, or a reference's `spread`

    @property
    def interval(self) -> tuple[float, float] | None:
        """The printed 95% interval, where it is known; computed when asked for (a second)."""
        return None if (limits := self.limits()) is None else limits.printed

    @property
    def guaranteed(self) -> tuple[float, float] | None:
        """The interval that covers for every population in at least 95% of releases, if known."""
        return None if (limits := self.limits()) is None else limits.guaranteed

    @property
    def drifted(self) -> bool:
        """Whether drift was found, at the estimate's own false-alarm rate and spread."""
        return self.verdict().drifted

    def verdict(
        self, false_alarm: float | None = None, *, spread: float | Spread | None = None
    ) -> Verdict:
        """Drifted or not; computed when asked for, and costs no privacy.

        `spread` is a design effect, or what `Reference.spread` says of these clients.

        Below a second for 500 asked cells.
        """
        statistic = self.statistic
        if statistic is None:
            raise InvalidInputError(
                f"There is no verdict on this estimate ({self.method}): how it spreads without "
                "drift is not known. Use `fedprikl.estimation.trusted_aggregator`."
            )
        model = NoDrift.of(
            statistic.points, statistic.records, self.spread if spread is None else spread
        )
        rate = self.false_alarm if false_alarm is None else false_alarm
        return judge_together([statistic], model, false_alarm=rate)

    def __str__(self) -> str:
        return (
            f"{self.target} is about {self.value:.4f} {self.unit} ({self.method}). {self.privacy}"
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NoisyViews:
    """All that is released about views. Public."""

    counts: tuple[NoisyCounts, ...]  # of each view, in one batch
    mechanism: str  # the noise on every count, in words
    values: tuple[tuple[Statistic, ...], ...] = ()  # of each view: tv, js; none in noise shares

    def statistics(
        self, view: int, points: QueryPoints, outside: OutOfDomain | None
    ) -> tuple[Statistic, ...]:
        """The statistics of one view; `outside` is the law of records outside its cells."""
        return (*self.values_of(view), *counts_statistics(points, self.counts[view], outside))

    def values_of(self, view: int) -> tuple[Statistic, ...]:
        """The values with noise of their own."""
        return self.values[view] if self.values else ()


def noise_counts(
    counts: BatchCounts,
    mechanism: Mechanism,
    source: NoiseSource,
) -> NoisyCounts:
    """Exact counts of the points, and of all other cells of a batch, with integer noise on each."""
    points, records = counts.points, counts.records
    asked = np.bincount(points.batch, weights=counts.counts, minlength=points.batches)
    exact = np.concatenate([counts.counts, records - asked.astype(np.int64)])
    laws = [CountNoise.of(mechanism)] * points.batches
    return NoisyCounts.of(mechanism.add_to(exact, source), records, laws, points)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimates:
    """One estimate for each question of a plan, from the same counts."""

    each: tuple[Estimate, ...]
    privacy: PrivacyStatement  # of all together
    payload: int  # counts each client reported
    records: int  # of all batches
    noisy_counts: NoisyCounts | None = field(default=None, repr=False)  # where they are released
    counted: tuple[Statistic, ...] = field(default=(), repr=False)  # of these noisy counts
    columns: NoisyViews | None = field(default=None, repr=False)  # where columns are asked

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What the verdict rests on: values with noise of their own, then noisy counts."""
        known = [found.statistic for found in self.each if found.statistic is not None]
        return (*(each for each in known if each.name != COUNTS), *self.counted)

    def judge(
        self, false_alarm: float, spread: float | Spread
    ) -> tuple[Verdict, tuple[float | None, ...]]:
        """Drifted or not, and what each estimate would be without drift, if that is known.

        About a second for 500 asked cells and three questions.
        """
        statistics = self.statistics
        if not statistics:
            raise InvalidInputError("How these estimates spread without drift is not known.")
        model = NoDrift.of(statistics[0].points, statistics[0].records, spread)
        nulls = simulate_together(statistics, model, draws=simulated_draws(false_alarm))
        of = {id(statistic): null for statistic, null in zip(statistics, nulls, strict=True)}
        return judge_together(statistics, model, nulls, false_alarm=false_alarm), tuple(
            found.typical(model)
            if found.typical
            else (None if found.statistic is None else of[id(found.statistic)].mean)
            for found in self.each
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Number:
    """A divergence of a view, as some released numbers tell it. Public."""

    value: float
    limits: Callable[[], Interval | None]
    undrifted: Callable[[NoDrift], Floats]  # what it would be of populations without drift
    noise_sd: float | None = None  # of the noise in it, where it is known


def counts_numbers(
    points: QueryPoints, noisy: NoisyCounts, scores: tuple[Score, ...], rng: np.random.Generator
) -> tuple[Number, ...]:
    """As noisy counts tell them. `rng` serves to draw what the counts were before noise."""
    design = CountsDesign.of(points, noisy)

    def undrifted(place: int, model: NoDrift) -> Floats:
        return np.asarray(_undrifted(design, scores, model)[:, place])

    found = read_noisy_counts(points, noisy, scores=scores, rng=rng)
    return tuple(
        Number(
            value=value,
            limits=partial(counts_interval, points, noisy, value, score=score, scores=scores),
            undrifted=partial(undrifted, place),
            noise_sd=noise_sd,
        )
        for place, (score, (value, noise_sd)) in enumerate(zip(scores, found, strict=True))
    )


@lru_cache(maxsize=4)  # one simulation for all scores
def _undrifted(design: CountsDesign, scores: tuple[Score, ...], model: NoDrift) -> Floats:
    """What noisy counts would tell of populations without drift: (populations, scores)."""

    def simulated(_: NoDrift, counts: Ints, rng: np.random.Generator) -> Floats:
        return design.simulate(counts, scores=scores, rng=rng, draws=DRAWS).T

    return _of_populations(simulated, model)


def _of_populations(
    simulated: Callable[[NoDrift, Ints, np.random.Generator], Floats], model: NoDrift
) -> Floats:
    """What is simulated of the counts of public populations without drift, some at a time."""
    each = DRAWS * (len(model.pi) + 1)
    populations = min(POPULATIONS, max(10, MOST // each))
    parts = np.array_split(np.arange(populations), 1 + populations * each // CHUNK)
    rng = public_simulation()
    return np.concatenate([simulated(model, model.counts(len(part), rng), rng) for part in parts])


def combined(
    value: float,
    statistic: Statistic,
    limits: Callable[[], Interval | None],
    counts: Number,
    score: Score,
    design: CountsDesign,
) -> Number:
    """The best of a value and of noisy counts: weighted by inverse squares of their usual errors.

    The value has noise of its own, and is a statistic too.

    Both are about the very records, so their errors are noise, and what is left of a bias. They are
    simulated without drift. If draws of what the counts were vary less than they do without drift,
    the error of the counts is taken to be smaller by as much, and larger if they vary more: where a
    single heavy cell tells nearly everything, counts know it far better. The interval is that of
    the better one. Medians: an out-of-domain count that noise lifts out of its dead zone is a rare
    and large error.
    """
    model, rng = NoDrift.of(design.points, design.records, 1.0), public_simulation()
    held, terms = model.counts(COMPARED, rng), Terms.of(design.points, design.records)
    truths = terms.sums(held, score.plain)[:, None]

    def alone(model: NoDrift, held: Ints, rng: np.random.Generator) -> Floats:
        """The value of these populations."""
        return with_noise(statistic.draw(model, held, rng), statistic.mechanism)

    def read(held: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Divergences and spreads of noisy counts of these populations."""
        noisy = design.renoised(held, rng)
        found, spread = design.read(*noisy, scores=[score], rng=rng, draws=DRAWS)
        return found.T, spread.T

    own = _usual(alone(model, held, rng) - truths)
    found, spread = read(held, rng)
    per_spread = _usual(found - truths) / max(float(np.median(spread)), TINY)

    def share(spread: Floats | float) -> Any:
        """Of the counts."""
        return own**2 / np.maximum(own**2 + (per_spread * spread) ** 2, TINY)

    def simulated(model: NoDrift, held: Ints, rng: np.random.Generator) -> Floats:
        drawn = alone(model, held, rng)
        found, spread = read(held, rng)
        return np.asarray(drawn + share(spread) * (found - drawn))

    here = float(share(counts.noise_sd or 0.0))
    return Number(
        value=(1 - here) * value + here * counts.value,
        limits=counts.limits if here > 0.5 else limits,
        undrifted=partial(_of_populations, simulated),
    )


def _usual(errors: Floats) -> float:
    return float(np.median(np.abs(errors)))


def clamped(value: float, *ranges: tuple[float, float] | None) -> float:
    """The nearest value within one range after the other.

    >>> clamped(-0.2, (0.0, 1.0), (0.1, 0.3)), clamped(0.5, None)
    (0.1, 0.5)
    """
    for low, high in filter(None, ranges):
        value = min(max(value, low), high)
    return value


def mean_without_drift(number: Number, possible: tuple[float, float], model: NoDrift) -> float:
    """What a number that is clamped into its range is on average, if nothing has drifted."""
    return float(number.undrifted(model).clip(*possible).mean())


def estimates_from_counts(
    points: QueryPoints,
    noisy: NoisyCounts,
    scores: Sequence[Score],
    *,
    method: str,
    payload: int,
    privacy: PrivacyStatement,
    rng: np.random.Generator,
) -> tuple[Estimate, ...]:
    """An estimate for each score, with its interval; one statistic for the verdict on all.

    `rng` serves to draw what the counts were before noise; it never makes release noise.
    """
    statistic = variation_statistic(CountsDesign.of(points, noisy), np.array(noisy.counts))
    found = []
    numbers = counts_numbers(points, noisy, tuple(scores), rng)
    for score, number in zip(scores, numbers, strict=True):
        possible = possible_values(score, points)
        found.append(
            Estimate(
                method=method,
                value=number.value,
                target=score.target,
                unit=score.unit,
                payload=payload,
                noise_sd=number.noise_sd,
                limits=number.limits,
                statistic=statistic,
                possible=possible,
                typical=partial(mean_without_drift, number, possible),
                privacy=privacy,
            )
        )
    return tuple(found)


def beside_counts(
    found: Estimate,
    noisy: NoisyCounts,
    *,
    mechanism: str,
    rng: np.random.Generator,
) -> Estimate:
    """An estimate with noise of its own, made better by noisy counts of the same view."""
    statistic = found.statistic
    if statistic is None or statistic.score is None:
        return found
    score, points = statistic.score.plain, statistic.points
    (counted,) = counts_numbers(points, noisy, (score,), rng)
    design = CountsDesign.of(points, noisy)
    number = combined(found.value, statistic, found.limits, counted, score, design)
    return replace(
        found,
        value=number.value,
        noise_sd=None,
        mechanism=_both(found.privacy.mechanism, mechanism),
        limits=number.limits,
        typical=partial(mean_without_drift, number, found.possible),
    )


def _both(value: str, counts: str) -> str:
    return f"{value} on a value, and {counts}"


def answers_from_counts(
    view: CountedView,
    scores: Sequence[Score],
    *,
    mechanism: str,
    values: Sequence[Statistic] = (),
) -> tuple[Answer, ...]:
    """Each divergence of a view from its noisy counts, and what it would be without drift.

    `values` are those with noise of their own that were released beside the counts. All simulation
    is public and has a fixed seed: anybody finds the same numbers. `mechanism` is the noise on
    counts in words. Cost: 30 ms for a divergence of 12 cells, about a second for 500 cells.

    >>> from fedprikl.divergence import TV, Skew
    >>> from fedprikl.estimation import CountNoise
    >>> from fedprikl.reference import all_points
    >>> points, noise = all_points([0.5, 0.3, 0.2]), CountNoise(sd=10.0)
    >>> noisy = NoisyCounts.of([5004.0, 3404.0, 1604.0, -3.0], [10_000], [noise])
    >>> view, score = CountedView(points, noisy, 1.0), Score(Skew(0.01), TV)
    >>> (found,) = answers_from_counts(view, [score], mechanism=str(noise))
    >>> found.divergence, round(found.value, 2), round(found.no_drift, 3)
    ('tv', 0.04, 0.006)
    """
    points, noisy, model, found = view.points, view.noisy, view.model, []
    plain = tuple(each.plain for each in scores)
    numbers = counts_numbers(points, noisy, plain, public_simulation())
    for score, number in zip(plain, numbers, strict=True):
        noise = mechanism
        for each in values:
            if each.score is not None and each.score.target == score.target and each.mechanism:
                asked, own = AskedNumber(points, each.records, each.score), each.observed(model)
                limits = partial(value_interval, own, each.mechanism, asked)
                number = combined(own, each, limits, number, score, view.design)
                noise = _both(str(each.mechanism), mechanism)
        possible, limit = possible_values(score, points), number.limits()
        found.append(
            Answer(
                divergence=score.divergence.name,
                value=clamped(number.value, possible, None if limit is None else limit.printed),
                interval=None if limit is None else limit.printed,
                no_drift=mean_without_drift(number, possible, model),
                target=score.target,
                unit=score.unit,
                mechanism=noise,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ComparedEstimate:
    """A real estimate beside simulated repetitions of the same method, to tell luck from skill."""

    name: str
    estimate: Estimate
    repetitions: Floats  # values of simulated runs
    truth: float

    @property
    def error(self) -> float:
        """Of the real estimate, absolute."""
        return abs(self.estimate.value - self.truth)

    @property
    def typical_error(self) -> float:
        """Mean absolute error of the repetitions."""
        return float(np.mean(np.abs(self.repetitions - self.truth)))
