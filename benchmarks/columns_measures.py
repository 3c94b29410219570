"""What `columns.py` measures: verdicts on columns, their sizes, shifted cells, and speed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

import numpy as np
from columns_default import Default
from columns_worlds import KINDS, World, drifts
from power_worlds import clients_of, generator, truths
from scipy import special

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.protocol.plan import Plan, Trust
from fedprikl.protocol.round import plan_cohort
from fedprikl.reference import View
from fedprikl.secure_sum import secure_sum

Result = TypeVar("Result")
TRUSTS: tuple[Trust, ...] = ("aggregator", "none")
CONFIDENCE, FALSE_DISCOVERY = 0.99, 0.1
CELLS_COLUMNS, CELLS_RECORDS = 20, 10_000  # where moved cells are looked at: from so many records
FEW_NATS = (0.01, 0.002)  # of columns in which two cells move, and no other
SPEED_SHAPES = ((25, 10), (100, 12))  # columns and categories: 250 counts, and 1,200
SPEED_ROWS, SPEED_CLIENTS, SPEED_REFERENCE = 2_000, 50, 20_000


@dataclass(frozen=True)
class Effort:
    """The seed, and how often everything is repeated."""

    seed: int = 0
    references: int = 40  # each of a world of its own
    populations: int = 50  # for each reference, without drift, and with drift
    wide: int = 4  # as many times fewer references for 100 columns, and more populations
    sized: int = 5  # populations for each reference whose KL is computed
    raw: int = 10  # populations for each drift that are tested without privacy
    repeats: int = 3  # of what is timed

    def rounds(self, columns: int) -> tuple[int, int]:
        """References, and populations for each."""
        if columns <= CELLS_COLUMNS:
            return self.references, self.populations
        return max(1, self.references // self.wide), self.populations * self.wide


@dataclass
class _Tally:
    """What was seen under one plan."""

    alarms: int = 0  # populations without drift in which any column was called drifted
    beside: int = 0  # populations in which any column without drift was, others having drifted
    total: int = 0
    found: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    errors: list[Floats] = field(default_factory=list)  # (populations, columns), no drift
    moved_errors: list[Floats] = field(default_factory=list)


@cache
def plans_for(
    effort: Effort, world: str, columns: int, records: int, epsilon: float
) -> dict[Trust, Plan]:
    """As a user makes them, from a table of records."""
    rng = generator(effort.seed, "planned", world, columns)
    reference = World.draw(world, columns, rng).reference(rng)
    clients = clients_of(records)
    return {
        trust: fk.plan(
            reference, clients=clients, records=records, epsilon=epsilon, trust=trust
        ).plan
        for trust in TRUSTS
    }


def measure_columns(
    effort: Effort, world: str, columns: int, records: int, epsilon: float, nats: float
) -> dict[str, list[dict[str, Any]]]:
    """Rows of `cases`, and for few columns and many records of `cells`."""
    key = (world, columns, records, epsilon)
    plans = plans_for(effort, *key)
    tallies = {trust: _Tally() for trust in TRUSTS}
    shares: dict[tuple[float, Trust], list[Floats]] = {}
    references, populations = effort.rounds(columns)
    for number in range(references):
        rng = generator(effort.seed, "columns", *key, number)
        truth = World.draw(world, columns, rng)
        views = truth.views(rng)
        kinds = [("none", *KINDS)[(number + j) % 4] for j in range(columns)]
        calm = truth.populations(populations, records, np.ones_like(truth.pi), rng)
        seed = effort.seed * references + number
        drifted = truth.populations(populations, records, drifts(truth.pi, kinds, nats, seed), rng)
        ours = {
            trust: Default(plan, views, clients_of(records), records)
            for trust, plan in plans.items()
        }
        for trust, default in ours.items():
            noise = generator(effort.seed, "noise", *key, number, trust)
            _count(tallies[trust], default, calm, drifted, kinds, effort.sized, noise)
        if columns == CELLS_COLUMNS and records > CELLS_RECORDS:
            for few in FEW_NATS:
                found = _few_cells(truth, ours, few, populations, rng)
                for trust, rates in found.items():
                    shares.setdefault((few, trust), []).append(rates)
    case = {"world": world, "columns": columns, "records": records, "epsilon": epsilon}
    return {
        "cases": [
            case | {"trust": trust, "drift": nats} | _row(tally, plans[trust])
            for trust, tally in tallies.items()
        ],
        "cells": [
            case | {"trust": trust, "drift": few, "stated": FALSE_DISCOVERY} | _cells_row(rates)
            for (few, trust), rates in shares.items()
        ],
    }


def _count(
    tally: _Tally,
    ours: Default,
    calm: Ints,
    drifted: Ints,
    kinds: Sequence[str],
    sized: int,
    rng: np.random.Generator,
) -> None:
    noisy = ours.noisy(calm, rng)
    tally.alarms += int(ours.flags(calm, noisy, rng).any(axis=1).sum())
    tally.errors.append(_kl_errors(ours, calm[:sized], rng))
    flags = ours.flags(drifted, ours.noisy(drifted, rng), rng)
    where = np.array(kinds)
    tally.beside += int(flags[:, where == "none"].any(axis=1).sum())
    for kind, found in tally.found.items():
        found.extend(flags[:, where == kind].ravel().tolist())
    tally.moved_errors.append(_kl_errors(ours, drifted[:sized], rng))
    tally.total += len(calm)


def _kl_errors(ours: Default, held: Ints, rng: np.random.Generator) -> Floats:
    """|released - D of the very records|: (populations, columns)."""
    values = ours.kl(ours.noisy(held, rng))
    exact = [truths(_pi(view), held[:, column]) for column, view in enumerate(ours.views)]
    return np.abs(values - np.stack(exact, axis=1))


def _pi(view: View) -> Floats:
    return view.probabilities[:-1]


def _row(tally: _Tally, plan: Plan) -> dict[str, Any]:
    everything = [found for each in tally.found.values() for found in each]
    shares = {"tv": 0.0, "js": 0.0, "counts": 0.0}
    for each in plan.about_columns:
        shares["counts" if each.release == "counts" else each.divergence] += each.share
    return {
        "recall": float(np.mean(everything)),
        **{f"recall_{kind}": float(np.mean(found)) for kind, found in tally.found.items()},
        "false_alarms": tally.alarms / tally.total,
        "upper": upper(tally.alarms, tally.total),
        "false_alarms_beside_drift": tally.beside / tally.total,
        "repetitions": tally.total,
        "kl_error": float(np.concatenate(tally.moved_errors).mean()),
        "kl_error_no_drift": float(np.concatenate(tally.errors).mean()),
        "shares": shares,
    }


def upper(hits: int, total: int) -> float:
    """Clopper and Pearson's upper limit of a rate, one-sided, at 99%."""
    if hits == total:
        return 1.0
    return float(special.betaincinv(hits + 1, total - hits, CONFIDENCE))


