"""Typical values before and now, and the quality of the data: of each column, from what is public.

The release has the noisy counts and the reference says what its cells are, so nothing here costs
privacy. A median is that of the values that are there; missing ones have no part in it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedprikl.checks import Floats, Ints
from fedprikl.documents import clean
from fedprikl.estimation.cells import outside_share
from fedprikl.estimation.middle import binned_median, median_interval
from fedprikl.estimation.noisy_counts import CountedView
from fedprikl.estimation.statistic import OUT_OF_DOMAIN
from fedprikl.protocol import Plan, Release
from fedprikl.protocol.release import ColumnAnswer
from fedprikl.reference import Reference, View
from fedprikl.reference.columns import Bins, Column, Times
from fedprikl.reference.domain import Table
from fedprikl.reporting.facts import COLUMN_NAME, included, number, percent, shortened

SECOND = 10**6  # microseconds
STEPS = [86_400 * SECOND, 3_600 * SECOND, 60 * SECOND]
NEW = {"categories": "not in the reference", "bins": "no number", "times": "no time"}
CHANGES = {"up": "more", "down": "fewer", "": "cannot be told"}
TYPICAL_HEAD = ("column", "median of the reference", "now", "95% interval")
QUALITY_HEAD = ("column", "values", "reference", "now", "95% interval", "change")
TYPICAL = (
    "Half of the values do not exceed the median; missing values are left out. It is read off the "
    "noisy counts of bins, as if the values of a bin were evenly spread. The interval goes from "
    "edge to edge of bins, and contains the population's median 95 times in 100."
)
QUALITY = (
    "Shares of all records. New values are those that the reference does not know: a category that "
    "is not in its list, a text where it has numbers or times, or a gap where it has none. Numbers "
    "below all those of the reference, or above them, are counted in its outermost bins."
)
TERMINAL = 8  # lines of each kind on a terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Typical:
    """The median of a column of numbers or times, of the reference and now."""

    column: Bins
    before: float
    now: float  # -inf: below all edges; inf: above them
    interval: tuple[float, float]  # 95%, of the median now

    @property
    def texts(self) -> tuple[str, str, str]:
        """Before, now and the interval, for people."""
        return self._text(self.before), self._text(self.now), self._between()

    def _text(self, value: float) -> str:
        edges = self.column.edges
        if math.isinf(value):
            known = self.column.show(edges[0] if value < 0 else edges[-1])
            return f"up to {known}" if value < 0 else f"over {known}"
        if isinstance(self.column, Times) or step_of(self.column) or value in edges:
            return self.column.show(value)
        place = int(np.searchsorted(np.array(edges), value))
        width = edges[place] - edges[place - 1]  # a median with a value lies between two edges
        return number(value, max(0, 1 - math.floor(math.log10(width))))

    def _between(self) -> str:
        low, high = self.interval
        if math.isinf(low) and math.isinf(high):
            return self.column.show(None)
        show = self.column.show
        if math.isinf(high):
            return f"over {show(low)}"
        return f"up to {show(high)}" if math.isinf(low) else f"{show(low)} to {show(high)}"

    @property
    def words(self) -> str:
        """Like `median -2, now 3 (95% interval: 0 to 8)`."""
        before, now, between = self.texts
        return f"median {before}, now {now} (95% interval: {between})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The share of one kind of values of a column, in the reference and now."""

    column: str
    what: str
    before: float
    now: float
    interval: tuple[float, float]
    change: str  # "up", "down", or "": cannot be told

    @property
    def row(self) -> tuple[str, ...]:
        """One of `QUALITY_HEAD`."""
        ends = " to ".join(map(percent, self.interval))
        shares = percent(self.before), percent(self.now)
        return clean(self.column), clean(self.what), *shares, ends, CHANGES[self.change]


def step_of(column: Bins) -> float:
    """What all values are taken to be multiples of, because all edges are; 0: of nothing.

    >>> step_of(Bins("age", (20.0, 30.0))), step_of(Bins("size", (0.5, 1.25)))
    (1.0, 0.0)
    """
    if isinstance(column, Times):
        days = (step for step in STEPS if all(edge % step == 0 for edge in column.edges))
        return float(next(days, SECOND))
    return float(all(float(edge).is_integer() for edge in column.edges))


