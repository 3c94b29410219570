"""Planning a series: every release is noisy counts of all cells, so that they add up over time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from fedprikl.errors import InvalidInputError
from fedprikl.planning.column_plan import (
    column_reasons,
    columns_share,
    forecast_columns,
    whole_alone,
)
from fedprikl.planning.drift_cases import drift_cases, least
from fedprikl.planning.explain import Reason, common_reasons, epsilon_reason, room_reason
from fedprikl.planning.known import MOST_POINTS, Known
from fedprikl.planning.planned_round import Compared, PlannedRound
from fedprikl.planning.release_budget import largest_epsilon
from fedprikl.planning.smallest import smallest_drifts
from fedprikl.planning.trial_round import TrialRound
from fedprikl.planning.trusted_plan import COHORT
from fedprikl.planning.untrusted_plan import LARGEST_COHORT, share_of_releases
from fedprikl.planning.ways import Way
from fedprikl.privacy import AccountedRelease, Charge, NoiseKind
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.series import Once, Series
from fedprikl.protocol.trust import trust_of

NOISES: tuple[NoiseKind, ...] = ("laplace", "gaussian")
LEAST_RATE = 1e-3  # of one period's false alarms, in forecasts: rarer ones take long to simulate


def plan_series(known: Known, draft: Plan, series: Series) -> PlannedRound:
    """The plan of a series; `known` is about one release. The budget is that of one record.

    What is predicted is the error of a single period.
    """
    cells = known.spectrum.cells if draft.points else 0
    if (asked := cells + draft.column_points) > MOST_POINTS:
        raise InvalidInputError(
            f"A series asks for every cell, here {asked:,}, and clients accept "
            f"{MOST_POINTS:,}. Compare fewer columns or bins, or ask for columns alone "
            "(--ask columns)."
        )
    usual = LARGEST_COHORT if draft.trust == "none" else COHORT
    counts = (draft.asking(cells) if cells else draft).changed(
        cohort=known.cohort_of(usual),
        releases=series.exposures(draft.unit.kind),
        when=series,
        questions=tuple(replace(each, release="counts") for each in draft.questions),
    )
    plan = _shared(known, counts) if draft.trust == "none" else _afforded(counts)
    reasons = (*_reasons(plan, cells), *column_reasons(plan))
    common = PlannedRound(
        plan=plan,
        releases=plan.budget.releases,
        forecasts=(),
        cost=known.cost(plan),
        reasons=reasons,
        predict=lambda kind, size: None,  # noqa: ARG005  the whole may not be asked
        find_smallest=dict,
        notes=known.notes(plan),
        find_doublings=dict,
        find_comparison=tuple,
    )
    if plan.columns:
        common = replace(common, find_columns=cache(lambda: forecast_columns(known, plan)))
    return _with_whole(common, known) if plan.points else common


def _with_whole(planned: PlannedRound, known: Known) -> PlannedRound:
    """With what to expect of the whole in one period."""
    whole = _whole(planned.plan)
    trial = TrialRound.of(whole, known.reference, clients=known.clients, records=known.records)
    way = Way(trial, drift_cases(trial.pi, trial.score))
    richer = replace(trial, plan=whole.changed(epsilon=2 * whole.budget.epsilon))

    def doublings() -> dict[str, float]:
        return {"epsilon": Way(richer, way.cases).typical}

    return replace(
        planned,
        forecasts=way.forecasts,
        predict=way.predict,
        find_smallest=cache(lambda: smallest_drifts(trial)),
        find_doublings=cache(doublings),
        find_comparison=cache(lambda: (Compared(way.name, way.forecasts, taken=True),)),
    )


def _whole(plan: Plan) -> Plan:
    """One release about the whole alone, with its part of the budget, judged by itself."""
    budget, once = plan.budget, plan.changed(when=Once(), releases=1)
    whole = whole_alone(once, 1 - columns_share(plan), budget.epsilon, budget.delta)
    return whole.changed(false_alarm=LEAST_RATE)


def _afforded(plan: Plan) -> Plan:
    """With the noise that is smaller, and the epsilon of which a record's releases fit."""
    return least((_with_noise(plan, noise) for noise in NOISES), _loudness)


def _shared(known: Known, plan: Plan) -> Plan:
    """Without a trusted party: an even share of the budget for each release that counts a unit.

    Gaussian shares of many releases compose better where rho is known, as for whole clients.
    """
    even = share_of_releases(plan)
    if plan.unit.kind == "record" or plan.budget.releases == 1:
        return even
    total, delta = plan.budget.total
    sizes = cohort_sizes(plan, known.clients)
    kind = plan.with_noise("gaussian")

    def charge(epsilon: float) -> Charge:
        return trust_of(kind.changed(epsilon=epsilon)).charge(sizes)

    if isinstance(charge(even.budget.epsilon), AccountedRelease):
        return even
    composed = kind.changed(
        epsilon=largest_epsilon(charge, epsilon=total, delta=delta, releases=plan.budget.releases),
    )
    return least((even, composed), lambda each: _shared_noise(each, sizes))


def _shared_noise(plan: Plan, sizes: Sequence[int]) -> float:
    trust = trust_of(plan)
    assert isinstance(trust, NoisyHistogram)  # noqa: S101  nobody is trusted
    return trust.expected_noise(sizes).sd


def _with_noise(plan: Plan, noise: NoiseKind) -> Plan:
    total, delta = plan.budget.total
    kind = plan.with_noise(noise)
    epsilon = largest_epsilon(
        partial(_charge, kind), epsilon=total, delta=delta, releases=plan.budget.releases
    )
    return kind.changed(epsilon=epsilon)


def _charge(plan: Plan, epsilon: float) -> Charge:
    return trust_of(plan.changed(epsilon=epsilon)).charge(())


def _loudness(plan: Plan) -> float:
    """Of the noise on each count."""
    trust = trust_of(plan)
    found = [
        getattr(noise.charge, "standard_deviation", 0.0) for noise in getattr(trust, "noises", ())
    ]
    columns = getattr(trust, "columns_noise", None)
    if columns is not None:
        found.append(columns.counts.standard_deviation)
    return float(sum(found))


def _reasons(plan: Plan, cells: int) -> tuple[Reason, ...]:
    if plan.points:
        first: tuple[Reason, ...] = tuple(common_reasons(plan, support=cells))
    else:
        first = (room_reason(plan), epsilon_reason(plan))
    times = "once" if plan.budget.releases == 1 else f"up to {plan.budget.releases} times"
    return (
        *first,
        Reason("release", "noisy counts", "those of many periods add up at no further cost"),
        Reason(
            "budget",
            f"epsilon {plan.budget.total[0]:g}",
            f"of one {plan.unit.kind} over all {plan.series.periods:,} releases, which count it "
            f"{times}",
        ),
    )
