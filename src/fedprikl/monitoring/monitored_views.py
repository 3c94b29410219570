"""Monitored views: the distributions that a series watches, the whole and every column. Public."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.checks import Floats, check_positive_int
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts
from fedprikl.estimation.ordinary_periods import ordinary_variance
from fedprikl.estimation.statistic import Grouping, by_place, by_rarity
from fedprikl.estimation.worlds import Cells
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import view_score
from fedprikl.protocol.release import Release
from fedprikl.protocol.sums import asked_views
from fedprikl.reference import QueryPoints, Reference, Spread
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.views import between_clients

RARE, NEAR = 4, 8  # groups
SIZES = ("kl", "tv")  # of every column


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MonitoredView:
    """One distribution of a series: Pi, and how counts vary around N Pi without drift.

    `spread` is a reference's, for any number of clients, or a design effect of one period's counts.
    `error` is the variance of P(x) / Pi(x) that a baseline made from noisy counts has beside it.

    >>> view = MonitoredView.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> view.name, view.pi.tolist(), view.shares.tolist()
    ('', [0.5, 0.3, 0.2], [0.5, 0.3, 0.2, 0.0])
    """

    name: str  # of the column, or pair of columns; empty: the whole
    points: QueryPoints  # all cells, one batch
    scores: tuple[Score, ...] = (view_score("kl"), view_score("tv"))  # sizes that are shown
    spread: Spread | float = 1.0
    error: Floats | None = None  # per cell, and of the out-of-domain share last (not divided by Pi)
    tolerance: float = 0.0  # total variation up to which a drift does not matter
    ranked: Floats | None = None  # Pi of the reference, if a new baseline took its place

    def __post_init__(self) -> None:
        if self.points.batches != 1:
            raise InvalidInputError("A series counts all records in one batch.")

    @classmethod
    def of(cls, reference: Reference, scores: tuple[Score, ...] | None = None) -> "MonitoredView":
        """The whole domain of a reference."""
        return cls(
            name="",
            points=reference.whole.points(),
            scores=scores or tuple(map(view_score, ("kl", "tv", "js"))),
            spread=reference.whole.spread(clients=[1]),
        )

    @property
    def pi(self) -> Floats:
        """Pi(x) per cell."""
        return self.points.pi

    @property
    def shares(self) -> Floats:
        """What share of the records each cell should hold, out of the domain last.

        The rest are records in no cell of the reference. What the reference happened to miss is
        part of it.
        """
        missed = 0.0
        if isinstance(self.spread, Spread) and self.spread.counted:
            missed = max(0.0, float(self.pi @ self.spread.overrated(self.points.cells, self.pi)))
        rest = max(0.0, 1 - math.fsum(self.pi.tolist()))
        return np.append(self.pi, rest + missed)

    @property
    def correlated(self) -> bool:
        """Whether records of one client, or of one period, are known to be correlated."""
        spread = self.spread
        if isinstance(spread, Spread):
            return spread.correlation is not None or spread.periods != ""
        return spread > 1

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """How its counts are looked at, the out-of-domain count last.

        Cell by cell, that one alone, equally rare cells together, and neighbours in the order of
        the reference. Which cells are rare a new baseline does not decide: it would take those that
        its periods happened to have seldom. Not in groups where clients' records are known to be
        correlated: what clients have in common could add up in a group as drift does, and be too
        little in each cell to be known.
        """
        many = len(self.points)
        alone = Grouping(np.arange(many), np.arange(many), "cells")
        outside = Grouping(np.array([many]), np.array([0]), "out_of_domain")
        if self.correlated or many < 2 * NEAR:
            return alone, outside
        counted = self.spread.counted if isinstance(self.spread, Spread) else 0
        ranked = self.pi if self.ranked is None else self.ranked
        rare = by_rarity(ranked, self.points.cells, RARE, counted=counted)
        return alone, outside, rare, by_place(self.points.cells, NEAR)

    def spread_at(self, records: int, clients: int) -> Spread:
        """How counts of one period vary. A design effect is that of clients who stay the same."""
        if isinstance(self.spread, Spread):
            return replace(self.spread, clients=(clients,))
        icc = min((self.spread - 1) / records, 1.0)
        known = Correlation(icc=icc, size_variation=0.0, clients=10**9)
        return Spread(clients=(1,), correlation=known if icc else None)

    def lasting(self, records: Floats | float, clients: Floats | float) -> Floats:
        """The variance of the shares that no longer window averages out, out of the domain last.

        The error of a counted Pi, and what clients differ in if they stay the same. `records` and
        `clients` are those of one period, and may be arrays: one row for each.
        """
        pi, n = self.pi, np.asarray(records, dtype=np.float64)
        fixed: Floats = np.zeros(len(pi))
        if isinstance(self.spread, Spread):
            varied = self.spread.of(self.points.cells, pi)
            fixed = self.spread.counting(varied, pi)
            fixed += ordinary_variance(self.spread, Cells.of(self.points.cells, pi))[:-1]
            between = between_clients(n, clients, self.spread.unequal)[..., None] * varied
        else:
            between = (self.spread - 1) / (n[..., None] * pi)
        missed = self.shares[-1] - max(0.0, 1 - math.fsum(pi.tolist()))
        rest = np.broadcast_to(missed**2, (*n.shape, 1))
        found = np.concatenate([pi**2 * (fixed + between), rest], axis=-1)
        if self.error is not None:
            found += np.append(pi**2, 1.0) * self.error
        return found


def monitored_views(plan: Plan, reference: Reference) -> tuple[MonitoredView, ...]:
    """What the releases of a plan are about: the whole where it is asked, then every column.

    >>> from fedprikl.protocol import AskedView, Budget, Question
    >>> reference = Reference.from_counts([500, 300, 200])
    >>> plan = Plan(
    ...     population="patients",
    ...     reference=reference.fingerprint,
    ...     budget=Budget(epsilon=1.0),
    ...     views=(AskedView(points=3),),
    ...     questions=(Question(release="counts"),),
    ... )
    >>> [(view.name, len(view.points)) for view in monitored_views(plan, reference)]
    [('', 3)]
    """
    found: list[MonitoredView] = []
    if plan.points:
        if any(each.release != "counts" for each in plan.about_whole) or plan.sums.batches > 1:
            raise InvalidInputError(
                "A series is judged from noisy counts of one batch. Plan it with `--every`."
            )
        asked = [each.score(correction=0.0, limited=False) for each in plan.about_whole]
        found.append(MonitoredView.of(reference, tuple(asked)))
        if len(found[0].points) != plan.points:
            raise InvalidInputError("A series counts every cell of the reference.")
    found += (
        MonitoredView(
            name=view.name,
            points=view.points(),
            scores=tuple(map(view_score, SIZES)),
            spread=view.spread(clients=[1]),
        )
        for view in asked_views(plan, reference)
    )
    effect, number = plan.verdict.design_effect, plan.stated_unit[1]
    found = [replace(each, tolerance=plan.verdict.tolerance(each.name)) for each in found]
    if effect is not None:
        return tuple(replace(each, spread=effect) for each in found)
    return tuple(_contributing(each, number) for each in found)


def _contributing(view: MonitoredView, per_client: int | None) -> MonitoredView:
    """The view as it varies if every client contributes so many records; None: all it holds."""
    assert isinstance(view.spread, Spread)  # noqa: S101  as the reference has it
    return replace(view, spread=replace(view.spread, per_client=per_client))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PeriodCounts:
    """What the release of one period says, view by view."""

    number: int  # of the period, from 0
    records: int
    clients: int  # whose records are counted
    views: tuple[NoisyCounts, ...]  # in the order of `monitored_views`

    def __post_init__(self) -> None:
        check_positive_int(self.records, "records")
        check_positive_int(self.clients, "clients")


def counts_of(release: Release, plan: Plan, reference: Reference, number: int) -> PeriodCounts:
    """The noisy counts of a release, which is that of period `number`."""
    found: list[NoisyCounts] = []
    if plan.points:
        noisy = release.noisy_counts
        if noisy is None or noisy.cells != tuple(reference.whole.points().cells):
            raise InvalidInputError("A release of a series has the noisy counts of every cell.")
        found.append(noisy)
    return PeriodCounts(
        number=number,
        records=release.records,
        clients=sum(cohort.included for cohort in release.cohorts),
        views=(*found, *(column.counts for column in release.columns)),
    )
