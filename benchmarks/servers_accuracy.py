"""How exact three servers are beside a trusted aggregator and beside noise shares of clients.

    python benchmarks/servers_accuracy.py [--json] [--seed S] [--quick]

power_ratio   smallest drift found with 95% power, over that of a trusted aggregator: the largest
              over all worlds and kinds of drift
kl_ratio      mean absolute error of KL over that of a trusted aggregator: the largest over all
              worlds and drifts
tv_ratio      the same of TV
mean_ratio    geometric mean of all of these ratios of errors
worst_none    error of three servers over that with trust "none", of KL and TV: the largest
sure_none     the largest of these ratios less four standard errors: above 1, it is not chance
world_none    their geometric mean in a world, KL and TV and all drifts together: the largest
drift_none    smallest drift over that with trust "none": the largest

Domains, drifts and plans are those of `power.py` (all cells are asked), populations are simulated,
and noise is as the library releases it. In one world the numbers of three servers are computed on
shares, with noise that they draw together; in the others noise of the same law is added to the sums
in the open. A ratio of errors is of the same populations with independent noise, and its standard
error (`chance`, 5 to 10%) is that over populations. Whether a verdict finds a drift is simulated
from the law of the noise, with common random numbers: so equal plans with equal laws have a ratio
of exactly 1.
The bars are 1.3 (power), 1.6 (KL and TV), 1.25 (mean) and 1 (worst beside trust "none").
"""

import argparse
import json
import math
import sys
from itertools import product
from typing import Any

import numpy as np
from power_default import Default
from power_measures import DRIFTS, _moved, smallest
from power_rivals import plug_in
from power_worlds import clients_of, domain, drifted, generator, largest, split, with_outside

import fedprikl as fk
from fedprikl.checks import Floats
from fedprikl.estimation import Estimates
from fedprikl.privacy import InsecureSeededNoise
from fedprikl.protocol.answering import explain, law_outside
from fedprikl.protocol.server_answer import ServersAnswer, answer
from fedprikl.protocol.sums import OpenedSum
from fedprikl.reference import QueryPoints
from fedprikl.secure_sum.line_runtime import LineRuntime, compute_together, in_memory
from fedprikl.secure_sum.line_shares import SERVERS, expand
from fedprikl.secure_sum.line_shares import split as split_shares

WORLDS = (
    ("lognormal", 30, 720),
    ("lognormal", 62, 5_000),
    ("lognormal", 250, 720),  # a trusted aggregator may release numbers here, not counts
    ("bimodal", 40, 8_000),
    ("lognormal", 10, 5_000),
    ("lognormal", 62, 50_000),
    ("flights", 62, 5_000),
    ("digits", 30, 720),
    ("digits", 62, 5_000),
    ("digits", 250, 50_000),
)
ON_SHARES = WORLDS[1]
EPSILONS = (1.0, 0.1)
CASE = ("world", "cells", "records", "epsilon")
KINDS = ("smooth", "rare", "heavy")
SIZES = ("none", "0.01", "0.05", "0.2", "gone", "outside 1%", "contamination 3%")
PAYLOAD = 8192  # bytes: all cells are asked, whoever is trusted
POPULATIONS, DRAWS, POWERS = 40, 4, 2_000  # for errors, releases of each; for power
SURE = 4.0  # standard errors: one of all ratios exceeds them by chance in one run of a hundred
BARS = {"power_ratio": 1.3, "kl_ratio": 1.6, "tv_ratio": 1.6, "mean_ratio": 1.25, "worst_none": 1.0}


class OnShares(Default):
    """The default whose numbers three servers compute; sums are shared in this process."""

    def estimates(
        self, points: QueryPoints, sums: list[OpenedSum], rng: np.random.Generator
    ) -> Estimates:
        """All that one release says about the whole."""
        ((held,), records) = sums[0].counts, sums[0].records
        total = np.array([*held, records - held.sum(), records])
        seed, asked = rng.bytes(32), ServersAnswer(self.trust, (points,))
        shares = dict(
            zip(SERVERS, (expand(seed, len(total)), *split_shares(total, seed)), strict=True)
        )
        found = compute_together(
            {
                n: answer(
                    LineRuntime(n, in_memory, randomness=rng.bytes),
                    asked,
                    share,
                    included=self.clients,
                    source=InsecureSeededNoise(int(rng.integers(2**31))),
                    randomness=rng.bytes,
                )
                for n, share in shares.items()
            }
        )[1]
        outside = law_outside(
            self.plan, self.reference.whole, points, clients=self.clients, records=self.records
        )
        return explain(self.trust, (points,), found, self.cohorts, rng=rng, outside=outside)


