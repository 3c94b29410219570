"""Whole clients protected: what it costs beside single records, and what liars can do.

    python benchmarks/clients.py [--json] [--seed S] [--data DIR] [--quick] [--workers W]

`cases`: mean absolute error of KL, without drift and at 0.43 nats (smooth: a tilt along the cells;
rough: along cells in an order that means nothing, so that more of them nearly vanish), and the
smallest smooth drift that the default verdict finds (1% false alarms, 95% power). With unit
"record" and unit "client", where the planner chooses how many records each client draws; with a
trusted aggregator and with nobody trusted. `group` protects single records so well that the client
with most records has the same epsilon: epsilon divided by the records it holds. `liars`: the
furthest that 100 simulated attacks moved each answer, beside the bound that the plan states.
`sizes`: false alarms where sizes are very unequal (`clients_sizes.py`).

With `--data`, the folder of the digits, `stand-in` is 402,953 digits of 3,579 writers. Without it
there is a domain like it, with as many clients.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from clients_liars import measure_liars
from clients_sizes import AVERAGE, measure_sizes
from power_default import Default
from power_measures import smallest
from power_worlds import domain, drifted, generator, skewed

import fedprikl as fk
from fedprikl.checks import Floats, Ints
from fedprikl.estimation.scoring import Terms
from fedprikl.privacy import InsecureSeededNoise

sys.path.insert(0, str(Path(__file__).parents[1]))  # experiments/ is not part of the package

from experiments.handwriting import load_compact, load_stand_in
from experiments.population import Population

EPSILON, DRIFT, ASKED = 1.0, 0.43, ("kl", "tv", "js")
ATTACKS, POPULATIONS = 100, 400  # populations for each size of drift
# KL error without drift and at the drift, and the smooth drift that is found: on the stand-in.
BARS = {"none": 0.004, "smooth": 0.012, "smallest_drift": 0.01}
MOST_ALARMS = 0.02  # the upper limit of false alarms for a stated 1%
Row = dict[str, Any]


def draw_records(
    population: Population, k: int, pi: Floats, rng: np.random.Generator
) -> Population:
    """Exactly k records of every client, as `fedprikl.records.Draw` draws them.

    A client with fewer contributes all of them, and records of the reference for the rest.
    """
    order = np.lexsort((rng.random(population.records), population.client))
    client, cell = population.client[order], population.cell[order]
    held = np.bincount(client, minlength=population.clients)
    first = np.cumsum(held) - held
    own = np.arange(len(client)) - first[client] < k
    short = np.repeat(np.arange(population.clients), np.maximum(0, k - held))
    filled = np.searchsorted(np.cumsum(pi)[:-1], rng.random(len(short)), side="right")
    return replace(
        population,
        client=np.concatenate([client[own], short]),
        cell=np.concatenate([cell[own], filled]),
    )


@dataclass(frozen=True, eq=False)
class World:
    """Pi, and how many records each client holds."""

    name: str
    pi: Floats
    held: Ints

    @classmethod
    def make(cls, name: str, seed: int, data: Path | None) -> "World":
        """The digits of many writers; few cells and phones of all sizes; flights and sites."""
        rng = generator(seed, "clients", name)
        if name == "stand-in" and data is not None:
            digits = load_stand_in(
                load_compact(data / "femnist_digits.npz"), data / "nist_digit_owners.npz"
            )
            everybody = np.bincount(digits.cell, minlength=digits.cells)[:-1]
            return cls(name, everybody / everybody.sum(), np.bincount(digits.writer))
        if name == "stand-in":
            mass = (np.arange(6000) + 2.7) ** -1.3
            return cls(name, mass / mass.sum(), rng.integers(40, 186, 3579))
        if name == "phones":
            return cls(name, domain("lognormal", 30, seed), 20 + rng.geometric(1 / 60, 2000))
        return cls(name, domain("flights", 62, seed), rng.integers(400, 1600, 400))

    @property
    def reference(self) -> fk.Reference:
        """Pi as it is: what a sample of it would add is measured elsewhere."""
        return fk.Reference.from_probabilities(self.pi)

    @property
    def clients(self) -> int:
        """How many there are."""
        return len(self.held)

    def planned(self, **options: Any) -> Default:
        """The plan that a user gets, and what it releases."""
        records = int(self.held.sum())
        return Default(self.reference, clients=self.clients, records=records, **options)

    def population(self, p: Floats, rng: np.random.Generator) -> Population:
        """Records of all clients, drawn from P."""
        client = np.repeat(np.arange(self.clients), self.held)
        cell = np.searchsorted(np.cumsum(p)[:-1], rng.random(len(client)), side="right")
        return Population(client, cell, len(self.reference.probabilities), self.clients)

    def drifted(self, nats: float, kind: str = "smooth") -> Floats:
        """A tilt along the cells; "rough": along the cells in an order that means nothing."""
        order = None
        if kind == "rough":
            order = generator(0, "order", self.name).permutation(len(self.pi))
        return drifted(self.pi, "smooth", nats, order)


def measure_unit(
    world: World, unit: Any, trust: Any, epsilon: float, repetitions: int, seed: int, label: str
) -> list[Row]:
    """Errors of KL and the smallest drift, of one plan."""
    plan = world.planned(unit=unit, trust=trust, epsilon=epsilon, ask=("kl",))
    rows = []
    for kind, nats in (("none", 0.0), ("smooth", DRIFT), ("rough", DRIFT)):
        p = world.drifted(nats, kind)
        errors = []
        for repetition in range(repetitions):
            rng = generator(seed, world.name, trust, kind, repetition)
            population = world.population(p, rng)
            truth = skewed(world.pi, population.distribution[: len(world.pi)])
            errors.append(_estimate(plan, population, rng) - truth)
        rows.append(
            {
                "world": world.name,
                "unit": label,
                "trust": trust,
                "k": None if plan.plan.unit.kind == "record" else plan.plan.unit.records,
                "epsilon": EPSILON,
                "kind": kind,
                "drift": nats,
                "mae": float(np.abs(errors).mean()),
                "predicted": plan.predicted("smooth" if nats else "none", nats),
            }
        )
    found = None if label == "group" else _smallest(world, unit, trust, epsilon, seed)
    return [row | {"smallest_drift": found} for row in rows]


def _estimate(plan: Default, population: Population, rng: np.random.Generator) -> float:
    """One release: every client draws, batches are dealt, the sums are opened in the open."""
    points = plan.trust.draw_points(plan.pi, rng)
    counted = population
    if plan.plan.unit.kind == "client":
        counted = draw_records(population, plan.plan.unit.records, plan.pi, rng)
    dealt = rng.permutation(counted.clients) % points.batches
    batches = counted.histograms(dealt, points.batches)
    return plan.estimate(points, plan.opened(points, batches, rng), rng).value


def _smallest(world: World, unit: Any, trust: Any, epsilon: float, seed: int) -> float | None:
    """The least smooth drift that the verdict on the default questions finds, measured."""
    judge = _Judge(world.planned(unit=unit, trust=trust, epsilon=epsilon, ask=ASKED))

    def power(nats: float) -> float:
        rng = generator(seed, "power", world.name, trust, unit)  # common random numbers
        return float(judge.flags(world.drifted(nats), rng).mean())

    return smallest(power, 0.01, 0.5)


class _Judge:
    """The verdict of a plan, many populations at a time."""

    def __init__(self, plan: Default) -> None:
        self.plan = plan
        self.terms = Terms.of(plan.points, plan.totals)

    def flags(self, p: Floats, rng: np.random.Generator) -> Any:
        """Whether drift is found in each population with this distribution."""
        return self.plan.flags_of_terms(self._counts(np.append(p, 0.0), rng), rng)

    def _counts(self, p: Floats, rng: np.random.Generator) -> Ints:
        """Of all terms. Every batch is a set of clients of its own."""
        parts = []
        for batch, records in enumerate(self.plan.totals.tolist()):
            asked = p[self.plan.points.cells[self.plan.points.batch == batch]]
            law = np.append(asked, max(0.0, 1 - asked.sum()))
            parts.append(rng.multinomial(records, law / law.sum(), POPULATIONS)[:, :-1])
        return self.terms.pool(np.concatenate(parts, axis=1))


def measure_equal(seed: int) -> list[Row]:
    """Unit client at k = 1, of clients with one record each, beside unit record."""
    found = []
    rng = generator(seed, "one each")
    reference = fk.Reference.from_counts(rng.integers(1, 100, 12))
    clients = {str(i): [int(rng.integers(12))] for i in range(300)}
    for unit in ("record", "client"):
        options: Any = {"unit": unit, "per_client": 1} if unit == "client" else {}
        planned = fk.plan(reference, clients=300, records=300, epsilon=EPSILON, **options)
        result = fk.compare(
            reference,
            clients,
            planned,
            ledger=None,
            source=InsecureSeededNoise(seed),
            rng=np.random.default_rng(seed),
        )
        found.append({"unit": unit, "values": [each.value for each in result.release.answers]})
    return found


def bars(
    cases: Sequence[Row], liars: Sequence[Row], equal: Sequence[Row], sizes: Sequence[Row]
) -> list[Row]:
    """What must hold, and whether it does."""
    found = []
    for case in cases:
        if (case["world"], case["unit"], case["trust"]) == ("stand-in", "client", "aggregator"):
            drift = case["kind"]
            limits = [("mae", BARS[drift])] if drift in BARS else []
            limits += [("smallest_drift", BARS["smallest_drift"])] if drift == "none" else []
            for name, limit in limits:
                value = case[name]
                held = value is not None and value <= limit
                found.append(
                    {"bar": f"{name}, {drift}", "limit": limit, "value": value, "held": held}
                )
    over = [row for row in liars if row["moved"] > row["bound"]]
    found.append(
        {"bar": "liars beyond the bound", "limit": 0, "value": len(over), "held": not over}
    )
    upper = max(row["upper"] for row in sizes)
    held = upper <= MOST_ALARMS
    found.append(
        {"bar": "false alarms, upper limit", "limit": MOST_ALARMS, "value": upper, "held": held}
    )
    same = equal[0]["values"] == equal[1]["values"]
    found.append({"bar": "k = 1 equals unit record", "limit": True, "value": same, "held": same})
    return found


def tasks(options: argparse.Namespace) -> list[tuple[str, Callable[[], list[Row]]]]:
    """Everything that is measured, by the key of its rows."""
    repetitions = 6 if options.quick else 40
    found: list[tuple[str, Callable[[], list[Row]]]] = []
    for name in ("stand-in",) if options.quick else ("stand-in", "phones", "flights"):
        world = World.make(name, options.seed, options.data)
        for trust in ("aggregator", "none"):
            units = [("client", EPSILON, "client"), ("record", EPSILON, "record")]
            if not options.quick:
                units.append(("record", EPSILON / int(world.held.max()), "group"))
            for unit, epsilon, label in units:
                task = partial(
                    measure_unit, world, unit, trust, epsilon, repetitions, options.seed, label
                )
                found.append(("cases", task))
    attacks = 20 if options.quick else ATTACKS
    found.append(("liars", partial(measure_liars, options.seed, attacks)))
    found.append(("equal", partial(measure_equal, options.seed)))
    rounds = (2, 100) if options.quick else (40, 50)  # references, and populations of each
    for spread, trust, dirichlet, k in product(
        (1.5, 2.0), ("aggregator", "none"), (False, True), (None, AVERAGE // 2)
    ):
        task = partial(measure_sizes, spread, trust, dirichlet, k, options.seed, *rounds)
        found.append(("sizes", task))
    return found


def _run(task: tuple[str, Callable[[], list[Row]]]) -> tuple[str, list[Row]]:
    key, measure = task
    rows = measure()
    print(f"{key}: {rows[0]}", file=sys.stderr, flush=True)
    return key, rows


def table(rows: Sequence[Row]) -> str:
    """As a Markdown table."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names)]
    lines += [
        [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder with the digits")
    parser.add_argument("--quick", action="store_true", help="the stand-in only, few repetitions")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    found: dict[str, list[Row]] = {"cases": [], "liars": [], "equal": [], "sizes": []}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for key, rows in pool.map(_run, tasks(options)):
            found[key] += rows
    result = found | {"bars": bars(**found)}
    if options.json:
        print(json.dumps({"seed": options.seed, **result}, indent=1))
        return
    print(*(table(result[key]) for key in ("cases", "liars", "sizes", "bars")), sep="\n\n")


if __name__ == "__main__":
    main()
