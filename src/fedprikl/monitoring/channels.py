"""Channels: the distributions that a series watches, the whole and every column. Public."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedprikl.checks import Floats, Ints, check_positive_int
from fedprikl.divergence import Score
from fedprikl.errors import InvalidInputError
from fedprikl.estimation import NoisyCounts
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.question import view_score
from fedprikl.protocol.release import Release
from fedprikl.protocol.sums import asked_views
from fedprikl.reference import QueryPoints, Reference, Spread
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.views import between_clients

RARE, NEAR = 4, 8  # groups
SIZES = ("kl", "tv")  # of every column


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Which counts are added up. Values have the rest last: records in no cell of the reference.

    The noise of a group's cells averages out, a common drift adds up: a drift of many rare cells,
    each of them drowned in noise, is seen in their group.
    """

    groups: Floats | None = None  # 1 where a count is in a group, (cells + 1, groups); None: cells
    rest: bool = False  # whether it looks at the rest alone

    def sums(self, values: Floats) -> Floats:
        """Values of cells and the rest, along the last axis, added up in every group.

        >>> values = np.array([3.0, 4.0, 9.0])
        >>> Grouping(np.array([[1.0], [1.0], [0.0]])).sums(values), Grouping().sums(values)
        (array([7.]), array([3., 4.]))
        """
        return values[..., :-1] if self.groups is None else np.asarray(values @ self.groups)


def groupings_of(pi: Floats, cells: Ints) -> tuple[Grouping, ...]:
    """Equally rare cells in groups, and neighbours in the order of the reference."""
    if len(pi) < 2 * NEAR:
        return ()
    rare, near = np.argsort(pi, kind="stable"), np.argsort(cells)
    return Grouping(_groups(rare, RARE)), Grouping(_groups(near, NEAR))


def out_of_domain_grouping(cells: int) -> Grouping:
    """The records in no cell."""
    return Grouping(np.eye(cells + 1)[:, -1:], rest=True)


def _groups(order: Ints, groups: int) -> Floats:
    found = np.zeros((len(order) + 1, groups))
    found[order, np.arange(len(order)) * groups // len(order)] = 1.0
    return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Channel:
    """One distribution of a series: Pi, and how counts vary around N Pi without drift.

    `spread` is a reference's, for any number of clients, or a design effect of one period's counts.
    `error` is the variance of P(x) / Pi(x) that a baseline made from noisy counts has beside it.

    >>> channel = Channel.of(Reference.from_probabilities([0.5, 0.3, 0.2]))
    >>> channel.name, channel.pi.tolist(), channel.shares.tolist()
    ('', [0.5, 0.3, 0.2], [0.5, 0.3, 0.2, 0.0])
    """

    name: str  # of the column, or pair of columns; empty: the whole
    points: QueryPoints  # all cells, one batch
    scores: tuple[Score, ...] = (view_score("kl"), view_score("tv"))  # sizes that are shown
    spread: Spread | float = 1.0
    error: Floats | None = None  # per cell, and of the share of the rest last (not divided by Pi)

    def __post_init__(self) -> None:
        if self.points.batches != 1:
            raise InvalidInputError("A series counts all records in one batch.")
        if self.error is not None and len(self.error) != len(self.points) + 1:
            raise InvalidInputError("The error of a baseline is one number per cell, and one more.")

    @classmethod
    def of(cls, reference: Reference, scores: tuple[Score, ...] | None = None) -> "Channel":
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
        """What share of the records each cell should hold, and the rest last.

        The rest are records in no cell of the reference. What the reference happened to miss is
        part of it.
        """
        missed = 0.0
        if isinstance(self.spread, Spread) and self.spread.discount:
            alike = self.spread.of(self.points.cells, self.pi)
            lucky = np.minimum(self.spread.counting(alike, self.pi), 1.0)
            missed = self.spread.discount * float(self.pi @ lucky)
        rest = max(0.0, 1 - math.fsum(self.pi.tolist()))
        return np.append(self.pi, rest + missed)

    @property
    def alike(self) -> bool:
        """Whether records of one client are known to be alike."""
        spread = self.spread
        return spread.correlation is not None if isinstance(spread, Spread) else spread > 1

    @property
    def groupings(self) -> tuple[Grouping, ...]:
        """How its counts are looked at.

        Not in groups where clients' records are known to be alike: what clients have in common
        could add up in a group as drift does, and be too little in each cell to be known.
        """
        groups = () if self.alike else groupings_of(self.pi, self.points.cells)
        return Grouping(), out_of_domain_grouping(len(self.pi)), *groups

    def spread_at(self, records: int, clients: int) -> Spread:
        """How counts of one period vary. A design effect is that of clients who stay the same."""
        if isinstance(self.spread, Spread):
            return replace(self.spread, clients=(clients,))
        icc = min((self.spread - 1) / records, 1.0)
        alike = Correlation(icc=icc, size_variation=0.0, clients=10**9)
        return Spread(clients=(1,), correlation=alike if icc else None)

    def lasting(self, records: Floats | float, clients: Floats | float) -> Floats:
        """The variance of the shares that no longer window averages out, the rest last.

        The error of a counted Pi, and what clients differ in if they stay the same. `records` and
        `clients` are those of one period, and may be arrays: one row for each.
        """
        pi, n = self.pi, np.asarray(records, dtype=np.float64)
        fixed: Floats = np.zeros(len(pi))
        if isinstance(self.spread, Spread):
            alike = self.spread.of(self.points.cells, pi)
            fixed = self.spread.counting(alike, pi)
            kind = self.spread.correlation
            variation = 0.0 if kind is None else kind.size_variation
            between = between_clients(n, clients, variation)[..., None] * alike.variance
        else:
            between = (self.spread - 1) / (n[..., None] * pi)
        missed = self.shares[-1] - max(0.0, 1 - math.fsum(pi.tolist()))
        rest = np.broadcast_to(missed**2, (*n.shape, 1))
        found = np.concatenate([pi**2 * (fixed + between), rest], axis=-1)
        if self.error is not None:
            found += np.append(pi**2, 1.0) * self.error
        return found


def channels_of(plan: Plan, reference: Reference) -> tuple[Channel, ...]:
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
    >>> [(channel.name, len(channel.points)) for channel in channels_of(plan, reference)]
    [('', 3)]
    """
    found: list[Channel] = []
    if plan.points:
        if any(each.release != "counts" for each in plan.about_whole) or plan.sums.batches > 1:
            raise InvalidInputError(
                "A series is judged from noisy counts of one batch. Plan it with `--every`."
            )
        asked = [each.score(correction=0.0, limited=False) for each in plan.about_whole]
        found.append(Channel.of(reference, tuple(asked)))
        if len(found[0].points) != plan.points:
            raise InvalidInputError("A series counts every cell of the reference.")
    found += (
        Channel(
            name=" and ".join(view.columns),
            points=view.points(),
            scores=tuple(map(view_score, SIZES)),
            spread=view.spread(clients=[1]),
        )
        for view in asked_views(plan, reference)
    )
    effect = plan.verdict.design_effect
    return tuple(found if effect is None else (replace(each, spread=effect) for each in found))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PeriodCounts:
    """What the release of one period says, channel by channel."""

    number: int  # of the period, from 0
    records: int
    clients: int  # whose records are counted
    channels: tuple[NoisyCounts, ...]  # in the order of `channels_of`

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
        channels=(*found, *(column.counts for column in release.columns)),
    )
