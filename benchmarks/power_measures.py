"""What `power.py` measures: each function is a task of its own, and returns rows of its table."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from power_default import FALSE_ALARM, Default, planned
from power_rivals import (
    chi_square,
    chi_square_threshold,
    least_error,
    previous_errors,
    textbook_errors,
)
from power_worlds import (
    KINDS,
    alarm_rounds,
    clients_of,
    domain,
    drifted,
    generator,
    largest,
    shrunk,
    size,
    skewed,
    truths,
)
from scipy import special

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.protocol.plan import Trust

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import load_compact, load_stand_in

POWER, CONFIDENCE = 0.95, 0.99
SMALLEST, PRECISION = 1e-6, 1.02  # of a drift in nats; of the search, as a ratio
SMALL_DRIFT = 0.05  # nats, up to which errors are compared with the least that any release has
LEAST_CELL = 0.003  # what a cell that nearly vanishes keeps
SAMPLED_CELLS, SAMPLED_BYTES = 2000, 256
SAME_POINTS = 10  # releases of the same points: the errors behind an interval are computed once
DROWNED = "drowned, "  # noise exceeds most counts
DIGITS = "digit pairs, full size"


@dataclass(frozen=True)
class Effort:
    """The seed, and how often everything is repeated."""

    seed: int = 0
    data: Path | None = None
    powers: int = 600  # populations for each size of drift
    errors: int = 30  # populations for each cell of the table of errors
    draws: int = 25  # of the noise on the counts of each
    few: int = 80  # cells: with fewer, so many times more populations and fewer draws, up to 4
    rounds: int = 40  # references for each rate of false alarms
    populations: int = 100  # for each reference
    splits: int = 150  # of the writers; alarms come in the same splits, so these must be many
    parts: int = 5  # of the writers of a split, each a population
    coverages: int = 650  # releases for each case
    sampled: int = 300  # releases for a case whose points are drawn anew each time

    def trials(self, cells: int) -> tuple[int, int]:
        """Populations and draws of a cell of the table of errors.

        The fewer cells, the more it matters which of them a drift lowers.
        """
        times = max(1, min(4, self.few // cells))
        return times * self.errors, -(-self.draws // times)


def measure_power(
    effort: Effort, name: str, cells: int, records: int, epsilon: float
) -> list[dict[str, Any]]:
    """Smallest drifts of all kinds, without privacy and with the default."""
    pi = domain(name, cells, effort.seed, effort.data)
    rng = generator(effort.seed, "chi-square", name, cells, records)
    threshold = chi_square_threshold(pi, records, FALSE_ALARM, rng)
    ours = planned(pi, records, clients_of(records), epsilon)
    rows = []
    for kind in KINDS:

        def found(nats: float, private: bool, kind: str = kind) -> float:
            """The power at a drift of this size."""
            rng = generator(effort.seed, "power", name, cells, records, kind)  # common numbers
            held = rng.multinomial(records, drifted(pi, kind, nats), effort.powers)
            if private:
                return float(ours.flags(held, rng).mean())
            return float((chi_square(held, pi) > threshold).mean())

        most = largest(pi, kind)
        chi2 = smallest(partial(found, private=False), 5 * math.sqrt(cells) / records, most)
        default = smallest(partial(found, private=True), chi2 or most, most)
        rows.append(
            {
                "domain": name,
                "cells": cells,
                "records": records,
                "epsilon": epsilon,
                "kind": kind,
                "chi2": chi2,
                "default": default,
                "ratio": default / chi2 if chi2 and default else None,
            }
        )
    return rows


def smallest(power: Callable[[float], float], start: float, most: float) -> float | None:
    """The least drift with a power of 95%; None if not even the largest has it.

    Steps of a factor 2 until it lies between two, bisection, and a line between the last two.
    """
    seen = cache(power)
    if seen(most) < POWER:
        return None
    low = high = min(start, most)
    while seen(high) < POWER:
        low, high = high, min(2 * high, most)
    while seen(low) >= POWER and low > SMALLEST:
        low, high = low / 2, low
    while high / low > PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seen(middle) >= POWER else (middle, high)
    share = (POWER - seen(low)) / max(seen(high) - seen(low), 1e-9)
    return float(low * (high / low) ** min(max(share, 0.0), 1.0))


DRIFTS: dict[str, tuple[str, float]] = {
    "none": ("none", 0.0),
    "0.01": ("smooth", 0.01),
    "0.05": ("smooth", 0.05),
    "0.2": ("smooth", 0.2),
    "1": ("smooth", 1.0),
    "gone": ("gone", 0.0),
}


def measure_errors(
    effort: Effort, name: str, cells: int, records: int, epsilon: float
) -> list[dict[str, Any]]:
    """Mean absolute errors of KL at every drift, of all methods on the same populations."""
    pi = domain(name, cells, effort.seed, effort.data)
    plan_for = partial(planned, pi, records, clients_of(records), epsilon)
    plans = {
        "default": plan_for(),
        "ask_kl": plan_for(ask=("kl",)),
        "trust_none": plan_for(trust="none"),
    }
    rows, (populations, draws) = [], effort.trials(cells)
    least = least_error(pi, records, epsilon, SMALL_DRIFT)
    for drift, (kind, nats) in DRIFTS.items():
        key = (name, cells, records, drift)
        rng = generator(effort.seed, "held", *key)
        drifts = [drifted(pi, kind, nats, rng.permutation(len(pi))) for _ in range(populations)]
        held = np.array([rng.multinomial(records, p) for p in drifts])
        truth, rng = truths(pi, held), generator(effort.seed, "noise", epsilon, *key)
        standard = rng.standard_exponential((2, populations, draws, len(pi)))
        row: dict[str, Any] = {
            "domain": name,
            "cells": cells,
            "records": records,
            "epsilon": epsilon,
            "drift": drift,
        }
        for method, plan in plans.items():
            row[method] = float(plan.errors(held, truth, standard, rng).mean())
            suffix = "" if method == "default" else f"_{method}"
            typical = float(np.mean([skewed(pi, p) for p in drifts]))
            row[f"predicted{suffix}"] = plan.predicted(kind, typical)
        row["textbook"] = float(textbook_errors(held, truth, pi, epsilon, standard, rng).mean())
        row["previous"] = float(previous_errors(held, truth, pi, epsilon).mean())
        row["least"] = least
        rows.append(row)
    return rows


def measure_alarms(effort: Effort, world: str, trust: Trust) -> list[dict[str, Any]]:
    """How often populations without drift are called drifted, at a stated 1%."""
    writers = "writers" in world
    rounds, populations = (effort.rounds, effort.populations)
    if writers:
        times = 2 if trust == "none" else 1  # plans without a trusted party are quicker
        rounds, populations = (times * effort.splits, effort.parts)
    rates = []
    for number, case in enumerate(
        alarm_rounds(world, rounds, populations, effort.seed, effort.data)
    ):
        ours = Default(
            case.reference,
            clients=case.clients,
            records=int(case.populations[0].sum()),
            epsilon=1.0,
            trust=trust,
            payload=4096,
        )
        rng = generator(effort.seed, "alarm noise", world, trust, number)
        rates.append(float(ours.flags(case.populations, rng).mean()))
    return [
        {
            "world": world,
            "trust": trust,
            "rate": float(np.mean(rates)),
            "upper": upper_limit(rates, populations),
            "populations": rounds * populations,
        }
    ]


def upper_limit(rates: list[float], populations: int) -> float:
    """The 99% limit of a rate, by Clopper and Pearson, for rounds of so many populations each.

    Populations of a round share a reference, so their alarms may come together. They count as no
    more unrelated ones than the spread between rounds allows.
    """
    rate, total = float(np.mean(rates)), len(rates) * populations
    if rate in (0.0, 1.0):
        return 1.0 if rate else float(special.betaincinv(1, total, CONFIDENCE))
    between = float(np.var(rates, ddof=1)) / len(rates) if len(rates) > 1 else 0.0
    worth = min(float(total), rate * (1 - rate) / between) if between > 0 else float(total)
    return float(special.betaincinv(rate * worth + 1, (1 - rate) * worth, CONFIDENCE))


def coverage_cases(data: Path | None) -> list[str]:
    """Names of all cases. Usual and drowned ones are of 62 lognormal cells."""
    kinds = ["none", "smooth", "rare", "heavy", "gone"]
    drowned = [f"{DROWNED}{kind}" for kind in kinds]
    usual = [*kinds, "nearly gone", "sampled", *drowned]
    return usual if data is None else [*usual, DIGITS]


def measure_coverage(effort: Effort, case: str, trust: Trust) -> list[dict[str, Any]]:
    """How often the printed 95% interval holds D of the very records."""
    if case == "sampled":
        inside = _sampled(effort, trust)
    elif case == DIGITS:
        inside = _digit_pairs(effort, trust)
    else:
        inside = _cover(effort, case, trust)
    hits, total = int(np.sum(inside)), len(inside)
    lower = special.betaincinv(hits, total - hits + 1, 1 - CONFIDENCE) if hits else 0.0
    return [
        {
            "case": case,
            "trust": trust,
            "rate": hits / total,
            "lower": float(lower),
            "releases": total,
        }
    ]


def _cover(effort: Effort, case: str, trust: Trust) -> Any:
    """Populations drawn anew for every release, from one P."""
    rng = generator(effort.seed, "coverage", case, trust)
    records, epsilon = (5_000, 0.1) if case.startswith(DROWNED) else (50_000, 1.0)
    case, pi = case.removeprefix(DROWNED), domain("lognormal", 62, effort.seed)
    if case == "nearly gone":  # a cell of 10% of the mass falls to 0.3% of itself
        records, epsilon = 402_953, 0.1
        pi = np.append(0.9 * pi, 0.1)
        p = shrunk(pi, np.arange(len(pi)) == len(pi) - 1, LEAST_CELL)
    elif case in ("none", "gone"):
        p = drifted(pi, case, 0.0)
    else:
        p = drifted(pi, case, 0.2 if case == "smooth" else _moderate(pi, case))
    ours = planned(pi, records, clients_of(records), epsilon, trust=trust)
    held = rng.multinomial(records, p, effort.coverages)
    return _inside(ours.intervals(held, rng), truths(pi, held))


def _moderate(pi: Floats, kind: str) -> float:
    """The size of a drift in which the cells of this kind keep a tenth."""
    light = np.argsort(np.argsort(pi)) < len(pi) // 2
    chosen = light if kind == "rare" else np.arange(len(pi)) == np.argmax(pi)
    return size(pi, shrunk(pi, chosen, 0.1))


def _inside(limits: Floats, truth: Floats) -> Any:
    return (limits[:, 0] <= truth) & (truth <= limits[:, 1])


def _sampled(effort: Effort, trust: Trust) -> Any:
    """More cells than fit: batches and populations drawn anew for every release, points often."""
    rng = generator(effort.seed, "coverage sampled", trust)
    pi = domain("lognormal", SAMPLED_CELLS, effort.seed)
    p, records = drifted(pi, "smooth", 0.2), 100_000
    ours = planned(pi, records, clients_of(records), 1.0, trust=trust, payload=SAMPLED_BYTES)
    inside = []
    points = ours.points
    for release in range(effort.sampled):
        batches = rng.multinomial(records // ours.plan.sums.batches, p, ours.plan.sums.batches)
        if release % SAME_POINTS == 0:
            points = ours.trust.draw_points(ours.pi, rng)
        found = ours.estimate(points, ours.opened(points, batches, rng), rng)
        low, high = found.interval or (0.0, math.inf)
        true = float(truths(pi, batches.sum(axis=0)[None])[0])
        inside.append(low <= true <= high)
    return inside


def _digit_pairs(effort: Effort, trust: Trust) -> Any:
    """Every digit against every other, at full size; the records stay, the noise is new."""
    data = effort.data or Path()
    genuine = load_compact(data / "femnist_digits.npz")
    digits = load_stand_in(genuine, data / "nist_digit_owners.npz")
    counts: list[Ints] = [digits.counts(digit) for digit in range(10)]
    repetitions = max(1, effort.coverages // 90)
    inside = []
    for a, mine in enumerate(counts):
        reference = Reference.from_counts(mine[:-1])
        rng = generator(effort.seed, "coverage digits", trust, a)
        for b, held in enumerate(counts):
            if a == b:
                continue
            ours = Default(
                reference,
                clients=digits.writers,
                records=int(held.sum()),
                epsilon=1.0,
                trust=trust,
            )
            rows = np.repeat(held[None], repetitions, axis=0)
            found = ours.intervals(rows, rng)
            true = skewed(reference.probabilities, held / held.sum())
            inside.extend(_inside(found, np.full(repetitions, true)))
    return inside


def measure_speed(effort: Effort, cells: int) -> list[dict[str, Any]]:
    """Seconds that the aggregator takes for one release of so many cells, at best of three."""
    pi = domain("lognormal", cells, effort.seed)
    records = 400_000
    ours = planned(pi, records, clients_of(records), 1.0, whole=True)
    rng = generator(effort.seed, "speed", cells)
    held = rng.multinomial(records // ours.plan.sums.batches, pi, ours.plan.sums.batches)
    sums, seconds = ours.opened(ours.points, held, rng), []
    for _ in range(3):
        begun = time.perf_counter()
        ours.estimate(ours.points, sums, rng)
        seconds.append(time.perf_counter() - begun)
    return [
        {
            "cells": cells,
            "seconds": min(seconds),
            "asked": len(ours.points),
            "noise": ours.plan.question.noise,
        }
    ]
