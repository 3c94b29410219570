"""What `power.py` measures: each function is a task of its own, and returns rows of its table."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import series
from power_default import FALSE_ALARM, WHOLE, Default, planned
from power_rivals import (
    DIVERGENCES,
    chi_square,
    chi_square_threshold,
    least_error,
    plug_in,
    textbook_errors,
)
from power_worlds import (
    FEW_CELLS,
    KINDS,
    WRITERS,
    clients_of,
    domain,
    drifted,
    generator,
    largest,
    mixture,
    shrunk,
    size,
    skewed,
    source,
    split,
    truths,
    with_outside,
)
from scipy import optimize, special

from fedprikl import Reference
from fedprikl.checks import Floats, Ints
from fedprikl.privacy import Unit
from fedprikl.protocol.plan import Trust
from fedprikl.protocol.release import Release

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import load_compact, load_stand_in

Rows = list[dict[str, Any]]
POWER, CONFIDENCE = 0.95, 0.99
SMALLEST, PRECISION = 1e-6, 1.02  # of a drift in nats; of the search, as a ratio
SMALL_DRIFT = 0.05  # nats, up to which errors are compared with the least that any release has
LEAST_CELL = 0.003  # what a cell that nearly vanishes keeps
SAMPLED_CELLS, SAMPLED_BYTES = 2000, 256
ORDERS = 200  # of cells, along which a drift is smooth: some are found far more often than others
SAME_POINTS = 10  # releases of the same points: the errors behind an interval are computed once
DROWNED = "drowned, "  # noise exceeds most counts
DIGITS = "digit pairs, full size"
SHARES = (0.003, 0.005, 0.01, 0.02, 0.05)  # out of the domain
PAYLOAD, MANY, LARGE = 1024, 250, 8192  # bytes; for more cells than that, so many
PER_PLAN = 20  # random small releases
ROUNDING = 1e-9  # ln(1 / 0.01) and -ln(0.01) differ
TOLD = 0.5  # power at half of the largest drift, from which on a verdict has to tell


@dataclass(frozen=True)
class Effort:
    """The seed, and how often everything is repeated."""

    seed: int = 0
    data: Path | None = None
    powers: int = 600  # populations for each size of drift
    errors: int = 60  # populations for each cell of the table of errors
    draws: int = 12  # releases of each
    rounds: int = 40  # references for each rate of false alarms
    populations: int = 50  # for each reference
    years: int = 1_000  # for each rate of false alarms per year
    coverages: int = 650  # releases for each case
    sampled: int = 300  # releases for a case whose points are drawn anew each time
    ranges: int = 500  # random small releases for each task of them


def _case(name: str, cells: int, records: int, epsilon: float) -> dict[str, Any]:
    """What names a row about a domain."""
    return {
        "world": name,
        "split": split(name),
        "domain": name,
        "cells": cells,
        "records": records,
        "epsilon": epsilon,
    }


def _plan_for(pi: Floats, records: int, epsilon: float, **options: Any) -> Default:
    """As a user plans it; with more cells than usual, all of them are asked."""
    payload = PAYLOAD if len(pi) <= MANY else LARGE
    return planned(pi, records, clients_of(records), epsilon, payload=payload, **options)


def measure_power(effort: Effort, name: str, cells: int, records: int, epsilon: float) -> Rows:
    """Smallest drifts of all kinds, without privacy and with the default."""
    pi = domain(name, cells, effort.seed, effort.data)
    rng = generator(effort.seed, "chi-square", name, cells, records)
    threshold = chi_square_threshold(pi, records, FALSE_ALARM, rng)
    ours = _plan_for(pi, records, epsilon)
    rows = []
    for kind in (*KINDS, *FEW_CELLS):

        def found(nats: float, private: bool, kind: str = kind) -> float:
            """The power at a drift of this size."""
            rng = generator(effort.seed, "power", name, cells, records, kind)  # common numbers
            p = with_outside(drifted(pi, kind, nats))
            held = rng.multinomial(records, p, effort.powers)
            if private:
                return float(ours.flags(held, rng).mean())
            return float((chi_square(held[:, :-1], pi) > threshold).mean())

        most = largest(pi, kind)
        chi2 = smallest(partial(found, private=False), 5 * math.sqrt(cells) / records, most)
        default = smallest(partial(found, private=True), chi2 or most, most)
        row = {
            "kind": kind,
            "statistic": "verdict",
            "chi2": chi2,
            "default": default,
            "ratio": default / chi2 if chi2 and default else None,
        }
        rows.append(_case(name, cells, records, epsilon) | row)
    return rows


def measure_outside(effort: Effort, name: str, cells: int, records: int, epsilon: float) -> Rows:
    """How often records out of the domain are found, with and without a trusted aggregator."""
    pi = domain(name, cells, effort.seed, effort.data)
    rows = []
    for trust in ("aggregator", "none"):
        ours = _plan_for(pi, records, epsilon, trust=trust)
        for share in SHARES:
            rng = generator(effort.seed, "outside", name, cells, records, epsilon, trust, share)
            held = rng.multinomial(records, with_outside(pi, share), effort.powers // 2)
            row = {
                "trust": trust,
                "statistic": "verdict",
                "share": share,
                "power": float(ours.verdicts(held, rng).mean()),
            }
            rows.append(_case(name, cells, records, epsilon) | row)
    return rows


def measure_printed(effort: Effort, name: str, cells: int, records: int, epsilon: float) -> Rows:
    """The power at the smallest drifts that the plan prints, of the kinds that are known here."""
    pi = domain(name, cells, effort.seed, effort.data)
    ours, rows = _plan_for(pi, records, epsilon), []
    for kind, nats in ours.planned.smallest_drifts.items():
        if nats is None or kind not in (*KINDS, *FEW_CELLS):
            continue
        rng, found = generator(effort.seed, "printed", name, cells, records, kind), []
        for _ in range(ORDERS):  # smooth along orders that mean nothing
            order = rng.permutation(cells) if kind == "smooth" else None
            p = _with_skewed_size(pi, kind, nats, order)
            held = rng.multinomial(records, with_outside(p), max(1, 4 * effort.powers // ORDERS))
            found.append(float(ours.flags(held, rng).mean()))
        row = {"kind": kind, "statistic": "verdict", "size": nats, "power": float(np.mean(found))}
        rows.append(_case(name, cells, records, epsilon) | row)
    return rows


def _with_skewed_size(pi: Floats, kind: str, nats: float, order: Ints | None) -> Floats:
    """P of a kind of drift whose size, with the skew of releases, is so many nats."""
    most = min(math.log(8 * nats), math.log(largest(pi, kind)))

    def excess(log_size: float) -> float:
        return skewed(pi, drifted(pi, kind, math.exp(log_size), order)) - nats

    if excess(most) <= 0:
        return drifted(pi, kind, math.exp(most), order)
    at = optimize.brentq(excess, math.log(nats / 2), most, xtol=1e-6)
    return drifted(pi, kind, math.exp(at), order)


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


DRIFTS: dict[str, tuple[str, float]] = {  # kinds, and nats or shares
    "none": ("none", 0.0),
    "0.01": ("smooth", 0.01),
    "0.05": ("smooth", 0.05),
    "0.2": ("smooth", 0.2),
    "1": ("smooth", 1.0),
    "gone": ("gone", 0.0),
    "outside 0.3%": ("outside", 0.003),
    "outside 1%": ("outside", 0.01),
    "outside 5%": ("outside", 0.05),
    "contamination 3%": ("contaminated", 0.03),
    "growing": ("growing", 0.02),
    "fading": ("fading", math.inf),
    "ordinal": ("ordinal", 0.02),
}
FORECAST = ("none", "smooth", "gone")  # kinds that the planner is asked about
METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "ask_kl": {"ask": ("kl",)},
    "trust_none": {"trust": "none"},
}


def _moved(pi: Floats, kind: str, amount: float, rng: np.random.Generator) -> Floats:
    """P over the cells and out of the domain."""
    if kind == "outside":
        return with_outside(pi, amount)
    order = rng.permutation(len(pi))
    if kind == "contaminated":
        return with_outside(mixture(pi, pi[order], amount))
    if kind in FEW_CELLS:
        return with_outside(drifted(pi, kind, min(amount, largest(pi, kind))))
    return with_outside(drifted(pi, kind, amount, order))


def measure_errors(effort: Effort, name: str, cells: int, records: int, epsilon: float) -> Rows:
    """Mean absolute errors at every drift, of all methods on the same populations.

    One row for each divergence. Only of KL are there forecasts, plans for nothing else, and the
    least error that any release has.
    """
    pi = domain(name, cells, effort.seed, effort.data)
    plans = {method: _plan_for(pi, records, epsilon, **o) for method, o in METHODS.items()}
    least, rows = least_error(pi, records, epsilon, SMALL_DRIFT), []
    for drift, (kind, amount) in DRIFTS.items():
        if kind == "smooth" and amount >= largest(pi, "smooth"):
            continue
        key = (name, cells, records, drift)
        rng = generator(effort.seed, "held", *key)
        drifts = [_moved(pi, kind, amount, rng) for _ in range(effort.errors)]
        held = np.array([rng.multinomial(records, p) for p in drifts])
        rng = generator(effort.seed, "noise", epsilon, *key)
        released = np.repeat(held, effort.draws, axis=0)
        values = {method: plan.values(released, rng) for method, plan in plans.items()}
        textbook = textbook_errors(held, pi, epsilon, 3 * effort.draws, rng)
        for statistic in DIVERGENCES:
            truth = np.repeat(plug_in(held, pi, statistic), effort.draws)
            row = _case(name, cells, records, epsilon) | {"statistic": statistic, "drift": drift}
            for method, found in values.items():
                if statistic in found:
                    row[method] = float(np.abs(found[statistic] - truth).mean())
            row["textbook"] = textbook[statistic]
            if statistic == "kl":
                row["least"] = least
            if statistic == "kl" and kind in FORECAST:
                typical = float(np.mean([skewed(pi, p[:-1] / p[:-1].sum()) for p in drifts]))
                for method, plan in plans.items():
                    suffix = "" if method == "default" else f"_{method}"
                    row[f"predicted{suffix}"] = plan.predicted(kind, typical)
            rows.append(row)
    return rows


def measure_alarms(effort: Effort, world: str, trust: Trust, unit: Unit) -> Rows:
    """How often populations without drift are called drifted, at a stated 1%."""
    # Alarms of the writers come in the same splits of them, so there must be many.
    times = 5 if world in WRITERS else 1
    rounds, populations = times * effort.rounds, max(1, effort.populations // times)
    rates, k = [], []
    for number in range(rounds):
        here = source(world, generator(effort.seed, "alarms", world, number), effort.data)
        ours = Default(
            here.reference,
            clients=here.clients,
            records=here.records,
            epsilon=1.0,
            trust=trust,
            payload=LARGE,
            unit=unit,
        )
        rng = generator(effort.seed, "alarm noise", world, trust, unit, number)
        held = np.array([ours.counted(here.draw(rng), rng) for _ in range(populations)])
        rates.append(float(ours.verdicts(held, rng).mean()))
        k.append(ours.records // here.clients)
    return [
        {
            "world": world,
            "split": split(world),
            "statistic": "verdict",
            "trust": trust,
            "unit": unit,
            "rate": float(np.mean(rates)),
            "upper": upper_limit(rates, populations),
            "populations": rounds * populations,
            "references": rounds,
            "records_per_client": float(np.mean(k)),
        }
    ]


def measure_series(effort: Effort, world: str, trust: Trust) -> Rows:
    """The same per year of weekly releases (`series.py`)."""
    references = min(effort.rounds, effort.years) if world.startswith("clients") else 4
    row = series.measure_alarms(world, trust, effort.years, effort.seed, references)
    return [row | {"split": split(world), "statistic": "series"}]


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


def measure_coverage(effort: Effort, case: str, trust: Trust) -> Rows:
    """How often the printed 95% intervals hold the divergences of the very records."""
    if case == "sampled":
        inside = {"kl": _sampled(effort, trust)}
    elif case == DIGITS:
        inside = {"kl": _digit_pairs(effort, trust)}
    else:
        inside = _cover(effort, case, trust)
    return [_coverage_row(case, trust, *each) for each in inside.items()]


def _coverage_row(case: str, trust: Trust, statistic: str, inside: Any) -> dict[str, Any]:
    hits, total = int(np.sum(inside)), len(inside)
    lower = special.betaincinv(hits, total - hits + 1, 1 - CONFIDENCE) if hits else 0.0
    return {
        "case": case,
        "world": case,
        "split": "tune",
        "statistic": statistic,
        "trust": trust,
        "rate": hits / total,
        "lower": float(lower),
        "releases": total,
    }


def _cover(effort: Effort, case: str, trust: Trust) -> dict[str, Any]:
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
    held = rng.multinomial(records, with_outside(p), effort.coverages)
    found = ours.intervals(held, rng)
    return {name: _inside(limits, plug_in(held, pi, name)) for name, limits in found.items()}


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
        batches = rng.multinomial(
            records // ours.plan.sums.batches, with_outside(p), ours.plan.sums.batches
        )
        if release % SAME_POINTS == 0:
            points = ours.trust.draw_points(ours.pi, rng)
        found = ours.estimate(points, ours.opened(points, batches, rng), rng)
        low, high = found.interval or (0.0, math.inf)
        true = float(truths(pi, batches[:, :-1].sum(axis=0)[None])[0])
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
            found = ours.intervals(rows, rng)["kl"]
            true = skewed(reference.probabilities, held / held.sum())
            inside.extend(_inside(found, np.full(repetitions, true)))
    return inside


def measure_ranges(effort: Effort, part: int) -> Rows:
    """Random small releases: what they print that cannot be, and verdicts that cannot tell."""
    rng = generator(effort.seed, "ranges", part)
    row: dict[str, Any] = {"world": "random small releases", "split": "check", "statistic": "all"}
    row |= {"releases": 0, "impossible": 0, "cannot_tell": 0, "could_tell": 0, "examples": []}
    while row["releases"] < effort.ranges:
        ours = _random_plan(rng)
        half, told = _half_of_largest(ours, rng), None
        for _ in range(min(PER_PLAN, effort.ranges - row["releases"])):
            p = mixture(ours.pi, rng.dirichlet(np.full(len(ours.pi), 0.3)), rng.random() ** 3)
            release = ours.printed(rng.multinomial(ours.records, p), rng)
            wrong = list(impossible(release))
            row["releases"] += 1
            row["impossible"] += bool(wrong)
            row["examples"] = (row["examples"] + wrong)[:10]
            if getattr(release, "outcome", None) != "cannot tell":
                continue
            if told is None:
                told = np.mean([bool(ours.printed(each, rng).drifted) for each in half]) >= TOLD
            row["cannot_tell"] += 1
            row["could_tell"] += bool(told)
    return [row]


def _random_plan(rng: np.random.Generator) -> Default:
    """A small table of one to three columns, few records and clients, any trust and unit."""
    levels = rng.integers(2, 7, rng.integers(1, 4))
    columns = {f"column{i}": rng.integers(0, n, 400) for i, n in enumerate(levels.tolist())}
    names = list(columns)
    reference = Reference.fit(pl.DataFrame(columns), columns=names, categorical=names)
    clients = int(rng.integers(6, 60))
    return Default(
        reference,
        clients=clients,
        records=clients * int(rng.integers(1, 20)),
        epsilon=float(np.exp(rng.uniform(math.log(0.05), math.log(3)))),
        trust="aggregator" if rng.random() < 0.6 else "none",
        payload=LARGE,
        ask=("kl", "tv", "js", "columns") if rng.random() < 0.5 and len(names) > 1 else WHOLE,
        unit="client" if rng.random() < 0.3 else "record",
    )


def _half_of_largest(ours: Default, rng: np.random.Generator) -> Ints:
    """Populations of a drift of half the largest size: half of the mass goes to the rarest cell."""
    rarest = np.where(ours.pi > 0, ours.pi, math.inf).argmin()
    point = (np.arange(len(ours.pi)) == rarest).astype(float)
    return rng.multinomial(ours.records, mixture(ours.pi, point, 0.5), PER_PLAN)


def impossible(release: Release) -> Iterator[str]:
    """Everything that a release prints out of its possible range, or out of its interval."""
    verdicts = [release.verdict, *(column for column in release.columns)]
    answers = [*release.answers, *(each for c in release.columns for each in c.answers)]
    for answer in answers:
        most = _largest_value(answer.divergence)
        low, high = answer.interval or (0.0, most)
        if not 0 <= answer.value <= most:
            yield f"{answer.divergence} = {answer.value:.4g}"
        if not low <= answer.value <= high:
            yield f"{answer.divergence} = {answer.value:.4g} beside {low:.4g} to {high:.4g}"
        if not 0 <= low <= high <= most:
            yield f"{answer.divergence} from {low:.4g} to {high:.4g}"
    for statistic in (each for verdict in verdicts if verdict for each in verdict.statistics):
        if statistic.name not in DIVERGENCES:
            continue
        most = _largest_value(statistic.name)
        if not (0 <= statistic.value <= most and 0 <= statistic.threshold < most):
            yield f"{statistic.name} = {statistic.value:.4g} beside {statistic.threshold:.4g}"
    for cell in (cell for column in release.columns for cell in column.cells):
        low, high = cell.interval
        if not 0 <= low <= cell.share <= high <= 1:
            yield f"a share of {cell.share:.4g} beside {low:.4g} to {high:.4g}"


def _largest_value(divergence: str) -> float:
    """Of any population: that of a cell with all the mass of Pi, which is empty."""
    skew, f = DIVERGENCES[divergence]
    empty = f(np.array([max(skew, 1e-300)]))
    return float(empty[0]) + ROUNDING


def measure_speed(effort: Effort, cells: int) -> Rows:
    """Seconds that the aggregator takes for one release of so many cells, at best of three."""
    pi = domain("lognormal", cells, effort.seed)
    records = 400_000
    ours = planned(pi, records, clients_of(records), 1.0, whole=True)
    rng = generator(effort.seed, "speed", cells)
    batches = ours.plan.sums.batches
    held = rng.multinomial(records // batches, with_outside(pi), batches)
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
