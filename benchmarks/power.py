"""What privacy costs: drifts found, errors, false alarms, coverage and speed of the default plan.

    python benchmarks/power.py [--json] [--seed S] [--quick] [--data DIR]
    python benchmarks/power.py --only alarms,power --worlds blocks,lognormal [--json]
    python benchmarks/power.py --evening --share 0.25 [--json]
    python benchmarks/power.py --read FILE[,FILE] [--json]

Beside a chi-square test of the raw counts and a textbook noisy histogram. All numbers come from
simulated populations and from plans made as a user makes them; `--seed` changes all that is random.
DIR holds `femnist_digits.npz` and `nist_digit_owners.npz`; without it there are no real writers and
digits. `bars` says what holds. Everything takes a night on two cores: parts of it are measured one
by one (`--only` tables, `--worlds` whose names begin so) and read together. `--share` measures so
much of what there is about each world, at least one case of it, drawn with the seed, and
`--evening` repeats less: with a share of 0.25 it takes an hour and a half of one core. Every row
says whether its world is one to tune on or one to check on (`split`).
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from power_measures import (
    Effort,
    coverage_cases,
    measure_alarms,
    measure_coverage,
    measure_errors,
    measure_outside,
    measure_power,
    measure_printed,
    measure_ranges,
    measure_series,
    measure_speed,
)
from power_tables import NAMES, TABLES, bars, is_empty
from power_worlds import ALARMS, WRITERS, generator

EPSILONS, TRUSTS, UNITS = (1.0, 0.1), ("aggregator", "none"), ("record", "client")
CELLS = {  # of each domain
    "lognormal": (2, 5, 10, 30, 62, 250),
    "digits": (30, 62, 250),
    "flights": (30, 62, 250),
    "bimodal": (40,),
    "zipf": (1000,),
}
GRID = tuple((name, k) for name, cells in CELLS.items() for k in cells)
SPARSE = (("lognormal", 250, 500), ("zipf", 1000, 2_000))  # two records a cell
POWER_RECORDS, ERROR_RECORDS = (720, 5_000, 50_000), (720, 5_000, 50_000, 400_000)
SERIES = ("lognormal", "lognormal, varying weeks", "clients stay", "clients change")
RANGES = 20  # tasks of random small releases
SPEED_CELLS = (250, 65_536)
QUICK = {
    "powers": 200,
    "errors": 8,
    "draws": 4,
    "rounds": 3,
    "populations": 40,
    "years": 8,
    "coverages": 40,
    "sampled": 20,
    "ranges": 100,
}
EVENING = {
    "powers": 300,
    "errors": 8,
    "draws": 4,
    "populations": 25,
    "years": 50,
    "coverages": 120,
    "sampled": 40,
}
QUICK_ALARMS = ("lognormal", "blocks, 300 ids, 60 clients", "sizes 1.5, ids")
QUICK_GRID = (("lognormal", 30, 720), ("lognormal", 62, 50_000), ("bimodal", 40, 8_000))
QUICK_OUTSIDE = (("bimodal", 40),)
OUTSIDE_RECORDS = 30_000
Task = tuple[str, Callable[..., list[dict[str, Any]]], tuple[Any, ...]]


def tasks(effort: Effort, *, quick: bool) -> Iterator[Task]:
    """Everything that is measured: the table it belongs to, the function, its arguments.

    The first argument is the world.
    """
    yield from _about_worlds(effort, quick=quick)
    yield from _about_domains(quick=quick)
    for part in range(2 if quick else RANGES):
        yield "ranges", measure_ranges, (part,)
    for cells in SPEED_CELLS:
        yield "speed", measure_speed, (cells,)


def _about_worlds(effort: Effort, *, quick: bool) -> Iterator[Task]:
    worlds = QUICK_ALARMS if quick else ALARMS if effort.data is None else (*ALARMS, *WRITERS)
    for world, trust, unit in product(worlds, TRUSTS, UNITS):
        yield "alarms", measure_alarms, (world, trust, unit)
    for world in SERIES[:1] if quick else SERIES:
        for trust in TRUSTS[:1] if world.startswith("clients") else TRUSTS:
            yield "series", measure_series, (world, trust)
    for case, trust in product(coverage_cases(None if quick else effort.data), TRUSTS):
        yield "coverage", measure_coverage, (case, trust)


def _about_domains(*, quick: bool) -> Iterator[Task]:
    errors = [*((*each, n) for each in GRID for n in ERROR_RECORDS), *SPARSE]
    powers = [*((*each, n) for each in GRID for n in POWER_RECORDS), *SPARSE]
    for epsilon in EPSILONS[:1] if quick else EPSILONS:
        for case in QUICK_GRID if quick else errors:
            yield "errors", measure_errors, (*case, epsilon)
        for case in QUICK_GRID if quick else powers:
            yield "power", measure_power, (*case, epsilon)
            yield "printed", measure_printed, (*case, epsilon)
    for name, cells in QUICK_OUTSIDE if quick else GRID:
        yield "outside", measure_outside, (name, cells, OUTSIDE_RECORDS, EPSILONS[0])


def measure(effort: Effort, listed: list[Task], *, quick: bool, workers: int) -> dict[str, Any]:
    """All tables, in the order of the tasks, whichever was ready first."""
    # Speed first and alone: nothing else may take its time.
    alone = [number for number, task in enumerate(listed) if task[0] == "speed"]
    found = {number: listed[number][1](effort, *listed[number][2]) for number in alone}
    begun = time.monotonic()
    others = [number for number in range(len(listed)) if number not in found]
    for place, rows in run(effort, [listed[number] for number in others], workers):
        found[others[place]] = rows
        table, _, arguments = listed[others[place]]
        notes(
            f"[{len(found)} of {len(listed)}, {time.monotonic() - begun:.0f} s] "
            f"{table}: {', '.join(map(str, arguments))}"
        )
    result: dict[str, Any] = {"seed": effort.seed, "quick": quick}
    for name in NAMES:
        numbers = [number for number, task in enumerate(listed) if task[0] == name]
        result[name] = [row for number in numbers for row in found[number]]
    result["bars"] = bars(result)
    return result


def read(paths: Sequence[str]) -> dict[str, Any]:
    """Results of earlier runs, together; all of one seed, or it says that they are not."""
    parts = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    seeds = sorted({part["seed"] for part in parts})
    result: dict[str, Any] = {
        "seed": seeds[0] if len(seeds) == 1 else seeds,
        "quick": any(part["quick"] for part in parts),
    }
    for name in NAMES:
        result[name] = [row for part in parts for row in part.get(name, [])]
    result["bars"] = bars(result)
    return result


def chosen(listed: Iterator[Task], only: str, worlds: str) -> list[Task]:
    """The tasks of some tables (all: ""), in worlds whose names begin so."""
    tables, begins = only.split(","), tuple(worlds.split(","))
    return [
        task
        for task in listed
        if (not only or task[0] in tables) and str(task[2][0]).startswith(begins)
    ]


def drawn(listed: list[Task], share: float, seed: int) -> list[Task]:
    """So much of each table and world, at least one task, in the order that they had.

    >>> tasks = [("errors", lambda: [], (w, n)) for w in "ab" for n in range(4)]
    >>> [task[2][0] for task in drawn(tasks, 0.25, seed=1)]
    ['a', 'b']
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (table, _, arguments) in enumerate(listed):
        groups.setdefault((table, str(arguments[0])), []).append(number)
    kept = [
        generator(seed, "share", *group).choice(of, math.ceil(share * len(of)), replace=False)
        for group, of in groups.items()
    ]
    return [listed[number] for number in sorted(np.concatenate(kept))]


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
    parser.add_argument("--quick", action="store_true", help="a small part, in four minutes")
    parser.add_argument("--evening", action="store_true", help="fewer repetitions of everything")
    parser.add_argument("--data", type=Path, help="folder with the digits")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help=f"tables, of {', '.join(NAMES)}")
    parser.add_argument("--worlds", default="", help="whose names begin so, with commas")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each world")
    parser.add_argument("--read", help="files of earlier --json instead, with commas")
    options = parser.parse_args(arguments)
    if options.read:
        result = read(options.read.split(","))
    else:
        extent = QUICK if options.quick else EVENING if options.evening else {}
        effort = Effort(seed=options.seed, data=options.data, **extent)
        listed = chosen(tasks(effort, quick=options.quick), options.only, options.worlds)
        listed = drawn(listed, options.share, options.seed)
        result = measure(effort, listed, quick=options.quick, workers=options.workers)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, table in TABLES.items():
        if not is_empty(text := table(result)):
            print(f"{name}\n\n{text}")


if __name__ == "__main__":
    main()
