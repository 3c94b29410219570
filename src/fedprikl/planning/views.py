"""Whether a plan asks about the whole: only if something can be found in it. Public.

If not even half of the largest possible drifts would be found half of the time, the whole gets no
share of the budget and no part of the false-alarm rate. Columns are not left out: all of them have
the same records and the same noise, so that large drifts are found in all of them or in none.
"""

import math
from dataclasses import replace

from fedprikl.planning.budget import shared_evenly
from fedprikl.planning.explain import Reason
from fedprikl.planning.known import Known
from fedprikl.planning.simulated_round import SimulatedRound
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import Question


def without_hopeless_whole(known: Known, draft: Plan) -> tuple[Plan, tuple[Reason, ...]]:
    """The draft without the whole, where nothing can be found in that; and why."""
    if not (draft.points and draft.columns) or _whole_might_tell(known, draft):
        return draft, ()
    plan = draft.changed(views=draft.columns, questions=_scaled(draft.about_columns))
    why = (
        f"no drift of its {known.spectrum.cells:,} cells could be found with so many records and "
        "this epsilon"
    )
    return plan, (Reason("whole", "not asked", why),)


def _scaled(questions: tuple[Question, ...]) -> tuple[Question, ...]:
    """With the whole budget."""
    total = math.fsum(each.share for each in questions)
    return tuple(replace(each, share=each.share / total) for each in questions)


def whole_alone(plan: Plan) -> Plan:
    """The plan about the whole alone, with its part of the budget of a release."""
    part = math.fsum(each.share for each in plan.about_whole)
    epsilon, delta = plan.budget.epsilon * plan.budget.parts, plan.budget.delta
    return plan.changed(
        views=tuple(view for view in plan.views if not view.columns),
        questions=tuple(replace(each, share=each.share / part) for each in plan.about_whole),
        epsilon=part * epsilon,
        delta=part * delta,
        parts=1.0,
        total_epsilon=part * epsilon,
        total_delta=part * delta,
        false_alarm=plan.false_alarm_of_each,
    )


def _whole_might_tell(known: Known, draft: Plan) -> bool:
    """By noisy counts of all cells, or by numbers where not all fit into the payload."""
    shares = draft.trust == "none"
    plan = shared_evenly(draft) if shares else whole_alone(draft)
    points = known.points_that_fit(plan)
    if shares or points >= known.spectrum.cells:
        counts = tuple(replace(each, release="counts") for each in plan.questions)
        plan = replace(plan, questions=counts)
    return SimulatedRound.of(plan.asking(points), known).might_tell