@dataclass(frozen=True, eq=False)
class ColumnValues:
    """What a release tells about the values of its single columns; of no other views."""

    release: Release
    plan: Plan
    reference: Reference | None  # None, or another: then nothing is told

    @cached_property
    def _known(self) -> list[tuple[ColumnAnswer, View, Column]]:
        reference, found = self.reference, []
        if reference is None or reference.fingerprint != self.release.reference:
            return []
        views = {view.columns: view for view in reference.views}
        for answer in self.release.columns:
            view = views.get(answer.columns)
            table = None if view is None else view.domain.encoder
            if view is not None and isinstance(table, Table) and len(table.columns) == 1:
                found.append((answer, view, table.columns[0]))
        return found

    def _counted(self, answer: ColumnAnswer, view: View) -> CountedView:
        spread = self.plan.spread(view, [max(included(self.release), 1)])
        return CountedView(view.points(), answer.counts, spread)

    @cached_property
    def typical(self) -> dict[str, Typical]:
        """By the name of each column of numbers or times that has at least one edge."""
        found = {}
        for answer, view, column in self._known:
            if isinstance(column, Bins) and column.edges:
                levels = view.domain.codes
                bins = np.flatnonzero(levels < column.size - 1)
                shares = np.array([cell.share for cell in answer.cells])[bins]
                if len(bins) > 1 and shares.sum() > 0:
                    found[answer.name] = self._median(answer, view, column, bins, shares)
        return found

    def _median(
        self, answer: ColumnAnswer, view: View, column: Bins, bins: Ints, shares: Floats
    ) -> Typical:
        edges = np.array([column.edges[level] for level in view.domain.codes[bins][:-1]])
        low, high = median_interval(self._counted(answer, view), bins, edges)
        step = step_of(column)
        now = binned_median(shares, edges, step)
        place = int(np.argmax(np.cumsum(shares) / shares.sum() >= 0.5))
        outer = np.concatenate([[-math.inf], edges, [math.inf]])
        return Typical(
            column=column,
            before=binned_median(view.probabilities[bins], edges, step),
            now=now,
            interval=(min(low, float(outer[place])), max(high, float(outer[place + 1]))),
        )

    @cached_property
    def quality(self) -> list[Quality]:
        """Missing and new values, and outermost bins: what has clearly changed comes first."""
        found = [each for known in self._known for each in self._of_column(*known)]
        return sorted(found, key=lambda each: (not each.change, -abs(each.now - each.before)))

    def _of_column(self, answer: ColumnAnswer, view: View, column: Column) -> Iterator[Quality]:
        levels = view.domain.codes.tolist()
        kinds = {column.size - 1: "missing"}
        if isinstance(column, Bins) and column.edges:
            kinds |= {level: f"outermost: {column.label(level)}" for level in (0, column.size - 2)}
        for level, cell in zip(levels, answer.cells, strict=True):
            if level in kinds:
                yield Quality(
                    column=answer.name,
                    what=kinds[level],
                    before=cell.reference,
                    now=cell.share,
                    interval=cell.interval,
                    change=cell.shifted,
                )
        yield self._new(answer, view, column)

    def _new(self, answer: ColumnAnswer, view: View, column: Column) -> Quality:
        held, (records,) = self._counted(answer, view), answer.counts.records
        law = view.out_of_domain(clients=max(included(self.release), 1), records=records)
        now, low, high = outside_share(held, law.effect)
        more = any(each.exceeds for each in answer.statistics if each.name == OUT_OF_DOMAIN)
        gaps = column.size - 1 in view.domain.codes
        return Quality(
            column=answer.name,
            what=f"new: {NEW[column.kind]}" + ("" if gaps else ", or missing"),
            before=float(view.probabilities[-1]),
            now=now,
            interval=(low, high),
            change="up" if more else "",
        )

    def new(self, column: ColumnAnswer) -> Quality | None:
        """The share of its new values; None where the reference is not known."""
        return next((self._new(*known) for known in self._known if known[0] is column), None)

    def typical_rows(self, columns: Iterable[ColumnAnswer]) -> list[tuple[str, ...]]:
        """Rows of `TYPICAL_HEAD`, in the order of these columns."""
        known = self.typical
        return [(clean(c.name), *known[c.name].texts) for c in columns if c.name in known]

    def story(self, column: ColumnAnswer) -> str:
        """The median of a column as a sentence; empty where there is none."""
        found = self.typical.get(column.name)
        if found is None:
            return ""
        before, now, between = found.texts
        return f"The median was {before} and is now {now} (95% interval: {between})."

    def lines(self, columns: Sequence[ColumnAnswer]) -> Iterator[str]:
        """For a terminal: the medians of the first columns, and what has clearly changed."""
        known = self.typical
        medians = [column.name for column in columns if column.name in known]
        for name in medians[:TERMINAL]:
            yield f"{shortened(clean(name), COLUMN_NAME)}: {known[name].words}"
        for each in [each for each in self.quality if each.change][:TERMINAL]:
            name, what, before, now, ends, change = each.row
            where = shortened(name, COLUMN_NAME)
            yield f"{where}, {what}: {change}, {before} in the reference, now {now} ({ends})"

    def plain(self) -> list[dict[str, Any]]:
        """The quality of the data as rows of a frame."""
        return [
            {
                "column": each.column,
                "values": each.what,
                "reference": each.before,
                "share": each.now,
                "low": each.interval[0],
                "high": each.interval[1],
                "change": each.change,
            }
            for each in self.quality
        ]
