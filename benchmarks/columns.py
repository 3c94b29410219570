"""Which columns drifted: recall, false alarms, sizes, shifted cells and speed of the default plan.

    python benchmarks/columns.py [--json] [--seed S] [--quick]
    python benchmarks/columns.py --read FILE [--json]

Tables of 20 and 100 columns of 12 uneven categories, whose columns and records are independent or
alike (`columns_worlds.py`). Plans are made as a user makes them; thresholds and the sizes of the
noise are those of the round, and the noise itself is numpy's, not private. Beside it stand
evidently's verdicts on the raw data, if it is installed. `--seed` changes all that is random, and
`bars` says what holds. About a quarter of an hour on two cores.
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

from columns_measures import Effort, measure_columns, measure_speed
from columns_rivals import measure_rivals
from columns_tables import TABLES, bars
from columns_worlds import WORLDS

# columns, records, epsilon, nats
CASES = ((20, 40_295, 1.0, 0.01), (20, 5_000, 1.0, 0.05), (100, 40_295, 1.0, 0.05))
MORE = ((20, 40_295, 0.1, 0.05),)
QUICK = {"references": 4, "populations": 25, "sized": 2, "raw": 2, "repeats": 1}
Task = tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]


def tasks(*, quick: bool) -> Iterator[Task]:
    """Everything that takes long: the function and its arguments."""
    for world in WORLDS:
        yield rivals_beside, (world,)
        for case in CASES if quick else (*CASES, *MORE):
            yield measure_columns, (world, *case)


def rivals_beside(effort: Effort, world: str) -> dict[str, Any]:
    """Rows of `evidently`, and notes on what is missing."""
    notes: list[str] = []
    return {"evidently": measure_rivals(effort, world, notes), "notes": notes}


def measure(effort: Effort, *, quick: bool, workers: int) -> dict[str, Any]:
    """All tables, in the order of the tasks, whichever was ready first."""
    speed = measure_speed(effort)  # first and alone: nothing else may take its time
    listed, found, begun = list(tasks(quick=quick)), {}, time.monotonic()
    for number, tables in run(effort, listed, workers):
        found[number] = tables
        function, arguments = listed[number]
        print(
            f"[{len(found)} of {len(listed)}, {time.monotonic() - begun:.0f} s] "
            f"{function.__name__}: {', '.join(map(str, arguments))}",
            file=sys.stderr,
            flush=True,
        )
    result: dict[str, Any] = {"seed": effort.seed, "quick": quick}
    for name in ("cases", "cells", "evidently", "notes"):
        rows = [row for number in sorted(found) for row in found[number].get(name, [])]
        result[name] = sorted(set(rows)) if name == "notes" else rows
    result["speed"] = speed
    result["bars"] = bars(result)
    return result


def run(effort: Effort, listed: list[Task], workers: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and tables of every task, as they are ready; one worker is this process."""
    if workers == 1:
        for number, (function, arguments) in enumerate(listed):
            yield number, function(effort, *arguments)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = {
            pool.submit(function, effort, *arguments): number
            for number, (function, arguments) in enumerate(listed)
        }
        for ready in as_completed(running):
            yield running[ready], ready.result()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures or reads, then prints tables or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--quick", action="store_true", help="a small part, in two minutes")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--read", type=Path, help="the file of an earlier --json instead")
    options = parser.parse_args(arguments)
    if options.read:
        result = json.loads(options.read.read_text(encoding="utf-8"))
        result["bars"] = bars(result)
    else:
        effort = Effort(seed=options.seed, **(QUICK if options.quick else {}))
        result = measure(effort, quick=options.quick, workers=options.workers)
    if options.json:
        print(json.dumps(result, indent=1))
        return
    for name, table in TABLES.items():
        print(f"{name}\n\n{table(result)}")
    for note in result["notes"]:
        print(f"note: {note}")


if __name__ == "__main__":
    main()
