"""A full round at the paper's size: 3,579 clients, 402,953 records, 250 points, 5% dropouts.

    python benchmarks/federation.py [--json] [--clients 3579]

Real secure sums, all parties in one process. `growth` is the time per client at full size over that
at 500 clients, both measured in this run.
"""

import argparse
import json
import os
import resource
import time

import numpy as np

from fedprikl.protocol import (
    AskedView,
    Budget,
    Client,
    Plan,
    Question,
    Server,
    Servers,
    SignedPlan,
    SigningKey,
    run_round,
)
from fedprikl.reference import Reference
from fedprikl.secure_sum import Leaves

CELLS, POINTS, DROPOUT, RECORDS_PER_CLIENT = 4096, 250, 0.05, 402_953 / 3_579


def one_round(clients: int, rng: np.random.Generator, *, servers: bool = False) -> dict[str, float]:
    """Seconds of a round (counting and set-up excluded), and what it was made of.

    `servers`: three of them, in place of a trusted aggregator.
    """
    mass = np.append(1 / np.arange(1.0, CELLS + 1), 0.0)
    reference = Reference.from_probabilities(mass[:-1] / mass.sum())
    sizes = rng.multinomial(round(clients * RECORDS_PER_CLIENT), np.full(clients, 1 / clients))
    draw = np.cumsum(mass) / mass.sum()
    members = {}
    for i, size in enumerate(sizes):
        cells = np.searchsorted(draw, rng.random(size), side="right")
        held = np.bincount(cells, minlength=CELLS + 1).astype(np.int32)
        members[f"c{i}"] = Client(held, reference, randomness=os.urandom)
    names = sorted(members)
    leavers = rng.choice(names, int(DROPOUT * clients), replace=False)
    leaves = {str(name): Leaves(int(rng.integers(len(Leaves)))) for name in leavers}
    plan = Plan(
        population="bench",
        reference=reference.fingerprint,
        budget=Budget(epsilon=1.0),
        views=(AskedView(points=POINTS),),
        questions=(Question(release="counts") if servers else Question(),),
        trust="servers" if servers else "aggregator",
        servers=Servers() if servers else None,
    )
    start = time.perf_counter()
    result = run_round(
        Server(SignedPlan(plan), reference),
        members,
        key=SigningKey.generate(),
        ledger=None,
        software="benchmark",
        at="2030-01-01T00:00:00+00:00",
        rng=rng,
        leaves=leaves,
    )
    return {
        "seconds": time.perf_counter() - start,
        "records": int(sizes.sum()),
        "included": sum(outcome.included for outcome in result.release.cohorts),
        "dropouts": len(leaves),
        "cohorts_dropped": sum(bool(outcome.reason) for outcome in result.release.cohorts),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--clients", type=int, default=3579)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    small = one_round(min(500, options.clients), rng)
    full = one_round(options.clients, rng)
    growth = (full["seconds"] / options.clients) / (small["seconds"] / min(500, options.clients))
    document = {
        "clients": options.clients,
        **full,
        "growth": round(growth, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    if options.json:
        print(json.dumps(document))
        return
    for name, value in document.items():
        print(f"{name:16} {value:,.3f}" if isinstance(value, float) else f"{name:16} {value:,}")


if __name__ == "__main__":
    main()
