"""What privacy costs: drifts found, errors, false alarms, coverage and speed of the default plan.

    python benchmarks/power.py [--json] [--seed S] [--quick] [--data DIR]
    python benchmarks/power.py --read FILE [--json] [--write-docs]

Beside a chi-square test of the raw counts, a textbook noisy histogram and the previous default. All
numbers come from simulated populations and from plans made as a user makes them; `--seed` changes
all that is random. DIR holds `femnist_digits.npz` and `nist_digit_owners.npz`; without it there
are no real writers and digits. `bars` says what holds. An hour or more on two cores.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from power_measures import (
    Effort,
    coverage_cases,
    measure_alarms,
    measure_coverage,
    measure_errors,
    measure_power,
    measure_speed,
)
from power_tables import TABLES, bars, write_docs
from power_worlds import DOMAINS

EPSILONS = (1.0, 0.1)
POWER_SIZES = tuple((k, n) for k in (30, 62, 250) for n in (720, 5_000, 40_000 + 10_000 * (k < 99)))
ERROR_SIZES = tuple((k, n) for k in (10, 30, 62, 250) for n in (720, 5_000, 50_000, 400_000))
TRUSTS = ("aggregator", "none")
SPEED_CELLS = (250, 65_536)
QUICK = {
    "powers": 300,
    "errors": 10,
    "rounds": 4,
    "populations": 75,
    "splits": 10,
    "coverages": 200,
    "sampled": 40,
}
Task = tuple[str, Callable[..., list[dict[str, Any]]], tuple[Any, ...]]


def tasks(effort: Effort, *, quick: bool) -> Iterator[Task]:
    """Everything that is measured: the table it belongs to, the function, its arguments."""
    domains = DOMAINS[:1] if quick else DOMAINS
    powers = [(30, 720), (30, 5_000), (62, 50_000)] if quick else POWER_SIZES
    errors = [(30, 720), (62, 5_000), (62, 50_000)] if quick else ERROR_SIZES
    worlds = ["lognormal", "flights"]
    if effort.data is not None:
        worlds += ["writers, one digit", "writers, all digits"]
    for trust in TRUSTS:
        for world in worlds:
            yield "alarms", measure_alarms, (world, trust)
        for case in coverage_cases(None if quick else effort.data):
            yield "coverage", measure_coverage, (case, trust)
    for name in domains:
        for epsilon in EPSILONS:
            for size in errors:
                yield "errors", measure_errors, (name, *size, epsilon)
            for size in powers:
                yield "power", measure_power, (name, *size, epsilon)


def measure(effort: Effort, *, quick: bool, workers: int) -> dict[str, Any]:
    """All tables, in the order of the tasks, whichever was ready first."""
    listed = list(tasks(effort, quick=quick))
    # Speed first and alone: nothing else may take its time.
    speed = [row for cells in SPEED_CELLS for row in measure_speed(effort, cells)]
    found: dict[int, list[dict[str, Any]]] = {}
    begun = time.monotonic()
    for number, rows in run(effort, listed, workers):
        found[number] = rows
        table, _, arguments = listed[number]
        notes(
            f"[{len(found)} of {len(listed)}, {time.monotonic() - begun:.0f} s] "
            f"{table}: {', '.join(map(str, arguments))}"
        )
    result: dict[str, Any] = {"seed": effort.seed, "quick": quick}
    for name in ("power", "errors", "alarms", "coverage"):
        numbers = [number for number, task in enumerate(listed) if task[0] == name]
        result[name] = [row for number in numbers for row in found[number]]
    result["speed"] = speed
    result["bars"] = bars(result)
    return result


def run(
    effort: Effort, listed: list[Task], workers: int
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Number and rows of every task, as they are ready; one worker is this process."""
    if workers == 1:
        for number, (_, function, arguments) in enumerate(listed):
            yield number, function(effort, *arguments)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(function, effort, *arguments): number
            for number, (_, function, arguments) in enumerate(listed)
        }
        for ready in as_completed(running):
            yield running[ready], ready.result()


def notes(text: str) -> None:
    """Progress, beside the result."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures or reads, then prints tables or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--quick", action="store_true", help="a small part, in three minutes")
    parser.add_argument("--data", type=Path, help="folder with the digits")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--read", type=Path, help="the file of an earlier --json instead")
    parser.add_argument("--write-docs", action="store_true", help="write tables into RESULTS.md")
    options = parser.parse_args(arguments)
    if options.read:
        result = json.loads(options.read.read_text(encoding="utf-8"))
        result["bars"] = bars(result)
    else:
        extent = QUICK if options.quick else {}
        effort = Effort(seed=options.seed, data=options.data, **extent)
        result = measure(effort, quick=options.quick, workers=options.workers)
    if options.write_docs:
        write_docs(result)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, table in TABLES.items():
        print(f"{name}\n\n{table(result)}")


if __name__ == "__main__":
    main()
