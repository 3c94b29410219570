"""Simulated liars for `clients.py`: clients that draw from records they do not hold.

Tables of a carrier, an airport and an hour are counted by the code that clients run. Liars know
everything: the reference, the drift and what all others hold.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from power_worlds import Flights, generator

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.estimation import BatchCounts
from fedprikl.estimation.scoring import weighted_score
from fedprikl.planning.liars import Target, liar_bounds, liar_targets
from fedprikl.records import Draw, RecordCounts, open_records

CLIENTS, HELD, PER_CLIENT, EPSILON = 400, 60, 20, 1.0
SHARES = (0.01, 0.05)
SHAPE = (8, 10, 5)  # carriers, airports, hours
NAMES = ("carrier", "airport", "hour")
KINDS = ("hide", "fake", "one column")


@dataclass(frozen=True, eq=False)
class Sums:
    """Counts of the whole, and of every column."""

    whole: Ints
    views: tuple[Ints, ...]

    @classmethod
    def of(cls, counted: list[RecordCounts]) -> "Sums":
        """Of all clients."""
        views = zip(*(each.views for each in counted), strict=True)
        whole = np.sum([each.counts for each in counted], axis=0)
        return cls(whole, tuple(np.sum(view, axis=0) for view in views))


def measure_liars(seed: int, attacks: int) -> list[dict[str, Any]]:
    """The furthest that each answer was moved, beside the bound that the plan states."""
    rng = generator(seed, "liars")
    law = Flights.draw(rng).joint.mean(axis=0)
    reference = fk.Reference.fit(frame(rng.choice(len(law), 40_000, p=law)))
    planned = fk.plan(
        reference,
        clients=CLIENTS,
        records=CLIENTS * HELD,
        epsilon=EPSILON,
        unit="client",
        per_client=PER_CLIENT,
        ask=("kl", "tv", "js", "columns"),
    )
    known = planned.known
    targets = liar_targets(known, planned.plan)
    worst: dict[tuple[float, int], float] = {}
    for attack in range(attacks):
        for share in SHARES:
            moved = _attack(reference, law, targets, share, KINDS[attack % 3], rng)
            for number, far in enumerate(moved):
                worst[share, number] = max(worst.get((share, number), 0.0), far)
    stated = iter(liar_bounds(known, planned.plan, SHARES))
    return [
        {
            "share": share,
            "divergence": bound.divergence,
            "column": bound.column,
            "moved": worst[share, number],
            "bound": bound.shift,
            "breaking_the_protocol": bound.broken,
            "attacks": attacks,
        }
        for share in SHARES
        for number in range(len(targets))
        for bound in (next(stated),)
    ]


def _attack(
    reference: fk.Reference,
    law: Floats,
    targets: list[list[Target]],
    share: float,
    kind: str,
    rng: np.random.Generator,
) -> list[float]:
    """How far one attack moved each answer; of columns, the one that was moved furthest."""
    tilt = np.exp(rng.choice([0.0, 0.3, 1.0]) * rng.standard_normal(len(law)))
    p = law * tilt / (law @ tilt)
    honest = [_drawn(reference, rng.choice(len(p), HELD, p=p)) for _ in range(CLIENTS)]
    liars = max(1, round(share * CLIENTS))
    lies = [_drawn(reference, _lie(kind, law, p, rng)) for _ in range(liars)]
    truth, lied = Sums.of(honest), Sums.of([*lies, *honest[liars:]])
    return [
        max(abs(_value(each, reference, lied) - _value(each, reference, truth)) for each in group)
        for group in targets
    ]


def _lie(kind: str, law: Floats, p: Floats, rng: np.random.Generator) -> Ints:
    """The records that a liar claims to hold."""
    if kind == "hide":  # what the others have too few of
        lacking = np.maximum(law - p, 0.0)
        lacking = lacking if lacking.any() else law
        return rng.choice(len(law), HELD, p=lacking / lacking.sum())
    if kind == "fake":  # all of them in one cell, often a rare one
        return np.full(HELD, rng.choice(np.argsort(law)[: len(law) // 4]))
    levels = list(np.unravel_index(rng.choice(len(p), HELD, p=p), SHAPE))
    column = int(rng.integers(len(SHAPE)))
    levels[column] = np.full(HELD, rng.integers(SHAPE[column]))
    return np.ravel_multi_index(levels, SHAPE)


def _value(target: Target, reference: fk.Reference, sums: Sums) -> float:
    """What would be released, before noise."""
    counts, (about, score) = sums.whole, target
    if about.view.columns:
        names = [view.name for view in reference.views]
        counts = sums.views[names.index(about.view.name)]
    asked = counts[about.points.cells]
    return weighted_score(BatchCounts(about.points, asked, about.records), score)


def _drawn(reference: fk.Reference, cells: Ints) -> RecordCounts:
    return open_records(frame(cells)).count(reference, Draw(PER_CLIENT))


def frame(cells: Ints) -> pl.DataFrame:
    """Records as a table."""
    levels = np.unravel_index(cells, SHAPE)
    columns = zip(NAMES, levels, strict=True)
    return pl.DataFrame({name: [f"{name} {level}" for level in each] for name, each in columns})
