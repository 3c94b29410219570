"""What the planner hands over: a plan, what it is predicted to achieve, what it costs, and why."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedprikl.divergence import divergence_named
from fedprikl.documents import readable, to_plain
from fedprikl.planning.explain import Reason
from fedprikl.planning.known import Known, SumCost
from fedprikl.planning.liars import LiarBound, liar_bounds
from fedprikl.planning.simulated_round import Forecast, SimulatedRound
from fedprikl.protocol.plan import Plan, SignedPlan
from fedprikl.store import write_whole

REMEDIES = 8  # doublings of the records, or of epsilon, up to which a remedy is looked for
DRIFTED = 0.05  # nats: a drift of a column
RELEASES = {
    "value": "one number with noise",
    "adaptive": "one number with adaptive noise",
    "looked": "one number, with noise that a look at it chooses",
    "counts": "read off noisy counts",
}


@dataclass(frozen=True, slots=True)
class ColumnForecast:
    """What to expect of the column with the median number of cells. A prediction; public."""

    views: int  # columns and pairs that are asked
    counts: int  # each client reports, for all of them
    column: str  # the one with the median number of cells
    smallest_drift: float | None  # of it, in nats: smooth, found with 95% power; None: none is
    error: float  # of its kl, in nats, without drift
    error_drifted: float | None  # the same at a smooth drift of 0.05 nats


def column_forecast(about: SimulatedRound) -> ColumnForecast:
    """What to expect of the columns, from a simulated round about a typical one."""
    plan = about.plan
    return ColumnForecast(
        views=len(plan.columns),
        counts=plan.column_points,
        column=about.view.name,
        smallest_drift=about.smallest_drifts["smooth"],
        error=about.predict("none", 0.0) or 0.0,
        error_drifted=about.predict("smooth", DRIFTED),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PlannedRound:
    """A plan, what it is predicted to achieve, what it costs and why it is as it is.

    `forecasts` are the mean absolute errors of the first answer, simulated for several kinds of
    drift, against the divergence of the population's very records; `error` is their geometric mean.
    `fedprikl.plan` makes it, and `fedprikl.compare` takes it.

    >>> import fedprikl as fk
    >>> reference = fk.Reference.from_counts([500, 300, 200])
    >>> planned = fk.plan(reference, clients=100, records=10_000, epsilon=1)
    >>> planned.plan.budget.epsilon
    1
    >>> planned  # doctest: +ELLIPSIS
    <PlannedRound of 'clients': 3 cells, epsilon 1, predicted error ...>
    >>> planned.cost.masked_bytes <= 1024
    True
    >>> 0 < planned.smallest_drift < 0.1
    True
    """

    plan: Plan
    known: Known
    reasons: tuple[Reason, ...]
    taken: SimulatedRound | None = None  # of the whole, as it is released; None: it is not asked
    options: tuple[SimulatedRound, ...] = ()  # release options that were compared, with that one
    find_doublings: Callable[[], dict[str, float]] = dict
    hopeless: tuple[Reason, ...] = ()  # views that are not asked, as nothing could be found in them
    periods: int = 1  # whose releases a verdict has together

    @property
    def releases(self) -> int:
        """How often the same records may be counted under the plan."""
        return self.plan.budget.releases

    @property
    def forecasts(self) -> tuple[Forecast, ...]:
        """Of the first answer, one per kind and size of drift."""
        return () if self.taken is None else self.taken.forecasts

    @property
    def error(self) -> float:
        """The typical error: the geometric mean of the forecasts; of columns alone, a column's."""
        if self.taken is None:
            return 0.0 if self.columns is None else self.columns.error
        return self.taken.typical

    def predict(self, kind: str, size: float) -> float | None:
        """The error of the first answer at any kind and size of drift; None if there is none."""
        return None if self.taken is None else self.taken.predict(kind, size)

    @property
    def cost(self) -> SumCost:
        """Of the secure sums."""
        return self.known.cost(self.plan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the verdict cannot do, and what the plan's promises rest on and nobody has said."""
        cannot = () if self.can_tell else (f"{self.verdict}. {self.remedy}",)
        not_asked = tuple(
            f"{each.parameter}: {each.value}, as {each.why}." for each in self.hopeless
        )
        return (*cannot, *not_asked, *self.known.notes(self.plan))

    @cached_property
    def column(self) -> SimulatedRound | None:
        """A round about a typical column, where columns are asked."""
        return SimulatedRound.of_column(self.plan, self.known) if self.plan.columns else None

    @cached_property
    def columns(self) -> ColumnForecast | None:
        """What to expect of a typical column, where columns are asked (a second)."""
        return None if self.column is None else column_forecast(self.column)

    @cached_property
    def _judged(self) -> tuple[SimulatedRound, ...]:
        """Rounds about the whole and a typical column; of a series, all periods together.

        The noises of so many releases add up: as if one had less epsilon.
        """
        found = [each for each in (self.taken, self.column) if each is not None]
        if self.periods == 1:
            return tuple(found)
        more = replace(self.known, records=self.known.records * self.periods)
        less = [each.plan.budget.epsilon / math.sqrt(self.periods) for each in found]
        return tuple(
            replace(each, known=more, plan=each.plan.changed(epsilon=epsilon), _drawn={})
            for each, epsilon in zip(found, less, strict=True)
        )

    @cached_property
    def can_tell(self) -> bool:
        """Whether the verdict would find half of the largest drifts of any view, half of the time.

        As releases say it; simulated (some seconds).
        """
        return any(each.power.findable[0] for each in self._judged)

    @cached_property
    def findable(self) -> float | None:
        """The least total variation of a drift, in any view, that is found half of the time."""
        known = (each.power.findable[1] for each in self._judged)
        return min((least for least in known if least is not None), default=None)

    @property
    def verdict(self) -> str:
        """What the verdict can do, in words."""
        if self.can_tell:
            return "Can tell"
        if self.findable is None:
            return "Cannot tell: no drift could be found"
        return (
            "Cannot tell: with so few records and this epsilon only drifts above "
            f"{self.findable:.2g} (total variation) could be found"
        )

    @cached_property
    def remedy(self) -> str:
        """What would help a plan that cannot tell: how many records, or which epsilon."""

        def enough(change: Callable[[SimulatedRound, int], SimulatedRound]) -> int | None:
            factors = (2**step for step in range(1, REMEDIES))
            tried = ((each, factor) for factor in factors for each in self._judged)
            told = (factor for each, factor in tried if change(each, factor).power.findable[0])
            return next(told, None)

        def with_records(each: SimulatedRound, factor: int) -> SimulatedRound:
            more = replace(each.known, records=factor * each.known.records)
            return replace(each, known=more, _drawn={})

        def with_epsilon(each: SimulatedRound, factor: int) -> SimulatedRound:
            epsilon = factor * each.plan.budget.epsilon
            return replace(each, plan=each.plan.changed(epsilon=epsilon), _drawn={})

        records, epsilon = enough(with_records), enough(with_epsilon)
        cells = self.plan.points + self.plan.column_points
        helps = ["fewer columns or bins"] if cells > 2 else []
        if records is not None:
            helps.append(f"more records (about {records * self.known.records:,})")
        if epsilon is not None:
            helps.append(f"a larger epsilon (about {epsilon * self.plan.budget.total[0]:g})")
        return f"What helps: {', or '.join(helps) or 'many more records'}."

    @property
    def smallest_drifts(self) -> dict[str, float | None]:
        """For each kind, the least drift that the verdict finds with 95% power; None if none is.

        Of values that the reference never saw it is their share of the records. The verdict is
        simulated: computed when asked for (seconds).
        """
        return {} if self.taken is None else self.taken.smallest_drifts

    @property
    def smallest_drift(self) -> float | None:
        """The largest of the smallest drifts of all kinds that are found; None if none is."""
        if self.taken is None and self.columns is not None:
            return self.columns.smallest_drift
        sizes = {kind: size for kind, size in self.smallest_drifts.items() if kind != "unseen"}
        return max((size for size in sizes.values() if size), default=None)

    @cached_property
    def liars(self) -> tuple[LiarBound, ...]:
        """How far lying clients can change the answers, where whole clients are protected."""
        return liar_bounds(self.known, self.plan)

    @cached_property
    def doublings(self) -> dict[str, float]:
        """The predicted error with twice the payload, and with twice the epsilon (seconds)."""
        return self.find_doublings()

    def save(self, path: str | Path) -> None:
        """Writes the plan, unsigned; `fedprikl.compare` and `fedprikl estimate` read it."""
        write_whole(Path(path), readable(SignedPlan(self.plan).to_dict()))

    def __str__(self) -> str:
        plan = self.plan
        each = f"Each of {self.releases} releases" if self.releases > 1 else "The release"
        said = (
            f"{self.cells}: {self.cost.masked_bytes:,} bytes of counts per client.\n{each} spends "
            f"epsilon {plan.budget.epsilon:.3g} of the budget of {plan.population!r}: {self.asked}."
        )
        if not plan.points:
            return f"{said}\nPredicted error of a column's kl: {self.error:.3g} nats."
        unit = divergence_named(plan.question.divergence).unit
        return f"{said}\nPredicted error: {f'{self.error:.3g} {unit}'.rstrip()}."

    @property
    def cells(self) -> str:
        """How many cells are asked, in words."""
        plan, parts = self.plan, []
        if plan.points:
            batches = plan.sums.batches
            groups = "" if batches == 1 else f" of each of {batches} batches of clients"
            parts.append(f"{plan.points:,} cells are asked{groups}")
        if plan.columns:
            views = len(plan.columns)
            what = "1 column" if views == 1 else f"{views:,} columns"
            if any(len(view.columns) > 1 for view in plan.columns):
                what += " and pairs of columns"
            parts.append(f"{plan.column_points:,} cells of {what}{'' if parts else ' are asked'}")
        return ", and ".join(parts)

    @property
    def asked(self) -> str:
        """The questions, their shares and how each is released, in words."""
        alone = [each for each in self.plan.about_whole if each.release != "counts"]
        counted = [each for each in self.plan.about_whole if each.release == "counts"]
        words = [
            f"{each.divergence} {100 * each.share:.3g}% ({RELEASES[each.release]})"
            for each in alone
        ]
        if counted:
            names = " and ".join(each.divergence for each in counted)
            share = 100 * sum(each.share for each in counted)
            words.insert(0, f"{names} {share:.3g}% ({RELEASES['counts']})")
        if self.plan.columns:
            share = 100 * math.fsum(each.share for each in self.plan.about_columns)
            words.append(f"columns {share:.3g}%")
        return ", ".join(words)

    def __repr__(self) -> str:
        return (
            f"<PlannedRound of {self.plan.population!r}: "
            f"{self.plan.points + self.plan.column_points:,} cells, "
            f"epsilon {self.plan.budget.epsilon:.3g}, predicted error {self.error:.3g}>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "plan": self.plan.to_dict(),
            "verdict": "can tell" if self.can_tell else "cannot tell",
            "findable": self.findable,
            "releases": self.releases,
            "predicted_error": self.error,
            "forecasts": to_plain(self.forecasts),
            "smallest_drift": self.smallest_drift,
            "smallest_drifts": self.smallest_drifts,
            "payload_bytes": self.cost.masked_bytes,
            "secure_sums": to_plain(self.cost),
            "error_with_twice_the": self.doublings,
            "comparison": [
                {
                    "release": each.name,
                    "taken": each is self.taken,
                    "forecasts": to_plain(each.forecasts),
                }
                for each in self.options
            ],
            "reasons": to_plain(self.reasons),
            "columns": to_plain(self.columns),
            "liars": to_plain(self.liars),
            "notes": list(self.notes),
        }
