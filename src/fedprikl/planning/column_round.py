"""Planning a round that asks about columns, beside the whole or alone."""

from dataclasses import replace
from functools import cache, partial

from fedprikl.errors import InvalidInputError
from fedprikl.planning.column_plan import column_reasons, forecast_columns, split_columns
from fedprikl.planning.explain import epsilon_reason, room_reason
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import PlannedRound
from fedprikl.planning.release_budget import largest_epsilon
from fedprikl.planning.trusted_plan import COHORT, plan_trusted
from fedprikl.planning.untrusted_plan import LARGEST_COHORT, plan_untrusted, share_of_releases
from fedprikl.privacy import Charge
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.trust import trust_of

__all__ = ["plan_columns"]

LEAST_ROOM = 16  # bytes for the counts of the whole


def plan_columns(known: Known, draft: Plan, payload: int | None) -> PlannedRound:
    """The plan of a draft that asks about columns.

    `payload` is for all counts; None: as many bytes as the columns need beside those of the whole.
    """
    alone = draft.trust == "none"
    sized = replace(draft, cohort=known.cohort_of(LARGEST_COHORT if alone else COHORT))
    needed = known.column_bytes(share_of_releases(sized) if alone else sized)
    if payload is None:
        payload = needed + (known.payload if draft.questions else 0)
    least = needed + (LEAST_ROOM if draft.questions else 0)
    if payload < least:
        raise InvalidInputError(
            f"The counts of all columns need {least:,} bytes per client, and {payload:,} are "
            f"allowed. Allow more (--payload), or compare fewer columns or bins{_or_whole(draft)}."
        )
    if not draft.questions:
        return _only_columns(known, sized)
    if alone:
        return _with_forecast(known, plan_untrusted(replace(known, payload=payload), draft))
    return _beside_whole(replace(known, payload=payload - needed), sized)


def _or_whole(draft: Plan) -> str:
    return ", or ask about the whole only (--ask kl,tv,js)" if draft.questions else ""


def _beside_whole(known: Known, draft: Plan) -> PlannedRound:
    """The whole is planned with its part of the budget, as if there were no columns."""
    asked, (total, delta) = draft.columns, draft.budget
    assert asked is not None  # noqa: S101  the draft asks about columns
    part = 1 - asked.share
    whole = replace(
        draft,
        columns=None,
        questions=tuple(replace(each, share=each.share / part) for each in draft.questions),
        epsilon=part * total,
        delta=part * delta,
        budget_epsilon=part * total,
        budget_delta=part * delta,
        false_alarm=draft.false_alarm_of_each,
    )
    planned = plan_trusted(known, whole)
    plan = replace(
        planned.plan,
        columns=asked,
        questions=tuple(replace(each, share=each.share * part) for each in planned.plan.questions),
        epsilon=total,
        delta=delta,
        budget_epsilon=total,
        budget_delta=delta,
        false_alarm=draft.false_alarm,
    )
    plan = _afforded(split_columns(known, plan), total, delta)
    found = replace(planned, plan=plan, cost=known.cost(plan), notes=known.notes(plan))
    return _with_forecast(known, found)


def _only_columns(known: Known, draft: Plan) -> PlannedRound:
    total, delta = draft.budget
    if draft.trust == "none":
        plan = share_of_releases(draft)
    else:
        plan = _afforded(split_columns(known, draft), total, delta)
    return PlannedRound(
        plan=plan,
        releases=plan.releases,
        forecasts=(),
        cost=known.cost(plan),
        reasons=(room_reason(plan), epsilon_reason(plan), *column_reasons(plan)),
        predict=lambda kind, size: None,  # noqa: ARG005  the whole is not asked
        find_smallest=dict,
        notes=known.notes(plan),
        find_doublings=dict,
        find_comparison=tuple,
        find_columns=cache(lambda: forecast_columns(known, plan)),
    )


def _with_forecast(known: Known, planned: PlannedRound) -> PlannedRound:
    return replace(
        planned,
        reasons=(*planned.reasons, *column_reasons(planned.plan)),
        find_columns=cache(lambda: forecast_columns(known, planned.plan)),
    )


def _afforded(plan: Plan, epsilon: float, delta: float) -> Plan:
    """With the epsilon of which all releases fit into the budget."""
    return replace(
        plan,
        epsilon=largest_epsilon(
            partial(_charge, plan), epsilon=epsilon, delta=delta, releases=plan.releases
        ),
    )


def _charge(plan: Plan, epsilon: float) -> Charge:
    return trust_of(replace(plan, epsilon=epsilon)).charge(())
