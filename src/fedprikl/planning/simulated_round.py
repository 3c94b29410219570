"""A simulated round: what a plan would release about a view, on public drifts. Public.

This is the one forecast: the errors of the answer at drifts of several kinds and sizes, and the
smallest drifts that the verdict finds. It follows from the plan, whatever its trust, unit or views.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.estimation import (
    CountNoise,
    NoisyCounts,
    score_sensitivity,
)
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.no_drift import NoDrift, public_simulation
from fedprikl.estimation.scoring import Terms
from fedprikl.estimation.simulated_releases import (
    AdaptiveNoise,
    CountsNoise,
    LookedNoise,
    ReleaseOption,
    ValueNoise,
    simulated_errors,
)
from fedprikl.estimation.statistic import Statistic, counts_statistics, scored_statistic
from fedprikl.estimation.verdict import simulated_draws
from fedprikl.libraries import scipy
from fedprikl.planning.cases import (
    COLUMN_KINDS,
    POWER_KINDS,
    DriftCase,
    cases_of,
    drift_case,
    largest_drift,
    positive,
)
from fedprikl.planning.known import Known
from fedprikl.planning.power import (
    FEW,
    MANY_COUNTS,
    MANY_POPULATIONS,
    VerdictPower,
    chi_square_drift,
    drifted_counts,
    least_found,
)
from fedprikl.privacy import Calibrated, InsecureSeededNoise, LookedMechanism
from fedprikl.protocol.answering import estimate_sums, expected_noise, law_outside
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import view_score
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.sums import NoisyHistogram, OpenedSum, ScoredSum, asked_views, trust_of
from fedprikl.reference import OutOfDomain, QueryPoints, Spread, View, spread_shares

TIE = 1e-9  # relative: processors round differently, and errors that differ by less are equal

DESIGNS = 4  # draws of the points, where not all cells are asked
NORMAL_QUANTILES = 21  # of what the choice of points adds
# Populations, and releases of each.
EFFORT = {"value": (8, 100), "adaptive": (4, 100), "looked": (4, 100)}
COUNTS, MANY = 2000, 3000  # in an eighth of the releases: few cells need many releases
GONE = 4  # times as many of a cell that is gone: seldom much noise makes it seem to hold some
# Of release options.
NAMES = {"adaptive": "adaptive noise", "looked": "noise after a look", "counts": "noisy counts"}
LENIENT = 0.1, 400  # a false-alarm rate at which hopeless views are told from others; populations
KEPT = 2**22  # counts of populations without drift that are kept
# Counts drawn to compare plans, without drift and with one: of many questions fewer populations.
COMPARED, LOOKED_FOR = 2**24, 2**22
ENOUGH = 40  # populations with a drift, however many questions
LEAST_RATE = 1e-3  # of false alarms in one column or period: rarer ones take long to simulate
T = TypeVar("T")


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
    # Counts of simulated populations: rounds of the same points and records share them.
    _drawn: dict[tuple[str, float, int], list[Ints]] = field(default_factory=dict, repr=False)
    _errors: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, plan: Plan, known: Known) -> "SimulatedRound":
        """About the whole, with points drawn like those of a round; a round draws its own."""
        whole = known.reference.whole
        points = trust_of(plan).draw_points(whole.probabilities, np.random.default_rng(SEED))
        return cls(plan, known, whole, points)

    @classmethod
    def of_column(cls, plan: Plan, known: Known) -> "SimulatedRound":
        """About the view with the median number of cells, among columns and pairs."""
        views = sorted(asked_views(plan, known.reference), key=lambda view: view.size)
        view = views[(len(views) - 1) // 2]
        return cls(plan, known, view, view.points())

    @property
    def is_whole(self) -> bool:
        """Whether it is about the whole joint domain, not about a column."""
        return not self.view.columns

    @cached_property
    def pi(self) -> Floats:
        """Of the cells with Pi > 0."""
        return positive(self.view) if self.is_whole else self.points.pi

    @property
    def cases(self) -> tuple[DriftCase, ...]:
        """The drifts of the whole that a plan is judged by."""
        return cases_of(self.view, self.score.plain)

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
        return Terms.of(self.points, self.records).sums(counts, score)

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

    @property
    def shares(self) -> str:
        """The shares of all questions about the whole, in words."""
        found: dict[str, float] = {}
        for each in self.plan.about_whole:
            name = "counts" if each.release == "counts" else each.divergence
            found[name] = found.get(name, 0.0) + each.share
        return ", ".join(f"{name} {100 * share:.3g}%" for name, share in found.items())

    @cached_property
    def release(self) -> ReleaseOption:
        """How the size is released."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram) or not self.is_whole:
            return CountsNoise(self.count_noise)
        noise = trust.noise_of(self.plan.question)
        if isinstance(noise.law, LookedMechanism):
            sensitivity = self.sensitivity(self.score)
            return LookedNoise.of(noise.law, sensitivity, self.plan.contribution_bound)
        if not isinstance(noise.law, Calibrated):
            return AdaptiveNoise(noise.law.epsilon, self.plan.contribution_bound)
        if noise.is_counts:
            return CountsNoise(CountNoise.of(noise.law.noise), textbook=self.textbook)
        return ValueNoise(noise.law.for_sensitivity(self.sensitivity(self.score)))

    @property
    def count_noise(self) -> CountNoise:
        """On each count, where nobody is trusted, or of a column."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram):
            clients = self.known.clients // self.batches
            return expected_noise(trust, cohort_sizes(self.plan, clients))
        return CountNoise.of(trust.column_counts)

    def error(self, case: int) -> float:
        """Mean absolute error at one of the cases."""
        if case not in self._errors:
            self._errors[case] = self.error_at(self.cases[case])
        return self._errors[case]

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

    def error_at(self, case: DriftCase) -> float:
        """The mean absolute error of the size at this drift.

        Against the divergence of the population's very records, over all cells. The mean over
        several examples of the drift.
        """
        examples = case.ratios
        if not self.is_whole:
            found = [self._examples_error(example[None], 1) for example in examples]
        elif self.complete:
            more = GONE if case.kind == "gone" else 1
            found = [self._examples_error(examples, len(examples), more)]
        else:
            rounds = self._other_points
            tries = max(len(rounds), len(examples))
            found = [
                rounds[i % len(rounds)]._examples_error(examples[[i % len(examples)]], tries)
                for i in range(tries)
            ]
        return float(np.mean(found))

    @cached_property
    def _other_points(self) -> tuple["SimulatedRound", ...]:
        """The same round with other points too: where they are drawn, which ones are matters."""
        trust = trust_of(self.plan)
        others = [
            replace(
                self,
                points=trust.draw_points(self.pi, np.random.default_rng(SEED + i)),
                _drawn={},
            )
            for i in range(1, DESIGNS)
        ]
        return (self, *others)

    def _examples_error(self, ratios: Floats, tries: int, more: int = 1) -> float:
        """The same for examples of a drift and these points, if there are so many to try.

        Of noisy counts so many times more populations.
        """
        populations, draws = self._effort
        if isinstance(self.release, CountsNoise):
            populations *= more
        errors = simulated_errors(
            self.points,
            self.records,
            ratios[:, self.term_cells],
            self.score,
            self.release,
            design_effect=self.plan.verdict.client_effect,
            effort=(max(1, populations // tries), draws),
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
            few = max(4, min(12, MANY // len(self.points)))
            return 8 * max(few, min(64, COUNTS // len(self.points))), 1
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
        if isinstance(trust, NoisyHistogram):
            return self._counted((self.count_noise,) * self.batches)
        sums, probabilities = [], self.view.probabilities
        for batch, records in enumerate(self.records.tolist()):
            cells = self.points.cells[self.points.batch == batch]
            counts = rng.multinomial(records, probabilities)[cells]
            sums.append(OpenedSum((counts,), records))
        cohorts = cohort_sizes(self.plan, self.known.clients // self.batches)
        source, outside = InsecureSeededNoise(SEED), self._outside
        return estimate_sums(
            trust, (self.points,), sums, cohorts, source=source, rng=rng, outside=outside
        ).statistics

    @property
    def _outside(self) -> OutOfDomain | None:
        """The law of records in no cell."""
        clients, records = self.known.clients, int(self.records.sum())
        return law_outside(self.plan, self.view, self.points, clients=clients, records=records)

    def _counted(self, noise: Sequence[CountNoise]) -> tuple[Statistic, ...]:
        """The statistics of noisy counts."""
        nothing = np.zeros(len(self.points) + len(noise))
        counts = NoisyCounts.of(nothing, self.records, noise)
        return counts_statistics(self.points, counts, self._outside)

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
        return (*values, *self._counted((self.count_noise,)))

    @property
    def false_alarm(self) -> float:
        """Of the verdict on the whole, or on one column by itself."""
        rate = self.plan.false_alarm_of_each
        return rate if self.is_whole else max(LEAST_RATE, rate / len(self.plan.columns))

    @cached_property
    def power(self) -> VerdictPower:
        """How often the verdict finds a drift. Thresholds are its own."""
        return self._power(self.false_alarm, simulated_draws(self.false_alarm))

    @cached_property
    def _rough_power(self) -> VerdictPower:
        """To compare plans: with many questions, at a more lenient rate.

        Such a rate needs fewer simulated populations.
        """
        rate, (lenient, least) = self.false_alarm, LENIENT
        draws = max(least, COMPARED // len(self.points))
        if draws >= simulated_draws(rate):
            return self.power
        return self._power(max(rate, lenient * least / draws), draws)

    def _power(self, false_alarm: float, draws: int) -> VerdictPower:
        key = "none", 0.0, draws
        populations = self._drawn.get(key)
        if populations is None:
            populations = list(self.no_drift.chunks(draws, public_simulation()))
            if draws * len(self.pi) <= KEPT:
                self._drawn[key] = populations
        return VerdictPower.of(self.statistics(), self.no_drift, false_alarm, populations)

    @property
    def might_tell(self) -> bool:
        """Whether it can tell anything: at a lenient false-alarm rate, from few populations."""
        rate, draws = LENIENT
        return self._power(rate, draws).findable[0]

    def power_at(
        self, kind: str, size: float, populations: int, power: VerdictPower | None = None
    ) -> float:
        """How often it finds a drift of this kind and size, of so many populations or fewer."""
        key = kind, size, populations
        counts = self._drawn.get(key)
        if counts is None:
            case = drift_case(self.pi, kind, size, self.score, many=populations > FEW)
            if case is None:
                return 0.0
            ratios = case.ratios[:, self.term_cells]
            enough = max(ENOUGH, LOOKED_FOR // len(self.points))
            drawn = min(populations, enough) if populations == FEW else populations
            counts = [drifted_counts(self.no_drift, ratios, drawn)]
            if populations == FEW:
                self._drawn[key] = counts
        return (power or self.power).at(counts[0])

    @cached_property
    def _largest(self) -> dict[str, float]:
        """Of each kind that there is."""
        kinds = POWER_KINDS if self.is_whole else COLUMN_KINDS
        sizes = {kind: largest_drift(self.pi, kind, self.score) for kind in kinds}
        return {kind: size for kind, size in sizes.items() if size > 0}

    @cached_property
    def smallest_drifts(self) -> dict[str, float | None]:
        """The least drift of each kind found with 95% power; None if not even the largest is.

        Populations spread as the verdict assumes. Of unseen values it is their share of the
        records.
        """
        return {kind: self._least_found(kind, precise=True) for kind in self._largest}

    @cached_property
    def rough_drifts(self) -> dict[str, float]:
        """The same within some 15%, to compare plans; of what is not found, twice the largest.

        Of drifts of the cells no less than a chi-square test of the raw counts finds: who finds
        less than that has won enough.
        """
        found = {
            kind: self._least_found(kind, precise=False) or 2 * size
            for kind, size in self._largest.items()
        }
        if self.score.divergence.name != "kl":
            return found
        records = float(self.records.sum()) / self.plan.verdict.client_effect
        enough = chi_square_drift(len(self.pi), records, self.false_alarm)
        return {
            kind: size if kind == "unseen" else max(size, enough) for kind, size in found.items()
        }

    def _least_found(self, kind: str, *, precise: bool) -> float | None:
        start = math.sqrt(len(self.pi)) / int(self.records.sum())
        many = max(FEW, min(MANY_POPULATIONS, MANY_COUNTS // len(self.pi))) if precise else 0
        power = self.power if precise else self._rough_power
        at = partial(self.power_at, kind, power=power)
        return least_found(at, start, self._largest[kind], many)
