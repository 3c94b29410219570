"""Planning without a trusted party: one batch, cohorts as large as can be."""

from dataclasses import replace
from functools import cache

import numpy as np

from fedprikl.estimation import (
    Forecast,
    NoisyRound,
    forecast_noisy,
    mean_error,
    smallest_noisy_drift,
)
from fedprikl.planning.design import EXPONENTS, sampling_errors
from fedprikl.planning.explain import Reason, common_reasons
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.reference import QueryPoints, Reference

__all__ = ["noisy_round", "plan_untrusted"]

LARGEST_COHORT = 5000  # each cohort carries its own noise: as few as possible
SEED = 0  # of the points that a prediction is made for; a round draws its own


def plan_untrusted(known: Known, draft: Plan) -> PlannedRound:
    """The plan with the best exponent. Releases are charged one by one, so each gets a share."""
    total, delta = draft.budget
    draft = replace(
        draft,
        epsilon=total / draft.releases,
        delta=delta / draft.releases,
        cohort=known.cohort_of(LARGEST_COHORT),
    )
    points = known.points_that_fit(draft)
    exponents = EXPONENTS if points < known.spectrum.cells else (1.0,)
    options = [_asking(draft, points=points, exponent=exponent) for exponent in exponents]
    forecasts = {option: _forecast(known, option) for option in options}
    plan = min(options, key=lambda option: mean_error(forecasts[option]))

    def doublings() -> dict[str, float]:
        wider = replace(known, payload=2 * known.payload)
        most = wider.points_that_fit(plan)
        with_more = _asking(plan, points=most, exponent=plan.question.exponent)
        richer = replace(plan, epsilon=2 * plan.epsilon)
        return {
            "payload": mean_error(forecasts.get(with_more) or _forecast(known, with_more)),
            "epsilon": mean_error(_forecast(known, richer)),
        }

    return PlannedRound(
        plan=plan,
        releases=draft.releases,
        forecasts=forecasts[plan],
        cost=known.cost(plan),
        notes=known.notes(plan),
        find_smallest=cache(
            lambda: smallest_noisy_drift(
                _round_of(known, plan),
                score=NoisyHistogram(plan).score,
                false_alarm=plan.false_alarm,
                spread=known.spread(plan),
            )
        ),
        find_doublings=cache(doublings),
        reasons=(*common_reasons(plan, support=known.spectrum.cells), *_reasons(plan)),
    )


def noisy_round(
    reference: Reference,
    plan: Plan,
    *,
    clients: int,
    records: int,
    points: QueryPoints | None = None,
) -> NoisyRound:
    """A round without a trusted party in which every client stays, on some `points` of the plan."""
    trust = NoisyHistogram(plan)
    if points is None:
        points = trust.draw_points(reference.probabilities, np.random.default_rng(SEED))
    sd, scale = trust.expected_noise(cohort_sizes(plan, clients))
    return NoisyRound(points, records=records, noise_sd=sd, laplace_scale=scale)


def _round_of(known: Known, plan: Plan) -> NoisyRound:
    return noisy_round(known.reference, plan, clients=known.clients, records=known.records)


def _asking(plan: Plan, *, points: int, exponent: float) -> Plan:
    """The plan with a changed question."""
    return replace(plan, questions=(replace(plan.question, points=points, exponent=exponent),))


def _forecast(known: Known, plan: Plan) -> tuple[Forecast, ...]:
    question, score = plan.question, NoisyHistogram(plan).score
    sampling = sampling_errors(
        known.spectrum, score=score, points=question.points, exponent=question.exponent
    )
    drifts = score.divergence.drifts(question.skew)
    return forecast_noisy(_round_of(known, plan), score=score, drifts=drifts, sampling=sampling)


def _reasons(plan: Plan) -> list[Reason]:
    return [
        Reason("batches", "1", "each further batch would carry noise of its own"),
        Reason(
            "cohort",
            f"{plan.cohort:,}",
            "as many clients in one secure sum as can be, because each sum carries its noise",
        ),
        Reason(
            "noise",
            plan.noise,
            "Laplace or Gaussian shares, whichever is smaller; added by the clients themselves",
        ),
    ]
