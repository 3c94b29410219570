"""One round of a plan in which everybody takes part, to try out releases on. Public."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import CountNoise, CountsDesign, score_sensitivity
from fedprikl.estimation.drift_model import SEED
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.noisy_verdict import VariationStatistic
from fedprikl.estimation.scoring import Terms
from fedprikl.estimation.statistic import Statistic
from fedprikl.estimation.trials import (
    AdaptiveNoise,
    CountsNoise,
    Release,
    ValueNoise,
    trial_errors,
)
from fedprikl.libraries import scipy
from fedprikl.planning.drift_cases import DriftCase
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import question_noise
from fedprikl.protocol.cohort_sums import OpenedSum
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.trust import trust_of
from fedprikl.reference import QueryPoints, Reference, Spread, spread_shares

DESIGNS = 4  # draws of the points, where not all cells are asked
NORMAL_QUANTILES = 21  # of what the choice of points adds
EFFORT = {"value": (8, 100), "adaptive": (4, 100)}  # populations, and releases of each
LOUD = 4.0  # how many times larger a drift noise makes that counts find
COUNTS = 2000  # in an eighth of the releases: few cells need many releases


@dataclass(frozen=True, eq=False)
class TrialRound:
    """The points, records and noise of one round of a plan."""

    plan: Plan
    probabilities: Floats  # Pi of all cells
    points: QueryPoints
    records: Ints  # per batch
    clients: int
    spread: float | Spread  # how counts vary without drift
    textbook: bool = False  # noisy counts are read as a textbook reads them, not shrunken

    @classmethod
    def of(cls, plan: Plan, reference: Reference, *, clients: int, records: int) -> "TrialRound":
        """With points drawn like those of a round; a round draws its own."""
        pi = reference.probabilities
        points = trust_of(plan).draw_points(pi, np.random.default_rng(SEED))
        sizes = np.full(plan.sums.batches, max(1, records // plan.sums.batches))
        spread: float | Spread | None = plan.verdict.design_effect
        if spread is None:
            spread = reference.whole.spread(
                clients=[clients // plan.sums.batches] * plan.sums.batches
            )
        return cls(plan, pi, points, sizes, clients, spread)

    @cached_property
    def pi(self) -> Floats:
        """Of the cells with Pi > 0."""
        return self.probabilities[self.probabilities > 0]

    @property
    def whole(self) -> bool:
        """Whether every cell is asked of everybody."""
        return self.plan.sums.batches == 1 and len(self.points) == len(self.pi)

    @cached_property
    def score(self) -> Score:
        """Of the first question."""
        return trust_of(self.plan).score

    @cached_property
    def no_drift(self) -> NoDrift:
        """How what is scored varies without drift."""
        return NoDrift.of(self.points, self.records, self.spread)

    def before_noise(self, counts: Ints, score: Score) -> Floats:
        """An answer without noise, of counts like those of `no_drift`, (draws, terms)."""
        terms = Terms.of(self.points, self.records)
        return np.asarray(terms.scores(counts, score) @ terms.weights)

    def sensitivity(self, score: Score) -> float:
        """How far one protected unit can move an answer."""
        return score_sensitivity(self.points, self.records, score, self.plan.contribution_bound)

    @property
    def loud(self) -> bool:
        """Whether counts are released, with noise that makes them find much larger drifts only.

        The variance of a usual count without drift is N / K, and with noise N / K + sd^2. The
        statistic of the counts is compared with that: the drift it finds grows by their ratio.
        """
        noise, usual = self._first, float(self.records.sum()) / len(self.points)
        return isinstance(noise, CountsNoise) and 1 + noise.noise.sd**2 / usual > LOUD

    @property
    def largest_step(self) -> float:
        """How far one record can lower the first answer, without a limit."""
        terms, score = Terms.of(self.points, self.records), self.score
        unlimited = replace(score, maximum_step=math.inf)
        steps = unlimited.increments(0, terms.pi, terms.records, outside=terms.outside)
        return float(np.max(-terms.weights * steps))

    def error(self, case: DriftCase, times: int = 1) -> float:
        """The mean absolute error of the answer to the first question at this drift.

        Against the divergence of the population's very records, over all cells. The mean over
        several examples of the drift; of so many times as many populations as usual.
        """
        rounds, examples = self._rounds, case.ratios
        if self.whole:
            return self.examples_error(examples, len(examples), times)
        tries = max(len(rounds), len(examples))
        errors = [
            rounds[i % len(rounds)].examples_error(examples[[i % len(examples)]], tries, times)
            for i in range(tries)
        ]
        return float(np.mean(errors))

    @cached_property
    def _rounds(self) -> tuple["TrialRound", ...]:
        """The same round with other points, where they are drawn: which ones are matters."""
        if self.whole:
            return (self,)
        trust = trust_of(self.plan)
        others = [
            replace(self, points=trust.draw_points(self.pi, np.random.default_rng(SEED + i)))
            for i in range(1, DESIGNS)
        ]
        return (self, *others)

    def examples_error(self, ratios: Floats, tries: int, times: int) -> float:
        """The same for examples of a drift and these points, if there are so many to try."""
        populations, draws = self._effort
        errors = trial_errors(
            self.points,
            self.records,
            ratios[:, self.term_cells],
            self.score,
            self._first,
            design_effect=self.plan.verdict.client_effect,
            effort=(max(1, times * populations // tries), draws),
        )
        sampling = 0.0 if self.whole else self._sampling_sd(ratios[0])
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
        if isinstance(self._first, CountsNoise):
            return 8 * max(12, min(64, COUNTS // len(self.points))), 1
        return EFFORT[self.plan.question.release]

    @cached_property
    def _first(self) -> Release:
        return self.release(self.plan.question)

    def release(self, question: Question) -> Release:
        """How the answer to a question of the plan is released."""
        if isinstance(trust := trust_of(self.plan), NoisyHistogram):
            law = trust.expected_noise(cohort_sizes(self.plan, self.clients))
            return CountsNoise(law, resamples=self._resamples)
        for noise in trust.noises:
            if question not in noise.questions:
                continue
            match noise:
                case question_noise.AdaptiveNoise():
                    return AdaptiveNoise(noise.charge.epsilon, self.plan.contribution_bound)
                case question_noise.CountsNoise():
                    law = CountNoise.of(noise.charge)
                    return CountsNoise(law, not self.textbook, self._resamples)
                case question_noise.ValueNoise():
                    moved = self.sensitivity(trust.score_of(question))
                    return ValueNoise(noise.calibrated.for_sensitivity(moved))
        raise InvalidInputError(f"The plan does not ask for {question.divergence!r}.")

    @property
    def _resamples(self) -> int:
        """Of the debiasing: nearer to the many of a release where cells are few."""
        return max(10, min(20, COUNTS // (2 * len(self.points))))

    def statistics(self) -> tuple[Statistic, ...]:
        """What the verdict of such a round rests on; of a simulated one, so public."""
        trust, rng = trust_of(self.plan), np.random.default_rng(SEED)
        cohorts = cohort_sizes(self.plan, self.clients // self.plan.sums.batches)
        if isinstance(trust, NoisyHistogram):
            laws = (trust.expected_noise(cohorts),) * self.points.batches
            design = CountsDesign(self.points, self.records, laws)
            return (VariationStatistic(design, np.zeros(len(self.points))),)
        sums, points = [], self.points
        for batch, records in enumerate(self.records.tolist()):
            cells = points.cells[points.batch == batch]
            counts = rng.multinomial(records, self.probabilities)[cells]
            sums.append(OpenedSum(counts, np.zeros(0, dtype=np.int64), records))
        source = InsecureSeededNoise(SEED)
        return trust.estimate(self.points, (), sums, cohorts, source=source, rng=rng).statistics

    @cached_property
    def term_cells(self) -> Ints:
        """Positions in `pi` of the terms of a scored sum."""
        asked = np.unique(self.points.cells) if self.points.pooled else self.points.cells
        return np.asarray(np.cumsum(self.probabilities > 0)[asked] - 1)

    @cached_property
    def _inclusion(self) -> Floats:
        asked = self.plan.whole
        shares = spread_shares(self.pi, asked.points, asked.exponent)
        return np.minimum(self.plan.sums.batches * shares, 1.0)

    def _sampling_sd(self, ratios: Floats) -> float:
        """Of the choice of points (Hajek's approximation for designs of fixed size)."""
        chance, effect = self._inclusion, self.plan.verdict.client_effect
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
