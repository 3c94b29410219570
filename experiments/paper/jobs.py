"""Runs experiments in small units, over several processes, and can be stopped and resumed."""

import argparse
import csv
import hashlib
import importlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.paper.world import HERE, World, find_world, results_folder

Unit = tuple[int, ...]
Document = dict[str, Any]
CACHE = HERE / ".cache"


class Job(Protocol):
    """An experiment: independent units of work, and how their results become a document."""

    name: str

    def units(self) -> list[Unit]:
        """Small pieces of work that depend on nothing but the world."""
        ...

    def run(self, world: World, unit: Unit) -> Any:
        """The result of one unit, as plain values."""
        ...

    def collect(self, world: World, parts: dict[Unit, Any]) -> Document:
        """All results together; `rows` is the table."""
        ...

    def draw(self, document: Document, folder: Path) -> None:
        """The figures of the document, if any."""
        ...


def load_job(module: str) -> Job:
    """The job of `experiments/paper/<module>.py`."""
    job: Job = importlib.import_module(f"experiments.paper.{module}").JOB
    return job


class Runner:
    """Runs the missing units of some jobs and writes their results."""

    def __init__(self, world: World, *, processes: int, made_up: bool) -> None:
        self._world, self._processes, self._made_up = world, processes, made_up
        record = world.record()
        key = json.dumps([record["data"]["sha256"], record["seed"], record["source_sha256"]])
        self._cache = CACHE / hashlib.sha256(key.encode()).hexdigest()[:12]
        self.folder = results_folder(real=world.digits.real)
        self.folder.mkdir(exist_ok=True)

    def run(self, modules: Sequence[str]) -> None:
        """Everything that has not been run yet, then documents and figures."""
        work = [(m, unit) for m in modules for unit in load_job(m).units()]
        missing = [(m, unit) for m, unit in work if not self._path(m, unit).exists()]
        with _progress() as progress:
            bar = progress.add_task(
                "experiments", total=len(work), completed=len(work) - len(missing)
            )
            for module, unit, result in self._results(missing):
                self._save(self._path(module, unit), result)
                progress.update(bar, advance=1, description=module)
        for module in modules:
            self._finish(module)

    def _results(self, work: list[tuple[str, Unit]]) -> Iterator[tuple[str, Unit, Any]]:
        if self._processes == 1 or len(work) < 2:
            for module, unit in work:
                yield module, unit, timed(self._world, module, unit)
            return
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self._processes, spawn, _start, (self._made_up,)) as pool:
            running = {pool.submit(_in_worker, m, unit): (m, unit) for m, unit in work}
            for done in as_completed(running):
                yield *running[done], done.result()

    def _finish(self, module: str) -> None:
        job = load_job(module)
        saved = {unit: json.loads(self._path(module, unit).read_text()) for unit in job.units()}
        document = job.collect(self._world, {unit: part["result"] for unit, part in saved.items()})
        seconds = sum(part["seconds"] for part in saved.values())
        record = self._world.record() | {"seconds": round(seconds, 1), "units": len(saved)}
        record["command"] = f"python -m experiments.paper.{module}"
        document = {"name": job.name, "record": record} | document
        write_document(document, self.folder)
        job.draw(document, self.folder)

    def _path(self, module: str, unit: Unit) -> Path:
        return self._cache / module / f"{'-'.join(map(str, unit))}.json"

    @staticmethod
    def _save(path: Path, result: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(result))
        partial.replace(path)  # whole or not at all


def timed(world: World, module: str, unit: Unit) -> Document:
    """A unit's result and its CPU seconds."""
    start = time.process_time()
    result = load_job(module).run(world, unit)
    return {"result": result, "seconds": time.process_time() - start}


def write_document(document: Document, folder: Path) -> None:
    """As JSON with everything, and the table as CSV."""
    path = folder / f"{document['name']}.json"
    path.write_text(json.dumps(shortened(document), indent=1) + "\n", encoding="utf-8")
    rows = shortened(document["rows"])
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / f"{document['name']}.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, names)
        table.writeheader()
        for row in rows:
            flat = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()}
            table.writerow(flat)


def shortened(value: Any) -> Any:
    """Floats to six significant digits, infinities as None."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    return value


def main(*modules: str) -> Path:
    """The command line of every script here; returns the folder of the results."""
    parser = argparse.ArgumentParser(description=f"Regenerates {', '.join(modules)}.")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--made-up", action="store_true", help="ignore real data, if there is any")
    options = parser.parse_args()
    world, note = find_world(made_up=options.made_up), Console(stderr=True, highlight=False).print
    digits = world.digits
    note(f"Data: {digits.name}: {len(digits):,} images, {digits.writers:,} writers.")
    if not digits.real:
        note("No real data is used (name its folder in FEDPRIKL_DATA); every figure says so.")
    start = time.perf_counter()
    runner = Runner(world, processes=options.jobs, made_up=options.made_up)
    runner.run(modules)
    note(f"Results in {runner.folder.name}/, {time.perf_counter() - start:.0f} s.")
    return runner.folder


_WORLD: list[World] = []  # of this worker process


def _start(made_up: bool) -> None:
    _WORLD.append(find_world(made_up=made_up))


def _in_worker(module: str, unit: Unit) -> Document:
    return timed(_WORLD[0], module, unit)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
    )
