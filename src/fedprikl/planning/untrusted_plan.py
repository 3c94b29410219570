"""Planning without a trusted party: one batch, cohorts as large as can be."""

from dataclasses import replace
from functools import cache

from fedprikl.planning.design import EXPONENTS
from fedprikl.planning.drift_cases import drift_cases, least
from fedprikl.planning.explain import Reason, common_reasons
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import Compared, PlannedRound
from fedprikl.planning.smallest import smallest_drifts
from fedprikl.planning.trial_round import TrialRound
from fedprikl.planning.ways import Way
from fedprikl.protocol.plan import Plan

LARGEST_COHORT = 5000  # each cohort carries its own noise: as few as possible


def plan_untrusted(known: Known, draft: Plan) -> PlannedRound:
    """The plan with the best exponent. Releases are charged one by one, so each gets a share.

    Every divergence is read off the same noisy counts.
    """
    draft = share_of_releases(draft).changed(cohort=known.cohort_of(LARGEST_COHORT))
    points = known.points_that_fit(draft)
    exponents = EXPONENTS if points < known.spectrum.cells else (1.0,)
    taken = least(
        (_way(known, draft.asking(points, each)) for each in exponents),
        lambda way: way.typical,
    )
    plan = taken.plan

    def doublings() -> dict[str, float]:
        wider = replace(known, payload=2 * known.payload)
        richer = plan.changed(epsilon=2 * plan.budget.epsilon)
        more = plan.asking(wider.points_that_fit(plan), plan.whole.exponent)
        return {
            "payload": taken.typical if taken.trial.whole else _way(known, more).typical,
            "epsilon": _way(known, richer).typical,
        }

    return PlannedRound(
        plan=plan,
        releases=draft.budget.releases,
        forecasts=taken.forecasts,
        cost=known.cost(plan),
        notes=known.notes(plan),
        find_smallest=cache(lambda: smallest_drifts(taken.trial)),
        find_doublings=cache(doublings),
        find_comparison=cache(lambda: (Compared(taken.name, taken.forecasts, taken=True),)),
        predict=taken.predict,
        reasons=(*common_reasons(plan, support=known.spectrum.cells), *_reasons(plan)),
    )


def share_of_releases(draft: Plan) -> Plan:
    """The draft with what one of its releases may spend."""
    total, delta = draft.budget.total
    times = draft.budget.releases
    return draft.changed(epsilon=total / times, delta=delta / times)


def _way(known: Known, plan: Plan) -> Way:
    trial = TrialRound.of(plan, known.reference, clients=known.clients, records=known.records)
    return Way(trial, drift_cases(trial.pi, trial.score))


def _reasons(plan: Plan) -> list[Reason]:
    return [
        Reason("batches", "1", "each further batch would carry noise of its own"),
        Reason(
            "cohort",
            f"{plan.sums.cohort:,}",
            "as many clients in one secure sum as can be, because each sum carries its noise",
        ),
        Reason(
            "noise",
            plan.question.noise,
            "Laplace or Gaussian shares, whichever is smaller; added by the clients themselves",
        ),
        Reason("release", "noisy counts", "nobody is trusted; all answers are read off them"),
    ]