def measure(world: tuple[str, int, int], epsilon: float, *, seed: int, quick: bool) -> list[Any]:
    """Rows of smallest drifts and of errors, each for all three trusts."""
    name, cells, records = world
    pi = domain(name, cells, seed)
    who: dict[str, Any] = {"clients": clients_of(records), "records": records, "epsilon": epsilon}
    reference = fk.Reference.from_probabilities(pi)
    ours = OnShares if world == ON_SHARES else Default
    kinds: dict[Any, type[Default]] = {"aggregator": Default, "servers": ours, "none": Default}
    plans = {
        str(trust): kind(reference, **who, payload=PAYLOAD, trust=trust)
        for trust, kind in kinds.items()
    }
    case = {"world": name, "split": split(name), "cells": cells, "records": records}
    case |= {"epsilon": epsilon} | {f"{t} asks": p.planned.taken.shares for t, p in plans.items()}
    return [
        case | row
        for rows in (_powers(plans, pi, world, seed), _errors(plans, pi, world, seed, quick))
        for row in rows
    ]


def _powers(
    plans: dict[str, Default], pi: Any, world: tuple[str, int, int], seed: int
) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        row: dict[str, Any] = {"what": "smallest drift", "drift": kind}
        for trust, plan in plans.items():

            def power(nats: float, plan: Default = plan, kind: str = kind) -> float:
                rng = generator(seed, "power", *world, kind)  # common numbers
                held = rng.multinomial(world[2], with_outside(drifted(pi, kind, nats)), POWERS)
                return float(plan.flags(held, rng).mean())

            row[trust] = smallest(power, 5 * math.sqrt(world[1]) / world[2], largest(pi, kind))
        rows.append(row)
    return rows


def _errors(
    plans: dict[str, Default], pi: Any, world: tuple[str, int, int], seed: int, quick: bool
) -> list[dict[str, Any]]:
    rows, populations = [], 10 if quick else POPULATIONS
    for drift in SIZES:
        kind, amount = DRIFTS[drift]
        if kind == "smooth" and amount >= largest(pi, "smooth"):
            continue
        rng = generator(seed, "held", *world, drift)
        held = np.array(
            [rng.multinomial(world[2], _moved(pi, kind, amount, rng)) for _ in range(populations)]
        )
        released = np.repeat(held, DRAWS, axis=0)
        values = {
            trust: plan.values(released, generator(seed, "noise", trust, *world, drift))
            for trust, plan in plans.items()
        }
        for statistic in ("kl", "tv"):
            truth = np.repeat(plug_in(held, pi, statistic), DRAWS)
            errors = {
                trust: np.abs(found[statistic] - truth).reshape(-1, DRAWS).mean(axis=1)
                for trust, found in values.items()
            }
            row: dict[str, Any] = {"what": f"error of {statistic}", "drift": drift}
            row |= {trust: float(found.mean()) for trust, found in errors.items()}
            row["chance"] = _chance(errors["servers"], errors["none"])
            rows.append(row)
    return rows


def _chance(ours: Floats, theirs: Floats) -> float:
    """Standard error of a ratio of mean errors of the same populations."""
    left = ours - ours.mean() / theirs.mean() * theirs
    return float(left.std(ddof=1) / theirs.mean() / math.sqrt(len(ours)))


def _ratio(row: dict[str, Any], beside: str) -> float | None:
    """Of three servers beside another trust. What only the other finds is infinitely worse."""
    if row[beside] is None:
        return None
    return math.inf if row["servers"] is None else float(row["servers"] / row[beside])


def _ratios(rows: list[dict[str, Any]], what: str, beside: str) -> list[float]:
    found = (_ratio(row, beside) for row in rows if row["what"] == what)
    return [ratio for ratio in found if ratio is not None]


def accuracy(*, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """All keys, and the rows that they are made of."""
    worlds = WORLDS[:3] if quick else WORLDS
    rows = []
    for world, epsilon in product(worlds, EPSILONS):
        rows += measure(world, epsilon, seed=seed, quick=quick)
        print(f"{len(rows)} rows: {world}, epsilon {epsilon}", file=sys.stderr, flush=True)
    kl, tv = (_ratios(rows, f"error of {name}", "aggregator") for name in ("kl", "tv"))
    beside_none = [
        (ratio, row)
        for row in rows
        if row["what"] != "smallest drift" and (ratio := _ratio(row, "none")) is not None
    ]
    cases = {tuple(row[name] for name in CASE) for row in rows}
    return {
        "power_ratio": max(_ratios(rows, "smallest drift", "aggregator")),
        "kl_ratio": max(kl),
        "tv_ratio": max(tv),
        "mean_ratio": _mean(kl + tv),
        "worst_none": max(ratio for ratio, _ in beside_none),
        "sure_none": max(ratio - SURE * row["chance"] for ratio, row in beside_none),
        "world_none": max(
            _mean([ratio for ratio, row in beside_none if tuple(row[n] for n in CASE) == case])
            for case in cases
        ),
        "drift_none": max(_ratios(rows, "smallest drift", "none")),
        "rows": rows,
    }


def _mean(ratios: list[float]) -> float:
    """Geometric."""
    return float(np.exp(np.mean(np.log(ratios))))


def main() -> None:
    """Prints the keys beside their bars, or everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="one JSON object with all rows")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is random")
    parser.add_argument("--quick", action="store_true", help="three worlds, few populations")
    given = parser.parse_args()
    found = accuracy(seed=given.seed, quick=given.quick)
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        return
    for key, bar in BARS.items():
        print(f"{key:12} {found[key]:8.3f}   bar {bar}")


if __name__ == "__main__":
    main()
