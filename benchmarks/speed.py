"""How fast the planner, a verdict and a share of noise are; and how long users wait.

    python benchmarks/speed.py [--json] [--cells 65536]

Ratios that a busy machine keeps: CPU seconds, the best of three, over those of sorting two million
numbers on the same machine at the same time. `growth` is the planner's time over its time on a
sixteenth of the cells. `waits` are CPU seconds and megabytes of whole processes (`waits.py`).
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from waits import waits

from fedprikl import Reference
from fedprikl.estimation import BatchCounts, trusted_aggregator
from fedprikl.planning.planner import plan_round
from fedprikl.privacy import SecureNoise, SharedCounts, calibrate
from fedprikl.reference import distinct_points

REPEATS = 3


def best(task: Callable[[], object]) -> float:
    """CPU seconds."""
    took = []
    for _ in range(REPEATS):
        start = time.process_time()
        task()
        took.append(time.process_time() - start)
    return min(took)


def zipf(cells: int) -> Any:
    """Probabilities that fall as 1 / rank."""
    mass = 1 / np.arange(1.0, cells + 1)
    return mass / mass.sum()


def planner(cells: int) -> float:
    """A plan of a million records; each time of another domain, as plans are cached."""
    references = iter([Reference.from_probabilities(zipf(cells - less)) for less in range(REPEATS)])

    def plan() -> None:
        _ = plan_round(next(references), clients=10_000, records=10**6, epsilon=1.0).to_dict()

    return best(plan)


def verdict(cells: int) -> float:
    """500 asked cells, a million records."""
    rng, pi = np.random.default_rng(1), zipf(cells)
    points = distinct_points(pi, 500, rng=rng)
    counts = BatchCounts(points, rng.multinomial(10**6, pi)[points.cells], np.array([10**6]))
    estimate = trusted_aggregator(counts, epsilon=1.0)
    return best(estimate.verdict)


def share() -> float:
    """A thousand shares of 500 counts."""
    noise, source = calibrate(SharedCounts(shares=2800), epsilon=1.0, delta=1e-6), SecureNoise()
    return best(lambda: [noise.draw_share(500, source) for _ in range(1000)])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--cells", type=int, default=2**16)
    options = parser.parse_args()
    numbers = np.random.default_rng(0).random(2_000_000)
    unit = best(lambda: np.sort(numbers))
    whole = planner(options.cells)
    found = {
        "cells": options.cells,
        "unit_seconds": round(unit, 3),
        "planner": round(whole / unit, 2),
        "growth": round(whole / planner(options.cells // 16), 2),
        "verdict": round(verdict(options.cells) / unit, 2),
        "thousand_shares": round(share() / unit, 2),
        "waits": waits(),
    }
    if options.json:
        print(json.dumps(found))
        return
    print("  ".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
