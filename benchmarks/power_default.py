"""fedprikl's default, many releases at a time: the only part of the benchmark that knows the plan.

`Default` makes a plan as a user does and simulates its releases in the open, without cryptography:
secure sums are exact. What the plan fixes (points, noise, thresholds, the errors behind an
interval) is computed once; populations then cost microseconds. All of them have as many records.
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import (
    Estimate,
    NoisyCounts,
    NoisyRound,
    forecast_noisy,
    judge_noisy_release,
    judge_release,
    overdispersion,
    score_sensitivity,
)
from fedprikl.estimation.interval import confidence_interval
from fedprikl.estimation.noisy_counts import debias
from fedprikl.estimation.noisy_interval import NoisyErrors
from fedprikl.estimation.terms import Terms
from fedprikl.planning import Design, Spectrum, forecast_design, sampling_errors
from fedprikl.planning.release_budget import split_budget
from fedprikl.planning.untrusted_plan import noisy_round
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol import trust_of
from fedprikl.protocol.cohort_sums import OpenedSum
from fedprikl.protocol.plan import Trust
from fedprikl.protocol.round import cohort_sizes
from fedprikl.reference import QueryPoints

FALSE_ALARM, LEVEL, RESAMPLES = 0.01, 0.95, 40
DRAWS = 20  # of noise on counts for each population, where the law of the error has no formula


class Default:
    """The plan for a reference, and what it releases. `ask=("kl",)` asks for nothing but KL."""

    def __init__(
        self,
        reference: fk.Reference,
        *,
        clients: int,
        records: int,
        epsilon: float,
        trust: Trust = "aggregator",
        payload: int = 1024,
        ask: tuple[str, ...] | None = None,  # noqa: ARG002  one question today
        whole: bool = False,  # ask for all cells, even if no planner would
    ) -> None:
        self.reference, self.clients, self.records = reference, clients, records
        self.planned = fk.plan(
            reference,
            clients=clients,
            records=records,
            epsilon=epsilon,
            trust=trust,
            payload=payload,
            false_alarm=FALSE_ALARM,
        )
        self.plan = self.planned.plan
        if whole:
            points = int(np.count_nonzero(reference.probabilities))
            questions = tuple(replace(each, points=points) for each in self.plan.questions)
            self.plan = replace(self.plan, questions=questions, batches=1)
        self.trust: Any = trust_of(self.plan)  # which of the two, `trusted` says
        self.pi = reference.probabilities
        self.points = self.trust.draw_points(self.pi, np.random.default_rng(0))
        self.totals = np.full(self.plan.batches, records // self.plan.batches)
        self.trusted = self.plan.trust == "aggregator"
        self.release = "value" if self.trusted else "counts"  # what the size is read off

    @cached_property
    def terms(self) -> Terms:
        """Weights and records of the scores. Many releases at once: all cells of everybody."""
        if self.plan.batches > 1 or len(self.points) < np.count_nonzero(self.pi):
            raise ValueError("Not all cells are asked: release one by one, with `estimate`.")
        return Terms.of(self.points, self.totals)

    @cached_property
    def mechanism(self) -> Any:
        """The noise on the one number."""
        delta = score_sensitivity(self.points, self.totals, self.trust.score)
        return self.trust.calibrated.for_sensitivity(delta)

    @cached_property
    def noisy(self) -> NoisyCounts:
        """Empty counts with the noise of a round in which everybody stays."""
        return self._noisy_round().empty

    def values(self, held: Ints, rng: np.random.Generator) -> Floats:
        """A KL per population (rows of counts over the cells of the reference)."""
        if self.release == "value":
            return self._exact(held) + self._noise(len(held), rng)
        counts, rest = self._noised(held, rng)
        found, _ = debias(
            self.noisy,
            counts,
            rest,
            np.full((len(held), 1), self.records),
            score=self.trust.score,
            rng=rng,
            resamples=RESAMPLES,
        )
        return found

    def errors(self, held: Ints, truth: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Mean absolute and mean square error of KL over the noise, per population."""
        if self.release == "value" and self.plan.noise == "laplace":
            error = np.abs(self._exact(held) - truth)
            scale = self.mechanism.standard_deviation / math.sqrt(2)
            return error + scale * np.exp(-error / scale), error**2 + 2 * scale**2
        drawn = [self.values(np.repeat(each[None], DRAWS, axis=0), rng) for each in held]
        error = np.array(drawn) - truth[:, None]
        return np.abs(error).mean(axis=1), (error**2).mean(axis=1)

    def flags(self, held: Ints, rng: np.random.Generator) -> Any:
        """Whether drift is found, per population: any witness above its threshold."""
        found = np.zeros(len(held), bool)
        for statistic, threshold in self.witnesses:
            silent = np.flatnonzero(~found)  # one witness is enough: the others need not be asked
            if len(silent):
                found[silent] = statistic(held[silent], rng) > threshold
        return found

    @cached_property
    def witnesses(self) -> list[tuple[Any, float]]:
        """Statistics of populations, and their thresholds, which no value can change."""
        rate, effect = self.plan.false_alarm, self.plan.design_effect
        if self.release == "value":
            verdict = judge_release(
                0.0,
                rate,
                effect,
                mechanism=self.mechanism,
                points=self.points,
                records=self.totals,
                score=self.trust.score,
            )
            return [(self.values, verdict.threshold)]
        sd = np.full(len(self.points), float(self.noisy.noise_sd[0]))

        def variation(held: Ints, rng: np.random.Generator) -> Floats:
            counts, _ = self._noised(held, rng)
            return overdispersion(counts, self.points.pi, self.totals, sd, design_effect=effect)

        return [(variation, judge_noisy_release(self.noisy, rate, effect).threshold)]

    def intervals(self, values: Floats) -> Floats:
        """The printed 95% interval of each value."""
        if self.release == "counts":
            errors = NoisyErrors.of(self.noisy, self.trust.score)
            return np.array([errors.interval(float(value), LEVEL) for value in values])
        return np.array([self._interval(float(value)) for value in values])

    def opened(
        self, points: QueryPoints, batches: Ints, rng: np.random.Generator
    ) -> list[OpenedSum]:
        """What the secure sums of a round open: `batches` are counts (batches, cells)."""
        sums = []
        for batch, counts in enumerate(batches):
            asked, records = counts[points.cells[points.batch == batch]], int(counts.sum())
            if self.trusted:
                sums.append(OpenedSum(asked, records))
                continue
            sd = float(self.noisy.noise_sd[0])
            around = NoisyRound(
                points, records=records, noise_sd=sd, laplace_scale=self.noisy.laplace_scale
            )
            on_counts, on_rest = around.empty.draw_noise(rng)
            noisy = np.append(asked + on_counts[0], records - asked.sum() + on_rest[0])
            sums.append(OpenedSum(noisy, records, sd**2))
        return sums

    def estimate(
        self, points: QueryPoints, sums: list[OpenedSum], rng: np.random.Generator
    ) -> Estimate:
        """One release as the library makes it."""
        found: Estimate = self.trust.estimate(
            points,
            sums,
            cohort_sizes(self.plan, self.clients // self.plan.batches),
            source=InsecureSeededNoise(int(rng.integers(2**31))),
            rng=rng,
        )
        return found

    def predicted(self, kind: str, divergence: float) -> float:  # noqa: ARG002  one model today
        """The planner's mean absolute error at a drift of this kind and size (with skew)."""
        plan, question, score = self.plan, self.plan.question, self.trust.score
        spectrum = Spectrum.of(self.pi)
        if self.release == "value":
            limit = question.maximum_step
            found = forecast_design(
                spectrum,
                Design(
                    points=question.points,
                    batches=plan.batches,
                    exponent=question.exponent,
                    maximum_step=math.inf if limit is None else limit,
                ),
                score=score,
                records=self.records,
                noise_per_sensitivity=split_budget(
                    epsilon=plan.epsilon, delta=plan.delta
                ).noise_per_sensitivity,
                drifts=[divergence],
                client_effect=plan.client_effect,
            ).forecasts[0]
        else:
            sampling = sampling_errors(
                spectrum,
                score=score,
                points=question.points,
                exponent=question.exponent,
                drifts=[divergence],
            )
            around = self._noisy_round()
            found = forecast_noisy(around, score=score, drifts=[divergence], sampling=sampling)[0]
        return _mean_absolute(found, laplace=self.release == "value" and plan.noise == "laplace")

    def _noisy_round(self) -> NoisyRound:
        return noisy_round(self.reference, self.plan, clients=self.clients, records=self.records)

    def _exact(self, held: Ints) -> Floats:
        scores = self.terms.scores(held[:, self.points.cells], self.trust.score)
        return np.asarray(scores @ self.terms.weights)

    def _noise(self, draws: int, rng: np.random.Generator) -> Floats:
        sd = self.mechanism.standard_deviation
        if self.plan.noise == "laplace":
            return rng.laplace(0.0, sd / math.sqrt(2), draws)
        return rng.normal(0.0, sd, draws)

    def _noised(self, held: Ints, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Counts and the rest with noise on them."""
        counts = held[:, self.points.cells]
        on_counts, on_rest = self.noisy.draw_noise(rng, len(held))
        rest = held.sum(axis=1, keepdims=True) - counts.sum(axis=1, keepdims=True)
        return counts + on_counts, rest + on_rest

    def _interval(self, value: float) -> tuple[float, float]:
        found = confidence_interval(
            value,
            mechanism=self.mechanism,
            points=self.points,
            records=self.totals,
            score=self.trust.score,
            client_effect=self.plan.client_effect,
            level=LEVEL,
        )
        return found or (0.0, math.inf)


def _mean_absolute(forecast: Any, *, laplace: bool) -> float:
    """E |error| of a forecast: a bias, a normal spread and the noise."""
    if not laplace:
        return _folded(
            forecast.bias, math.hypot(forecast.sampling, forecast.spread, forecast.noise_sd)
        )
    levels = (np.arange(2000) + 0.5) / 2000
    tail = np.where(levels < 0.5, np.log(2 * levels), -np.log(2 - 2 * levels))
    noise = forecast.noise_sd / math.sqrt(2) * tail
    spread = float(np.hypot(forecast.sampling, forecast.spread))
    return float(np.mean([_folded(forecast.bias + each, spread) for each in noise]))


def _folded(mean: float, sd: float) -> float:
    """E |X| of a normal variable."""
    if sd == 0:
        return abs(mean)
    z = mean / sd
    return float(
        sd * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))
    )


def planned(pi: Floats, records: int, clients: int, epsilon: float, **options: Any) -> Default:
    """The default for a Pi that is known exactly."""
    reference = fk.Reference.from_probabilities(pi)
    return Default(reference, clients=clients, records=records, epsilon=epsilon, **options)