def _few_cells(
    truth: World,
    ours: dict[Trust, Default],
    nats: float,
    populations: int,
    rng: np.random.Generator,
) -> dict[Trust, Floats]:
    """Per trust and population: false share of cells shown, found share of those that moved."""
    kinds = ["few" if j % 4 == 0 else "none" for j in range(truth.columns)]
    ratios = drifts(truth.pi, kinds, nats, int(rng.integers(2**31)))
    held = truth.populations(populations, ours["none"].records, ratios, rng)
    way = np.sign(np.where(np.abs(ratios - 1) < 1e-12, 0.0, ratios - 1))
    found = {}
    for trust, default in ours.items():
        noisy = default.noisy(held, rng)
        told = default.moved(noisy, FALSE_DISCOVERY)
        shown = told * default.flags(held, noisy, rng)[:, :, None]
        found[trust] = np.stack(
            [_false_share(shown, way), _false_share(told, way), _found_share(shown, way)]
        )
    return found


def _false_share(told: Ints, way: Floats) -> Floats:
    """Of the cells told to have moved, those that did not or went the other way."""
    wrong = ((told != 0) & (told != way)).sum(axis=(1, 2))
    return np.asarray(wrong / np.maximum((told != 0).sum(axis=(1, 2)), 1))


def _found_share(told: Ints, way: Floats) -> Floats:
    return np.asarray(((told == way) & (way != 0)).sum(axis=(1, 2)) / np.count_nonzero(way))


def _cells_row(rates: Sequence[Floats]) -> dict[str, Any]:
    shown, all_columns, found = np.concatenate(rates, axis=1)
    spread = float(special.ndtri(CONFIDENCE)) * shown.std() / np.sqrt(len(shown))
    return {
        "measured": float(shown.mean()),
        "upper": float(shown.mean() + spread),
        "measured_all_columns": float(all_columns.mean()),
        "recall": float(found.mean()),
        "repetitions": len(shown),
    }


def measure_speed(effort: Effort) -> list[dict[str, Any]]:
    """CPU seconds of planning, counting the records of a client, and a secure sum of 50 clients."""
    return [_speed(effort, columns, categories) for columns, categories in SPEED_SHAPES]


def _speed(effort: Effort, columns: int, categories: int) -> dict[str, Any]:
    rng = generator(effort.seed, "speed", columns)
    world = World.draw("independent", columns, rng, categories)
    reference = world.reference(rng, SPEED_REFERENCE)
    rows = world.table(rng, SPEED_ROWS)
    records = SPEED_CLIENTS * SPEED_ROWS

    def plan() -> Plan:
        settings = {"clients": SPEED_CLIENTS, "records": records, "epsilon": 1.0}
        return fk.plan(reference, **settings, ask=("columns",)).plan

    planning, planned = _timed(plan, effort.repeats)
    counting, views = _timed(lambda: reference.count_views(rows), effort.repeats)
    held = np.concatenate([*(each[:-1] for each in views), [SPEED_ROWS]]).astype(np.int64)
    cohort = plan_cohort(planned, clients=SPEED_CLIENTS)
    summing, _ = _timed(lambda: secure_sum(cohort, [held] * SPEED_CLIENTS), effort.repeats)
    entries = columns * categories
    seconds = {"plan": planning, "count": counting, "sum": summing}
    total = sum(seconds.values())
    return {
        "columns": columns,
        "counts": entries,
        **seconds,
        **{f"{name}_ms_per_count": 1000 * each / entries for name, each in seconds.items()},
        "ms_per_count": 1000 * total / entries,
    }


def _timed(work: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """CPU seconds, at best, and what it makes."""
    found = []
    for _ in range(repeats):
        begun = time.process_time()
        made = work()
        found.append((time.process_time() - begun, made))
    return min(found, key=lambda each: each[0])
