"""Planning with a trusted aggregator: all designs are searched."""

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fedprikl.estimation import judge_release, score_sensitivity
from fedprikl.planning.design import (
    Design,
    DesignForecast,
    DesignMoments,
    forecast_design,
    search_designs,
)
from fedprikl.planning.explain import common_reasons, design_reasons, noise_reasons
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.power import smallest_drift
from fedprikl.planning.release_budget import ReleaseBudget, split_budget
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question
from fedprikl.protocol.scored_sum import ScoredSum

__all__ = ["plan_trusted"]

BATCHES = (1, 2, 4, 8, 16, 32, 64)
COHORT = 50  # clients of a secure sum
PRECISION = 1e-3  # of the smallest drift, relative
SEED = 0  # of the points that a prediction is made for; a round draws its own


def plan_trusted(known: Known, draft: Plan) -> PlannedRound:
    """The plan with the best design. The draft's budget is for all releases together."""
    total, delta = draft.budget
    budget = split_budget(epsilon=total, delta=delta, releases=draft.releases)
    search = _Search(
        known,
        replace(draft, epsilon=budget.epsilon, noise=budget.noise, cohort=known.cohort_of(COHORT)),
        budget,
    )
    searched = search.designs()
    best = search.best(searched)
    plan = replace(
        search.draft,
        questions=(_asking(draft.question, best.design),),
        batches=best.design.batches,
    )
    return PlannedRound(
        plan=plan,
        releases=draft.releases,
        forecasts=best.forecasts,
        cost=known.cost(plan),
        notes=known.notes(plan),
        find_smallest=cache(lambda: _smallest_drift(known, plan, best.design)),
        find_doublings=cache(lambda: search.doublings(searched)),
        reasons=(
            *common_reasons(plan, support=known.spectrum.cells),
            *noise_reasons(budget, draft.releases),
            *design_reasons(best, searched, ScoredSum(plan).score.divergence),
        ),
    )


def _asking(question: Question, design: Design) -> Question:
    """The question with the numbers of a design."""
    step = None if design.maximum_step == math.inf else design.maximum_step
    return replace(question, points=design.points, exponent=design.exponent, maximum_step=step)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """The designs that fit, and the noise of a budget."""

    known: Known
    draft: Plan
    budget: ReleaseBudget

    def designs(self) -> list[DesignForecast]:
        """Forecasts of all of them."""
        known, draft = self.known, self.draft
        points = {
            batches: known.points_that_fit(replace(draft, batches=batches))
            for batches in BATCHES
            if batches == 1 or known.clients // batches >= draft.cohort
        }
        return search_designs(
            known.spectrum,
            score=ScoredSum(draft).score,
            records=known.records,
            points=points,
            noise_per_sensitivity=self.budget.noise_per_sensitivity,
            client_effect=draft.client_effect,
        )

    def best(self, searched: list[DesignForecast]) -> DesignForecast:
        """The winner, its errors predicted anew."""
        return forecast_design(
            self.known.spectrum,
            min(searched, key=lambda each: each.error).design,
            score=ScoredSum(self.draft).score,
            records=self.known.records,
            noise_per_sensitivity=self.budget.noise_per_sensitivity,
            client_effect=self.draft.client_effect,
        )

    def doublings(self, searched: list[DesignForecast]) -> dict[str, float]:
        """The error with twice the payload, and with half the noise: twice the epsilon."""
        wider = replace(self, known=replace(self.known, payload=2 * self.known.payload))
        quieter = replace(
            self,
            budget=replace(
                self.budget, noise_per_sensitivity=self.budget.noise_per_sensitivity / 2
            ),
        )
        return {
            "payload": wider.best(wider.designs()).error,
            "epsilon": quieter.best([each.with_noise(0.5) for each in searched]).error,
        }


def _smallest_drift(known: Known, plan: Plan, design: Design) -> float | None:
    """The least drift found with 95% power.

    The alarm is the verdict's own, for points drawn like those of a round. How a drifted population
    spreads is predicted from moments: its spread is that of records in groups, as the verdict has
    them, its mean that of unrelated records. Groups leave cells empty, which raises the mean;
    clients are less lumpy than groups, and a plan must not count on it.
    """
    trust = ScoredSum(plan)
    points = trust.draw_points(known.reference.probabilities, np.random.default_rng(SEED))
    records = np.full(plan.batches, max(1, known.records // plan.batches))
    mechanism = trust.calibrated.for_sensitivity(score_sensitivity(points, records, trust.score))
    alarm = judge_release(
        0.0,
        plan.false_alarm,
        known.spread(plan),
        mechanism=mechanism,
        points=points,
        records=records,
        score=trust.score,
    ).threshold
    actual = DesignMoments.of(known.spectrum, design, score=trust.score, records=known.records)
    grouped = actual.in_groups(known.design_effect(plan))

    def moments(divergence: float) -> tuple[float, float]:
        return actual(divergence)[0], grouped(divergence)[1]

    largest = 0.85 * trust.score.divergence.empty(plan.question.skew)
    return smallest_drift(moments, mechanism, alarm, largest=largest, precision=PRECISION)
