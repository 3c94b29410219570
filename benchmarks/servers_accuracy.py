"""How exact three servers are beside a trusted aggregator and beside noise shares of clients.

    python benchmarks/servers_accuracy.py [--json] [--seed S] [--quick]

power_ratio   smallest drift found with 95% power, over that of a trusted aggregator: the largest
              over all worlds and kinds of drift
kl_ratio      mean absolute error of KL over that of a trusted aggregator: the largest over all
              worlds and drifts
tv_ratio      the same of TV
mean_ratio    geometric mean of all of these ratios of errors
worst_none    error of three servers over that with trust "none", of KL and TV: the largest

Plans, worlds and drifts are those of `power.py`: plans as a user makes them, populations that are
simulated, noise as the library releases it. Sums of three servers are exact, so they are added in
the open. The bars are 1.3 (power), 1.6 (KL and TV), 1.25 (mean) and 1 (beside trust "none").
"""

import argparse
import json
import math
import sys
from typing import Any

import numpy as np
from power_default import Default, planned
from power_measures import DRIFTS, _moved, smallest
from power_rivals import plug_in
from power_worlds import clients_of, domain, drifted, generator, largest, with_outside

WORLDS = (
    ("lognormal", 30, 720),
    ("lognormal", 62, 5_000),
    ("lognormal", 62, 50_000),
    ("bimodal", 40, 8_000),
    ("lognormal", 250, 50_000),
)
EPSILONS = (1.0, 0.1)
KINDS = ("smooth", "rare", "heavy")
SIZES = ("none", "0.01", "0.05", "0.2", "gone", "outside 1%", "contamination 3%")
TRUSTS = ("aggregator", "servers", "none")
PAYLOAD = 8192  # bytes: all cells are asked, whoever is trusted
BARS = {"power_ratio": 1.3, "kl_ratio": 1.6, "tv_ratio": 1.6, "mean_ratio": 1.25, "worst_none": 1.0}


def measure(world: tuple[str, int, int], epsilon: float, *, seed: int, quick: bool) -> list[Any]:
    """Rows of smallest drifts and of errors, each for all three trusts."""
    name, cells, records = world
    pi = domain(name, cells, seed)
    plans = {
        trust: planned(pi, records, clients_of(records), epsilon, payload=PAYLOAD, trust=trust)
        for trust in TRUSTS
    }
    case = {"world": name, "cells": cells, "records": records, "epsilon": epsilon}
    return [
        case | row
        for rows in (_powers(plans, pi, world, seed, quick), _errors(plans, pi, world, seed, quick))
        for row in rows
    ]


def _powers(
    plans: dict[str, Default], pi: Any, world: tuple[str, int, int], seed: int, quick: bool
) -> list[dict[str, Any]]:
    rows, populations = [], 200 if quick else 600
    for kind in KINDS:
        row: dict[str, Any] = {"what": "smallest drift", "drift": kind}
        for trust, plan in plans.items():

            def power(nats: float, plan: Default = plan, kind: str = kind) -> float:
                rng = generator(seed, "power", *world, kind)  # common numbers
                held = rng.multinomial(world[2], with_outside(drifted(pi, kind, nats)), populations)
                return float(plan.flags(held, rng).mean())

            row[trust] = smallest(power, 5 * math.sqrt(world[1]) / world[2], largest(pi, kind))
        rows.append(row)
    return rows


def _errors(
    plans: dict[str, Default], pi: Any, world: tuple[str, int, int], seed: int, quick: bool
) -> list[dict[str, Any]]:
    rows, (populations, draws) = [], (10, 4) if quick else (30, 10)
    for drift in SIZES:
        kind, amount = DRIFTS[drift]
        if kind == "smooth" and amount >= largest(pi, "smooth"):
            continue
        rng = generator(seed, "held", *world, drift)
        held = np.array(
            [rng.multinomial(world[2], _moved(pi, kind, amount, rng)) for _ in range(populations)]
        )
        released = np.repeat(held, draws, axis=0)
        values = {
            trust: plan.values(released, generator(seed, "noise", *world, drift))
            for trust, plan in plans.items()
        }
        for statistic in ("kl", "tv"):
            truth = np.repeat(plug_in(held, pi, statistic), draws)
            row: dict[str, Any] = {"what": f"error of {statistic}", "drift": drift}
            for trust, found in values.items():
                row[trust] = float(np.abs(found[statistic] - truth).mean())
            rows.append(row)
    return rows


def _ratios(rows: list[dict[str, Any]], what: str, beside: str) -> list[float]:
    """Of three servers beside another trust. What only the other finds is infinitely worse."""
    found = []
    for row in rows:
        if row["what"] == what and row[beside] is not None:
            found.append(math.inf if row["servers"] is None else row["servers"] / row[beside])
    return found


def accuracy(*, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """All keys, and the rows that they are made of."""
    worlds = WORLDS[:2] if quick else WORLDS
    rows = [
        row
        for world in worlds
        for epsilon in EPSILONS
        for row in measure(world, epsilon, seed=seed, quick=quick)
    ]
    kl, tv = (_ratios(rows, f"error of {name}", "aggregator") for name in ("kl", "tv"))
    beside_none = [r for name in ("kl", "tv") for r in _ratios(rows, f"error of {name}", "none")]
    return {
        "power_ratio": max(_ratios(rows, "smallest drift", "aggregator")),
        "kl_ratio": max(kl),
        "tv_ratio": max(tv),
        "mean_ratio": float(np.exp(np.mean(np.log(kl + tv)))),
        "worst_none": max(beside_none),
        "rows": rows,
    }


def main() -> None:
    """Prints the keys beside their bars, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object with all rows")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is random")
    parser.add_argument("--quick", action="store_true", help="two worlds, few populations")
    given = parser.parse_args()
    found = accuracy(seed=given.seed, quick=given.quick)
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        return
    for key, bar in BARS.items():
        print(f"{key:12} {found[key]:8.3f}   bar {bar}")


if __name__ == "__main__":
    main()
