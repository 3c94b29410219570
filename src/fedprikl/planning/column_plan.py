"""What a plan asks about columns: their shares of the budget, and what to expect of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score, divergence_named
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import (
    CountNoise,
    CountsNoise,
    NoisyCounts,
    NoisyViews,
    ViewVector,
    trial_errors,
)
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.planning.drift_cases import drift_case
from fedprikl.planning.explain import Reason, epsilon_reason, room_reason
from fedprikl.planning.known import Known
from fedprikl.planning.planned_round import ColumnForecast, PlannedRound
from fedprikl.planning.release_budget import largest_epsilon
from fedprikl.planning.smallest import smallest_drifts_of
from fedprikl.planning.trusted_plan import COHORT, plan_trusted
from fedprikl.planning.untrusted_plan import LARGEST_COHORT, plan_untrusted, share_of_releases
from fedprikl.privacy import Charge
from fedprikl.protocol.cohort_sums import view_score
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import AskedView, Question
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.protocol.trust import trust_of
from fedprikl.reference import QueryPoints, Reference, Spread, View

WHOLE = 0.5  # of the budget, where the whole is asked beside the columns
TV = (0.1, 0.25, 0.5)  # shares that are tried; js finds no drift that tv and counts do not
KINDS = ("smooth", "rare")  # drifts in which tv and counts differ most
LOST = 1.0  # nats: for a kind of drift that is not found, however large
CLOSE = 1.25  # a smallest drift within this factor of the best: then the counts get more
LEAST_RATE = 1e-3  # of false alarms in one column; rarer ones take too long to simulate
DRIFTED = 0.05  # nats
SIZES = ("tv", "kl")  # of each column, read off its noisy counts
TV_SKEW = divergence_named("tv").skew
LEAST_ROOM = 16  # bytes for the counts of the whole


def ask_columns(reference: Reference) -> tuple[AskedView, ...]:
    """All views of the reference, with all their cells."""
    return tuple(AskedView(columns=view.columns, points=view.size) for view in reference.views)


def column_questions(
    asked: Sequence[AskedView], *, counts: float, tv: float = 0.0
) -> tuple[Question, ...]:
    """Questions about columns, with these shares: sizes read off noisy counts, and values of tv."""
    views = tuple(view.columns for view in asked)
    sizes = tuple(
        Question(
            divergence=name,
            views=views,
            share=counts / len(SIZES),
            skew=divergence_named(name).skew,
            release="counts",
        )
        for name in SIZES
    )
    if tv == 0:
        return sizes
    return (Question(divergence="tv", views=views, share=tv, skew=TV_SKEW), *sizes)


def columns_share(plan: Plan) -> float:
    """Of the plan's budget."""
    return math.fsum(question.share for question in plan.about_columns)


def split_columns(known: Known, plan: Plan) -> Plan:
    """The plan, with the columns' share split between tv and counts. Trust: the aggregator.

    The split with the smallest drifts in a typical column is best (the geometric mean of several
    kinds); of those nearly as good, the one with the most for the counts, which tell sizes and
    cells. They always have half of it, or more.
    """
    share = columns_share(plan)
    splits = (column_questions(plan.columns, tv=tv * share, counts=(1 - tv) * share) for tv in TV)
    plans = [replace(plan, questions=plan.about_whole + split) for split in splits]
    found = [_Typical(known, plan).typical_drift for plan in plans]
    if min(found) >= LOST:
        return plans[-1]
    return next(plan for plan, size in zip(plans, found, strict=True) if size <= CLOSE * min(found))


def forecast_columns(known: Known, plan: Plan) -> ColumnForecast:
    """What to expect of the columns under this plan."""
    return _Typical(known, plan).forecast


