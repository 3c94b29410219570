"""What a plan asks about columns: their shares of the budget, and what to expect of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fedprikl.checks import Ints
from fedprikl.divergence import Score
from fedprikl.estimation import CountsNoise, NoisyCounts, NoisyViews, ViewVector, trial_errors
from fedprikl.estimation.no_drift import NoDrift
from fedprikl.estimation.scoring import score_sensitivity
from fedprikl.planning.column_forecast import ColumnForecast
from fedprikl.planning.drift_cases import drift_case
from fedprikl.planning.explain import Reason
from fedprikl.planning.known import Known
from fedprikl.planning.smallest import smallest_drifts_of
from fedprikl.protocol.column_questions import ColumnQuestions, Control
from fedprikl.protocol.noisy_histogram import NoisyHistogram
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.round import cohort_sizes
from fedprikl.protocol.scored_sum import ScoredSum
from fedprikl.protocol.trust import trust_of
from fedprikl.protocol.view_sums import view_points, view_score
from fedprikl.reference import QueryPoints, Reference, Spread, View

__all__ = [
    "WHOLE",
    "ask_columns",
    "column_reasons",
    "forecast_columns",
    "split_columns",
]

WHOLE = 0.5  # of the budget, where the whole is asked beside the columns
TV = (0.1, 0.25, 0.5)  # shares that are tried; js finds no drift that tv and counts do not
KINDS = ("smooth", "rare")  # drifts in which tv and counts differ most
LOST = 1.0  # nats: for a kind of drift that is not found, however large
CLOSE = 1.25  # a smallest drift within this factor of the best: then the counts get more
LEAST_RATE = 1e-3  # of false alarms in one column; rarer ones take too long to simulate
DRIFTED = 0.05  # nats


def ask_columns(reference: Reference, *, share: float, control: Control) -> ColumnQuestions:
    """Questions about all views of the reference, with this share of the budget, for counts."""
    return ColumnQuestions(
        views=tuple(view.columns for view in reference.views),
        sizes=tuple(view.size for view in reference.views),
        counts=share,
        control=control,
    )


def split_columns(known: Known, plan: Plan) -> Plan:
    """The plan, with the columns' share split between tv and counts. Trust: the aggregator.

    The split with the smallest drifts in a typical column is best (the geometric mean of several
    kinds); of those nearly as good, the one with the most for the counts, which tell sizes and
    cells. They always have half of it, or more.
    """
    asked = plan.columns
    assert asked is not None  # noqa: S101  the plan asks about columns
    share = asked.share
    plans = [
        replace(plan, columns=replace(asked, tv=tv * share, counts=(1 - tv) * share)) for tv in TV
    ]
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
        return view_points(self.view)

    @property
    def records(self) -> Ints:
        return np.array([self.known.records])

    @property
    def spread(self) -> float | Spread:
        if self.plan.design_effect is not None:
            return self.plan.design_effect
        return self.view.spread(clients=[self.known.clients])

    @cached_property
    def noise(self) -> tuple[float, float | None]:
        """Of each count: its standard deviation, and the scale of Laplace noise."""
        trust = trust_of(self.plan)
        if isinstance(trust, NoisyHistogram):
            return trust.expected_noise(cohort_sizes(self.plan, self.known.clients))
        found = trust.columns_noise
        assert found is not None  # noqa: S101  the plan asks about columns
        return found.counts.standard_deviation, getattr(found.counts, "scale", None)

    def _vectors(self) -> Sequence[ViewVector]:
        trust, zero = trust_of(self.plan), np.zeros(1)
        if not isinstance(trust, ScoredSum) or trust.columns_noise is None:
            return ()
        found = []
        for name, noise in trust.columns_noise.values:
            score = view_score(name)
            delta = score_sensitivity(self.points, self.records, score, self.plan.moved)
            deltas = np.array([delta])
            found.append(ViewVector(score=score, values=zero, sensitivities=deltas, noise=noise))
        return found

    @cached_property
    def smallest_drifts(self) -> dict[str, float | None]:
        """Of each kind, with the threshold that its column would have."""
        asked = self.plan.columns
        assert asked is not None  # noqa: S101  the plan asks about columns
        sd, scale = self.noise
        noisy = NoisyCounts(
            points=self.points,
            counts=np.zeros(len(self.points)),
            rest=np.zeros(1),
            records=self.records,
            noise_sd=np.array([sd]),
            laplace_scale=scale,
        )
        views = NoisyViews(counts=(noisy,), mechanism="", vectors=tuple(self._vectors()))
        unseen = self.view.unseen(
            clients=self.known.clients,
            records=int(self.records[0]),
            design_effect=self.plan.design_effect,
        )
        return smallest_drifts_of(
            views.statistics(0, unseen),
            NoDrift.of(self.points, self.records, self.spread),
            partial(drift_case, self.points.pi, score=Score()),
            KINDS,
            false_alarm=max(LEAST_RATE, self.plan.false_alarm_of_each / len(asked.views)),
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
        release = CountsNoise(*self.noise)
        effect = self.plan.client_effect
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
            counts=self.plan.counted,
            column=" and ".join(self.view.columns),
            smallest_drift=self.smallest_drift,
            error=self._error(0.0) or 0.0,
            error_drifted=self._error(DRIFTED),
        )


def column_reasons(plan: Plan) -> tuple[Reason, ...]:
    """Why the columns have these shares."""
    asked = plan.columns
    if asked is None:
        return ()
    views = (
        f"{len(asked.views)} columns and pairs" if _pairs(asked) else f"{len(asked.views)} columns"
    )
    if plan.trust == "none":
        why = "one vector of noisy counts answers everything: a record moves two counts of each"
        return (Reason("columns", views, why),)
    rate = f"{100 * plan.false_alarm_of_each:.3g}%"
    return (
        Reason("columns", views, f"{asked.counted:,} counts more; false alarms of all: {rate}"),
        Reason("share of columns' tv", f"{asked.tv:.3g}", "finds small drifts of few records"),
        Reason(
            "share of columns' counts",
            f"{asked.counts:.3g}",
            "tells sizes and cells, and most of the verdict where records are many",
        ),
    )


def _pairs(asked: ColumnQuestions) -> int:
    return sum(len(view) > 1 for view in asked.views)
