"""From what was released about views to an answer about each column: all of it post-processing."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedprikl.checks import Ints
from fedprikl.estimation import (
    CellShares,
    ColumnCase,
    ColumnSize,
    ColumnVerdict,
    NoisyCounts,
    NoisyViews,
    cell_shares,
    column_sizes,
    judge_columns,
    moved_cells,
)
from fedprikl.protocol.answer import Answer
from fedprikl.protocol.column_answer import CellAnswer, ColumnAnswer
from fedprikl.protocol.never_lost import or_none
from fedprikl.protocol.plan import Plan
from fedprikl.protocol.view_sums import view_score
from fedprikl.reference import Spread, View

__all__ = ["answer_columns"]

SIZES = ("tv", "kl")
DIRECTIONS: dict[int, Literal["up", "down", ""]] = {1: "up", -1: "down", 0: ""}
Case = tuple[NoisyCounts, float | Spread]


def answer_columns(
    plan: Plan, views: Sequence[View], released: NoisyViews, *, clients: int, mechanism: str
) -> tuple[ColumnAnswer, ...]:
    """An answer about each view. `clients` are those whose counts are in the sums.

    Cells are called moved in columns that drifted only, and in none where there is no verdict.
    """
    spreads = [_spread(plan, view, clients) for view in views]
    cases = list(zip(released.counts, spreads, strict=True))
    verdicts = moved = None
    if plan.series is None:  # the verdict of a series looks at all its releases
        verdicts = or_none(lambda: _judge(plan, views, released, spreads, clients))
        moved = or_none(lambda: _moved(plan, views, cases))
    return tuple(
        _answer(
            view,
            cases[i],
            mechanism,
            verdict=None if verdicts is None else verdicts[i],
            moved=None if moved is None else moved[i],
        )
        for i, view in enumerate(views)
    )


def _spread(plan: Plan, view: View, clients: int) -> float | Spread:
    """How counts vary without drift: by the plan, or by the reference for who was counted."""
    return view.spread(clients=[clients]) if plan.design_effect is None else plan.design_effect


def _judge(
    plan: Plan,
    views: Sequence[View],
    released: NoisyViews,
    spreads: Sequence[float | Spread],
    clients: int,
) -> tuple[ColumnVerdict, ...]:
    """On all views together."""
    records = [int(noisy.records[0]) for noisy in released.counts]
    unseen = [
        view.unseen(clients=clients, records=held, design_effect=plan.design_effect)
        for view, held in zip(views, records, strict=True)
    ]
    columns = [
        ColumnCase(
            points=noisy.points,
            records=records[i],
            spread=spread,
            witnesses=released.statistics(i, unseen[i]),
        )
        for i, (noisy, spread) in enumerate(zip(released.counts, spreads, strict=True))
    ]
    control = "family" if plan.columns is None else plan.columns.control
    return judge_columns(columns, false_alarm=plan.false_alarm_of_each, control=control)


def _moved(plan: Plan, views: Sequence[View], cases: Sequence[Case]) -> list[Ints]:
    """Of single columns together, and of pairs together: a pair repeats what its columns say."""
    rate = 0.1 if plan.columns is None else plan.columns.false_discovery
    found: dict[int, Ints] = {}
    for pairs in (False, True):
        places = [i for i, view in enumerate(views) if (len(view.columns) > 1) is pairs]
        told = moved_cells([cases[i] for i in places], false_discovery=rate)
        found |= zip(places, told, strict=True)
    return [found[i] for i in range(len(views))]


def _answer(
    view: View,
    case: Case,
    mechanism: str,
    *,
    verdict: ColumnVerdict | None,
    moved: Ints | None,
) -> ColumnAnswer:
    noisy, _ = case
    sizes = or_none(lambda: column_sizes(*case, [view_score(name) for name in SIZES])) or ()
    drifted = None if verdict is None else verdict.drifted
    told = moved if moved is not None and drifted else np.zeros(view.size, dtype=np.int64)
    return ColumnAnswer(
        columns=view.columns,
        witnesses=() if verdict is None else verdict.witnesses,
        answers=tuple(_size(each, mechanism) for each in sizes),
        cells=_cells(view, case, told),
        rest=float(noisy.rest[0]),
        noise_sd=float(noisy.noise_sd[0]),
        design_effect=None if verdict is None else verdict.design_effect,
    )


def _size(found: ColumnSize, mechanism: str) -> Answer:
    return Answer(
        divergence=found.divergence,
        value=found.value,
        interval=found.interval,
        no_drift=found.no_drift,
        target=found.target,
        unit=found.unit,
        mechanism=mechanism,
    )


def _cells(view: View, case: Case, moved: Ints) -> tuple[CellAnswer, ...]:
    noisy, _ = case
    shares = or_none(lambda: cell_shares(*case)) or _any_shares(noisy)
    return tuple(
        CellAnswer(
            label=label,
            reference=float(view.probabilities[i]),
            count=float(noisy.counts[i]),
            share=float(shares.shares[i]),
            interval=(float(shares.low[i]), float(shares.high[i])),
            moved=DIRECTIONS[int(moved[i])],
        )
        for i, label in enumerate(view.labels)
    )


def _any_shares(noisy: NoisyCounts) -> CellShares:
    """Where intervals could not be computed: all shares are possible."""
    shares = np.clip(noisy.counts / noisy.records[0], 0.0, 1.0)
    return CellShares(shares, np.zeros_like(shares), np.ones_like(shares))