@dataclass(frozen=True, eq=False)
class _Typical:
    """The view with the median number of cells, under a plan."""

    known: Known
    plan: Plan

    @cached_property
    def view(self) -> View:
        views = sorted(self.known.reference.views, key=lambda view: view.size)
        return views[(len(views) - 1) // 2]

    @cached_property
    def points(self) -> QueryPoints:
        return self.view.points()

    @property
    def records(self) -> Ints:
        return np.array([self.known.records])

    @property
    def spread(self) -> float | Spread:
        if self.plan.verdict.design_effect is not None:
            return self.plan.verdict.design_effect
        return self.view.spread(clients=[self.known.clients])

    @cached_property
    def noise(self) -> CountNoise:
        """On each count."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram):
            return trust.expected_noise(cohort_sizes(self.plan, self.known.clients))
        found = trust.columns_noise
        assert found is not None  # noqa: S101  the plan asks about columns
        return CountNoise.of(found.counts)

    def _vectors(self) -> Sequence[ViewVector]:
        trust, zero = trust_of(self.plan), np.zeros(1)
        if not isinstance(trust, ScoredSum) or trust.columns_noise is None:
            return ()
        found = []
        for name, noise in trust.columns_noise.values:
            score = view_score(name)
            delta = score_sensitivity(
                self.points, self.records, score, self.plan.contribution_bound
            )
            deltas = np.array([delta])
            found.append(ViewVector(score=score, values=zero, sensitivities=deltas, noise=noise))
        return found

    @cached_property
    def smallest_drifts(self) -> dict[str, float | None]:
        """Of each kind, with the threshold that its column would have."""
        noisy = NoisyCounts.of(np.zeros(len(self.points) + 1), self.records, [self.noise])
        views = NoisyViews(counts=(noisy,), mechanism="", vectors=tuple(self._vectors()))
        unseen = self.view.out_of_domain(
            clients=self.known.clients,
            records=int(self.records[0]),
            design_effect=self.plan.verdict.design_effect,
        )
        return smallest_drifts_of(
            views.statistics(0, self.points, unseen),
            NoDrift.of(self.points, self.records, self.spread),
            partial(drift_case, self.points.pi, score=Score()),
            KINDS,
            false_alarm=max(LEAST_RATE, self.plan.false_alarm_of_each / len(self.plan.columns)),
        )

    @property
    def smallest_drift(self) -> float | None:
        """Of a smooth drift."""
        return self.smallest_drifts["smooth"]

    @property
    def typical_drift(self) -> float:
        """The geometric mean of the kinds."""
        found = [LOST if size is None else size for size in self.smallest_drifts.values()]
        return math.exp(sum(map(math.log, found)) / len(found))

    def _error(self, size: float) -> float | None:
        case = drift_case(self.points.pi, "smooth" if size else "none", size, Score())
        if case is None:
            return None
        release = CountsNoise(self.noise)
        effect = self.plan.verdict.client_effect
        found = [
            trial_errors(
                self.points, self.records, ratios, view_score("kl"), release, design_effect=effect
            )
            for ratios in case.ratios
        ]
        return float(np.mean([errors.mean_absolute for errors in found]))

    @property
    def forecast(self) -> ColumnForecast:
        return ColumnForecast(
            views=len(self.known.reference.views),
            counts=self.plan.column_points,
            column=" and ".join(self.view.columns),
            smallest_drift=self.smallest_drift,
            error=self._error(0.0) or 0.0,
            error_drifted=self._error(DRIFTED),
        )


def column_reasons(plan: Plan) -> tuple[Reason, ...]:
    """Why the columns have these shares."""
    asked = plan.columns
    if not asked:
        return ()
    pairs = any(len(view.columns) > 1 for view in asked)
    views = f"{len(asked)} columns and pairs" if pairs else f"{len(asked)} columns"
    if plan.trust == "none":
        why = "one vector of noisy counts answers everything: a record moves two counts of each"
        return (Reason("columns", views, why),)
    rate = f"{100 * plan.false_alarm_of_each:.3g}%"
    values, counts = (
        math.fsum(each.share for each in plan.about_columns if each.release == option)
        for option in ("value", "counts")
    )
    return (
        Reason(
            "columns", views, f"{plan.column_points:,} counts more; false alarms of all: {rate}"
        ),
        Reason("share of columns' tv", f"{values:.3g}", "finds small drifts of few records"),
        Reason(
            "share of columns' counts",
            f"{counts:.3g}",
            "tells sizes and cells, and most of the verdict where records are many",
        ),
    )


def plan_columns(known: Known, draft: Plan, payload: int | None) -> PlannedRound:
    """The plan of a draft that asks about columns.

    `payload` is for all counts; None: as many bytes as the columns need beside those of the whole.
    """
    alone = draft.trust == "none"
    sized = draft.changed(cohort=known.cohort_of(LARGEST_COHORT if alone else COHORT))
    needed = known.column_bytes(share_of_releases(sized) if alone else sized)
    if payload is None:
        payload = needed + (known.payload if draft.points else 0)
    least = needed + (LEAST_ROOM if draft.points else 0)
    if payload < least:
        raise InvalidInputError(
            f"The counts of all columns need {least:,} bytes per client, and {payload:,} are "
            f"allowed. Allow more (--payload), or compare fewer columns or bins{_or_whole(draft)}."
        )
    if not draft.points:
        return _only_columns(known, sized)
    if alone:
        return _with_forecast(known, plan_untrusted(replace(known, payload=payload), draft))
    return _beside_whole(replace(known, payload=payload - needed), sized)


def _or_whole(draft: Plan) -> str:
    return ", or ask about the whole only (--ask kl,tv,js)" if draft.points else ""


def _beside_whole(known: Known, draft: Plan) -> PlannedRound:
    """The whole is planned with its part of the budget, as if there were no columns."""
    total, delta = draft.budget.total
    part = 1 - columns_share(draft)
    planned = plan_trusted(known, whole_alone(draft, part, total, delta))
    whole = tuple(replace(each, share=each.share * part) for each in planned.plan.questions)
    plan = planned.plan.changed(
        views=planned.plan.views + draft.columns,
        questions=whole + draft.about_columns,
        epsilon=total,
        delta=delta,
        total_epsilon=total,
        total_delta=delta,
        false_alarm=draft.verdict.false_alarm,
    )
    plan = _afforded(split_columns(known, plan), total, delta)
    found = replace(planned, plan=plan, cost=known.cost(plan), notes=known.notes(plan))
    return _with_forecast(known, found)


def whole_alone(plan: Plan, part: float, epsilon: float, delta: float) -> Plan:
    """The plan about the whole alone, with its part of a budget."""
    return plan.changed(
        views=tuple(view for view in plan.views if not view.columns),
        questions=tuple(replace(each, share=each.share / part) for each in plan.about_whole),
        epsilon=part * epsilon,
        delta=part * delta,
        total_epsilon=part * epsilon,
        total_delta=part * delta,
        false_alarm=plan.false_alarm_of_each,
    )


def _only_columns(known: Known, draft: Plan) -> PlannedRound:
    total, delta = draft.budget.total
    if draft.trust == "none":
        plan = share_of_releases(draft)
    else:
        plan = _afforded(split_columns(known, draft), total, delta)
    return PlannedRound(
        plan=plan,
        releases=plan.budget.releases,
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
    return plan.changed(
        epsilon=largest_epsilon(
            partial(_charge, plan), epsilon=epsilon, delta=delta, releases=plan.budget.releases
        ),
    )


def _charge(plan: Plan, epsilon: float) -> Charge:
    return trust_of(plan.changed(epsilon=epsilon)).charge(())
