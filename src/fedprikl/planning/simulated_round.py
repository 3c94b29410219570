"""A simulated round: what a plan would release about a view, on public drifts. Public.

This is the one forecast: the errors of the answer at drifts of several kinds and sizes, and the
smallest drifts that the verdict finds. It follows from the plan, whatever its trust, unit or views.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import TypeVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import (
    CountNoise,
    CountsDesign,
    NoisyCounts,
    NoisyViews,
    score_sensitivity,
)
from fedprikl.estimation.drift_model import SEED, drifted_ratios, ratio_divergence, smooth_examples
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import Terms
from fedprikl.estimation.simulated_releases import (
    RESAMPLES,
    AdaptiveNoise,
    CountsNoise,
    ReleaseOption,
    ValueNoise,
    simulated_errors,
)
from fedprikl.estimation.statistic import Statistic, scored_statistic, variation_statistic
from fedprikl.estimation.verdict import (
    NullValues,
    joint_thresholds,
    simulate_together,
    simulated_draws,
)
from fedprikl.libraries import scipy
from fedprikl.planning.known import Known
from fedprikl.privacy import Calibrated, InsecureSeededNoise
from fedprikl.protocol.answering import estimate_sums, expected_noise
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import view_score
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import NoisyHistogram, OpenedSum, ScoredSum, trust_of
from fedprikl.reference import QueryPoints, Spread, View, spread_shares

# Sizes in nats of KL with its usual skew, whatever is asked: the same populations for all.
JUDGED = (
    ("none", 0.0),
    ("smooth", 0.01),
    ("smooth", 0.05),
    ("smooth", 0.2),
    ("smooth", 1.0),
    ("rare", 0.05),
    ("heavy", 0.05),
    ("gone", math.inf),  # as large as it is
)
# Of a smooth drift, up to so many cells: the fewer, the more it matters which ones it raises.
EXAMPLES = ((16, 16), (512, 8))
WORDS = {
    "none": "nothing has drifted",
    "smooth": "every cell by a little",
    "rare": "the rarer half shrinks",
    "heavy": "the heaviest cell shrinks",
    "gone": "the heaviest cell is gone",
}
TIE = 1e-9  # relative: processors round differently, and errors that differ by less are equal

DESIGNS = 4  # draws of the points, where not all cells are asked
NORMAL_QUANTILES = 21  # of what the choice of points adds
EFFORT = {"value": (8, 100), "adaptive": (4, 100)}  # populations, and releases of each
NOISE_DOMINATED = 4.0  # how many times larger a drift noise makes that counts find
COUNTS = 2000  # in an eighth of the releases: few cells need many releases
NAMES = {"adaptive": "adaptive noise", "counts": "noisy counts"}  # of release options
# How many times the error of a textbook's noisy counts with the whole budget another option may
# have, at any drift: if it has the whole budget too, and if other questions share it.
ALONE, SHARED = 1.05, 1.3
CLOSE, MANY = 1.2, 4  # simulated errors differ by chance up to so much: then there are more

POWER = 0.95
POWER_KINDS = ("smooth", "rare", "heavy")  # the smallest drift of the whole is looked for in each
COLUMN_KINDS = ("smooth", "rare")  # of a column: those in which tv and counts differ most
LEAST_RATE = 1e-3  # of false alarms in one column or period: rarer ones take long to simulate
POPULATIONS = 200  # always the same random numbers: a larger drift is not found less often
PRECISION = 1.04  # of the search, as a ratio
LEAST = 1e-9  # nobody looks for less
TINY = 1e-300
KEPT = 1 - 1e-12  # of a P: else rounding decides whether there is a rest, whose draw takes a number
NOISES = 64  # populations whose adaptive noise is computed
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class DriftCase:
    """A drift of some kind and size: P / Pi of every cell with Pi > 0, one example a row."""

    kind: str
    size: float  # in the unit of the asked divergence
    ratios: Floats  # (examples, cells): it matters which cells a smooth drift raises


def drift_cases(pi: Floats, score: Score) -> tuple[DriftCase, ...]:
    """The drifts that a plan is judged by: all that cells of these probabilities can have.

    Sizes are in the score's unit.

    >>> cases = drift_cases(np.array([0.4, 0.3, 0.2, 0.1]), Score())
    >>> [(case.kind, round(case.size, 2)) for case in cases][-3:]
    [('rare', 0.05), ('heavy', 0.05), ('gone', 1.54)]
    """
    found = (drift_case(pi, kind, nats, Score()) for kind, nats in JUDGED)
    return tuple(
        replace(case, size=_size(pi, case.ratios, score)) for case in found if case is not None
    )


def drift_case(pi: Floats, kind: str, size: float, score: Score) -> DriftCase | None:
    """A drift of this kind and size, in the score's unit; None if there is none as large.

    "gone" has one size only: that of the heaviest cell.
    """
    if kind == "none":
        return DriftCase("none", 0.0, np.ones((1, len(pi))))
    if kind == "gone":
        return _gone(pi, score)
    if kind == "smooth":
        number = next((each for most, each in EXAMPLES if len(pi) <= most), 1)
        found = smooth_examples(pi, size, score, number)
    else:
        one = drifted_ratios(pi, kind, size, score)
        found = None if one is None else one[None]
    return None if found is None else DriftCase(kind, size, found)


@lru_cache(maxsize=8)  # all options of a plan are judged by the same ones
def _cases_of(view: View, score: Score) -> tuple[DriftCase, ...]:
    return drift_cases(_positive(view), score)


def _positive(view: View) -> Floats:
    probabilities = view.probabilities
    return probabilities[probabilities > 0]


def _gone(pi: Floats, score: Score) -> DriftCase | None:
    if len(pi) < 2:
        return None
    heaviest = int(np.argmax(pi))
    ratios = np.full((1, len(pi)), pi.sum() / (pi.sum() - pi[heaviest]))
    ratios[0, heaviest] = 0.0
    return DriftCase("gone", _size(pi, ratios, score), ratios)


def _size(pi: Floats, ratios: Floats, score: Score) -> float:
    return float(ratio_divergence(pi, ratios, score).mean())


@dataclass(frozen=True, slots=True)
class Forecast:
    """The mean absolute error to expect if the population has drifted like this."""

    kind: str  # none, smooth, rare, heavy or gone
    size: float  # in the unit of the divergence, like the error
    error: float


def typical_error(errors: Sequence[float]) -> float:
    """The geometric mean: a factor counts the same wherever it is won or lost.

    >>> round(typical_error([0.001, 0.1]), 6)
    0.01
    """
    return float(np.exp(np.mean(np.log(np.maximum(errors, 1e-300)))))


def least(found: Iterable[T], error: Callable[[T], float]) -> T:
    """The first of those with the least error: equal ones are told apart by their order.

    >>> least([("a", 0.3), ("b", 0.1 * 3 / 3), ("c", 0.1)], lambda each: each[1])[0]
    'b'
    """
    pairs = [(error(each), each) for each in found]
    limit = (1 + TIE) * min(value for value, _ in pairs)
    return next(each for value, each in pairs if value <= limit)


@dataclass(frozen=True, eq=False)
class SimulatedRound:
    """One round of a plan in which everybody takes part, about one of its views."""

    plan: Plan
    known: Known
    view: View
    points: QueryPoints
    textbook: bool = False  # noisy counts are read as a textbook reads them, not shrunken
    _errors: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, plan: Plan, known: Known) -> "SimulatedRound":
        """About the whole, with points drawn like those of a round; a round draws its own."""
        whole = known.reference.whole
        points = trust_of(plan).draw_points(whole.probabilities, np.random.default_rng(SEED))
        return cls(plan, known, whole, points)

    @classmethod
    def of_column(cls, plan: Plan, known: Known) -> "SimulatedRound":
        """About the view with the median number of cells, among columns and pairs."""
        views = sorted(known.reference.views, key=lambda view: view.size)
        view = views[(len(views) - 1) // 2]
        return cls(plan, known, view, view.points())

    @property
    def is_whole(self) -> bool:
        """Whether it is about the whole joint domain, not about a column."""
        return not self.view.columns

    @cached_property
    def pi(self) -> Floats:
        """Of the cells with Pi > 0."""
        return _positive(self.view) if self.is_whole else self.points.pi

    @property
    def cases(self) -> tuple[DriftCase, ...]:
        """The drifts of the whole that a plan is judged by."""
        return _cases_of(self.view, self.score.plain)

    @property
    def batches(self) -> int:
        """In which the view is asked: a column of everybody together."""
        return self.plan.sums.batches if self.is_whole else 1

    @cached_property
    def records(self) -> Ints:
        """Of each batch."""
        return np.full(self.batches, max(1, self.known.records // self.batches))

    @property
    def complete(self) -> bool:
        """Whether every cell is asked of everybody."""
        return self.batches == 1 and len(self.points) == len(self.pi)

    @cached_property
    def score(self) -> Score:
        """Of the size: the first question, or the kl of a column."""
        return trust_of(self.plan).score if self.is_whole else view_score("kl")

    @property
    def spread(self) -> float | Spread:
        """How counts vary without drift: by the plan, or by the reference."""
        clients = [self.known.clients // self.batches] * self.batches
        return self.plan.spread(self.view, clients)

    @cached_property
    def no_drift(self) -> NoDrift:
        """How what is scored varies without drift."""
        return NoDrift.of(self.points, self.records, self.spread)

    def before_noise(self, counts: Ints, score: Score) -> Floats:
        """An answer without noise, of counts like those of `no_drift`, (draws, terms)."""
        terms = Terms.of(self.points, self.records)
        return np.asarray(terms.scores(counts, score) @ terms.weights)

    def sensitivity(self, score: Score) -> float:
        """How far one protected unit can change an answer."""
        return score_sensitivity(self.points, self.records, score, self.plan.contribution_bound)

    @property
    def largest_step(self) -> float:
        """How far one record can lower the first answer, without a limit."""
        terms, score = Terms.of(self.points, self.records), self.score
        unlimited = replace(score, maximum_step=math.inf)
        steps = unlimited.increments(0, terms.pi, terms.records, outside=terms.outside)
        return float(np.max(-terms.weights * steps))

    @property
    def name(self) -> str:
        """The release option of the first question, in words."""
        question = self.plan.question
        return NAMES.get(question.release, f"{question.noise} noise")

    @cached_property
    def release(self) -> ReleaseOption:
        """How the size is released."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram) or not self.is_whole:
            return CountsNoise(self._count_noise, resamples=self._resamples)
        noise = trust.noise_of(self.plan.question)
        if not isinstance(noise.law, Calibrated):
            return AdaptiveNoise(noise.law.epsilon, self.plan.contribution_bound)
        if noise.is_counts:
            return CountsNoise(CountNoise.of(noise.law.noise), not self.textbook, self._resamples)
        return ValueNoise(noise.law.for_sensitivity(self.sensitivity(self.score)))

    @property
    def _count_noise(self) -> CountNoise:
        """On each count, where nobody is trusted, or of a column."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram):
            clients = self.known.clients // self.batches
            return expected_noise(trust, cohort_sizes(self.plan, clients))
        return CountNoise.of(trust.column_counts)

    @property
    def _resamples(self) -> int:
        """Of the debiasing: nearer to the many of a release where cells are few."""
        if not self.is_whole:
            return RESAMPLES
        return max(10, min(20, COUNTS // (2 * len(self.points))))

    @property
    def noise_dominated(self) -> bool:
        """Whether counts are released, with noise that makes them find much larger drifts only.

        The variance of a usual count without drift is N / K, and with noise N / K + sd^2. The
        statistic of the counts is compared with that: the drift it finds grows by their ratio.
        """
        noise, usual = self.release, float(self.records.sum()) / len(self.points)
        return isinstance(noise, CountsNoise) and 1 + noise.noise.sd**2 / usual > NOISE_DOMINATED

    def error(self, case: int, times: int = 1) -> float:
        """Mean absolute error at one of the cases, from so many times the usual populations."""
        if (case, times) not in self._errors:
            self._errors[case, times] = self.error_at(self.cases[case], times)
        return self._errors[case, times]

    @property
    def typical(self) -> float:
        """The geometric mean of the errors: what is minimised."""
        return typical_error([self.error(case) for case in range(len(self.cases))])

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """One for every case."""
        return tuple(
            Forecast(case.kind, case.size, self.error(number))
            for number, case in enumerate(self.cases)
        )

    def predict(self, kind: str, size: float) -> float | None:
        """The error at a drift of any kind and size; None if no drift of the kind is as large."""
        case = drift_case(self.pi, kind, size, self.score)
        return None if case is None else self.error_at(case)

    def is_no_worse(
        self,
        other: "SimulatedRound",
        cases: Sequence[int] | None = None,
        allowed: float | None = None,
    ) -> bool:
        """Whether it loses next to nothing against the other at any drift.

        The first loss settles it: what a simulation costs is not spent on the rest.
        """
        looked = range(len(self.cases)) if cases is None else cases
        if allowed is None:
            allowed = ALONE if len(self.plan.about_whole) == 1 else SHARED
        return all(self._loses_little(other, case, allowed) for case in looked)

    def _loses_little(self, other: "SimulatedRound", case: int, allowed: float) -> bool:
        """Where chance in the simulations could decide, more of them do."""
        mine, limit = self.error(case), allowed * other.error(case)
        if max(mine, limit) < CLOSE * min(mine, limit):
            mine, limit = self.error(case, MANY), allowed * other.error(case, MANY)
        return mine <= limit

    def error_at(self, case: DriftCase, times: int = 1) -> float:
        """The mean absolute error of the size at this drift.

        Against the divergence of the population's very records, over all cells. The mean over
        several examples of the drift; of so many times as many populations as usual.
        """
        examples = case.ratios
        if not self.is_whole:
            found = [self._examples_error(example[None], 1, times) for example in examples]
        elif self.complete:
            found = [self._examples_error(examples, len(examples), times)]
        else:
            rounds = self._other_points
            tries = max(len(rounds), len(examples))
            found = [
                rounds[i % len(rounds)]._examples_error(examples[[i % len(examples)]], tries, times)
                for i in range(tries)
            ]
        return float(np.mean(found))

    @cached_property
    def _other_points(self) -> tuple["SimulatedRound", ...]:
        """The same round with other points too: where they are drawn, which ones are matters."""
        trust = trust_of(self.plan)
        others = [
            replace(self, points=trust.draw_points(self.pi, np.random.default_rng(SEED + i)))
            for i in range(1, DESIGNS)
        ]
        return (self, *others)

    def _examples_error(self, ratios: Floats, tries: int, times: int) -> float:
        """The same for examples of a drift and these points, if there are so many to try."""
        populations, draws = self._effort
        errors = simulated_errors(
            self.points,
            self.records,
            ratios[:, self.term_cells],
            self.score,
            self.release,
            design_effect=self.plan.verdict.client_effect,
            effort=(max(1, times * populations // tries), draws),
        )
        sampling = 0.0 if self.complete else self._sampling_sd(ratios[0])
        if sampling == 0:
            return errors.mean_absolute
        levels = (np.arange(NORMAL_QUANTILES) + 0.5) / NORMAL_QUANTILES
        added = sampling * scipy.special.ndtri(levels)
        return float(np.abs(errors.signed[..., None] + added).mean())

    @property
    def _effort(self) -> tuple[int, int]:
        """Noisy counts are released once each: another population costs no more than another draw
        of the noise, and which few records rare cells hold matters most.
        """
        if not self.is_whole:
            return CountsNoise.effort
        if isinstance(self.release, CountsNoise):
            return 8 * max(12, min(64, COUNTS // len(self.points))), 1
        return EFFORT[self.plan.question.release]

    @cached_property
    def term_cells(self) -> Ints:
        """Positions in `pi` of the terms of a scored sum."""
        if not self.is_whole:
            return np.arange(len(self.points))
        asked = np.unique(self.points.cells) if self.points.pooled else self.points.cells
        return np.asarray(np.cumsum(self.view.probabilities > 0)[asked] - 1)

    def _sampling_sd(self, ratios: Floats) -> float:
        """Of the choice of points (Hajek's approximation for designs of fixed size)."""
        asked, effect = self.plan.whole, self.plan.verdict.client_effect
        shares = spread_shares(self.pi, asked.points, asked.exponent)
        chance = np.minimum(self.batches * shares, 1.0)
        fixed = float(np.sum(chance * (1 - chance)))
        if fixed <= 0:
            return 0.0
        records = int(self.records.sum())
        groups = np.random.default_rng(SEED).poisson(records / effect * self.pi * ratios)
        scores = self.score.plain(np.rint(effect * groups), self.pi, np.asarray(records))
        parts = self.pi * scores
        square = float(np.sum((1 - chance) / chance * parts**2))
        level = float(np.sum((1 - chance) * parts))
        return math.sqrt(max(square - level**2 / fixed, 0.0))

    def statistics(self) -> tuple[Statistic, ...]:
        """What the verdict of such a round rests on; of a simulated one, so public."""
        if not self.is_whole:
            return self._column_statistics()
        trust, rng = trust_of(self.plan), np.random.default_rng(SEED)
        cohorts = cohort_sizes(self.plan, self.known.clients // self.batches)
        if isinstance(trust, NoisyHistogram):
            design = CountsDesign(self.points, self.records, (self._count_noise,) * self.batches)
            return (variation_statistic(design, np.zeros(len(self.points))),)
        sums, probabilities = [], self.view.probabilities
        for batch, records in enumerate(self.records.tolist()):
            cells = self.points.cells[self.points.batch == batch]
            counts = rng.multinomial(records, probabilities)[cells]
            sums.append(OpenedSum((counts,), records))
        source = InsecureSeededNoise(SEED)
        found = estimate_sums(trust, (self.points,), sums, cohorts, source=source, rng=rng)
        return found.statistics

    def _column_statistics(self) -> tuple[Statistic, ...]:
        trust, values = trust_of(self.plan), list[Statistic]()
        if isinstance(trust, ScoredSum):
            for question in self.plan.about_columns:
                score, noise = trust.score_of(question), trust.noise_of(question).law
                if question.release != "value" or not isinstance(noise, Calibrated):
                    continue
                values.append(
                    scored_statistic(
                        0.0,
                        score=score,
                        points=self.points,
                        records=self.records,
                        mechanism=noise.for_sensitivity(self.sensitivity(score)),
                    )
                )
        nothing = np.zeros(len(self.points) + 1)
        counts = NoisyCounts.of(nothing, self.records, [self._count_noise])
        law = self.view.out_of_domain(
            clients=self.known.clients,
            records=self.known.records,
            design_effect=self.plan.verdict.design_effect,
        )
        released = NoisyViews(counts=(counts,), mechanism="", values=(tuple(values),))
        return released.statistics(0, self.points, law)

    @property
    def false_alarm(self) -> float:
        """Of the verdict on the whole, or on one column by itself."""
        rate = self.plan.false_alarm_of_each
        return rate if self.is_whole else max(LEAST_RATE, rate / len(self.plan.columns))

    @cached_property
    def smallest_drifts(self) -> dict[str, float | None]:
        """The least drift of each kind found with 95% power; None if not even a large one is.

        Thresholds are the verdict's own, and populations spread as it assumes.
        """
        power_of = _verdict_power(self.statistics(), self.no_drift, self.false_alarm)

        def power(kind: str, size: float) -> float | None:
            case = drift_case(self.pi, kind, size, self.score)
            return None if case is None else power_of(case.ratios[:, self.term_cells])

        start = math.sqrt(len(self.pi)) / int(self.records.sum())
        kinds = POWER_KINDS if self.is_whole else COLUMN_KINDS
        return {kind: _least_found(partial(power, kind), start) for kind in kinds}


def _verdict_power(
    statistics: Sequence[Statistic], model: NoDrift, false_alarm: float
) -> Callable[[Floats], float]:
    """How often a verdict finds a drift with these P / Pi of the terms, one example a row."""
    nulls = simulate_together(statistics, model, draws=simulated_draws(false_alarm))
    thresholds = joint_thresholds(nulls, false_alarm=false_alarm)
    # Small drifts hardly change adaptive noise, which is costly to compute.
    noises = [_usual_noise(statistic, model) for statistic in statistics]

    def power(examples: Floats) -> float:
        rng, each = np.random.default_rng(SEED), POPULATIONS // len(examples)
        drawn = [_drifted(model, ratios).counts(each, rng) for ratios in examples]
        counts, missed = np.concatenate(drawn), []
        for statistic, threshold, noise in zip(statistics, thresholds, noises, strict=True):
            values = statistic.simulated(model, counts, rng)
            found = NullValues(values if noise is None else values + noise, statistic.mechanism)
            missed.append(1 - found.above(threshold))
        return float(1 - np.prod(missed, axis=0).mean())

    return power


def _usual_noise(statistic: Statistic, model: NoDrift) -> Floats | None:
    """Of an adaptive statistic without drift; of others nothing."""
    if statistic.noise is None:
        return None
    rng = np.random.default_rng(SEED)
    return statistic.noise(rng, model.counts(NOISES, rng)).ravel()


def _drifted(model: NoDrift, ratios: Floats) -> NoDrift:
    """The same spread around a P that has drifted."""
    chances = model.pi * ratios
    asked = np.bincount(model.batch, weights=chances[model.term])
    # Large ratios of few sampled cells may exceed 1 together. A probability is above 0.
    return replace(model, pi=np.maximum(KEPT * chances / max(1.0, float(asked.max())), TINY))


def _least_found(power: Callable[[float], float | None], start: float) -> float | None:
    """The least size with enough power. `power` is None for sizes that no drift has."""
    low, high, found = 0.0, start, False
    while not found and (seen := power(high)) is not None:
        found = seen >= POWER
        low, high = (low, high) if found else (high, 2 * high)
    while low == 0 and high > LEAST and (power(high / 2) or 0.0) >= POWER:
        high /= 2
    low = low or high / 2
    while high / low > PRECISION:
        middle = math.sqrt(low * high)
        seen = power(middle)
        if seen is not None and seen < POWER:
            low = middle
        else:
            high, found = middle, found or seen is not None
    return high if found else None
