"""Runs every benchmark with a fresh seed, and writes the page of results: `make results`.

    python benchmarks/everything.py [--quick] [--seed S] [--data DIR] [--page] [name ...]

Each run leaves `results/NAME.json`: what was run (command, commit, seed, processor, versions, time)
and what it printed (`result`), or why there is nothing (`failed`). `docs/results.md` is made of
these files alone, with `--page` without running anything. Without names all are run; `--quick`
takes a small part of each, in a quarter of an hour on two cores. DIR has the digits that some need.
"""

import argparse
import json
import os
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from results_page import RESULTS, ROOT, write_page

LIBRARIES = ("fedprikl", "numpy", "scipy", "opendp", "dp-accounting", "cryptography")


@dataclass(frozen=True)
class Run:
    """A benchmark: what it is called with, and with `--quick`."""

    full: str = ""
    quick: str = ""
    seeded: bool = True  # False: it measures time, which depends on no seed
    data: str = ""  # the digits are "needed", or "used" where they are there
    json: str = "--json"


# The quickest first.
RUNS: dict[str, Run] = {
    "files": Run("--files 4000", "--files 500", seeded=False),
    "speed": Run("", "--cells 16384", seeded=False),
    "report_cost": Run(seeded=False),
    "secure_sum": Run("", "--quick", seeded=False),
    "noise_in_shares": Run("", "--clients 1000 --pairs 6"),
    "federation": Run("", "--clients 500", seeded=False),
    "false_alarms": Run("", "--repetitions 40"),
    "intervals": Run("", "--releases 60 --thin 97", json="--json {out}"),
    "columns": Run("", "--quick"),
    "clients": Run("", "--quick", data="used"),
    "series": Run("", "--quick"),
    "power": Run("--evening --share 0.25", "--quick", data="used"),
    "servers": Run("--million", "--quick", seeded=False),
    "servers_answer": Run(seeded=False),
    "servers_accuracy": Run("", "--quick"),
    "relay": Run("", "--polls 100", seeded=False),
    "flower": Run("", "--clients 5", seeded=False),
    "accuracy": Run("", "--quick --repetitions 1", data="needed"),
    "ablation": Run("", "--repetitions 1", data="needed"),
}


def command_of(name: str, *, quick: bool, seed: int, data: Path | None, out: str) -> list[str]:
    """The words after `python`."""
    run = RUNS[name]
    words = [f"benchmarks/{name}.py", *run.json.format(out=out).split()]
    words += (run.quick if quick else run.full).split()
    words += ["--seed", str(seed)] if run.seeded else []
    return words + (["--data", str(data)] if run.data and data else [])


def measure(name: str, *, quick: bool, seed: int, data: Path | None) -> dict[str, Any]:
    """What one benchmark found, with all that is needed to find it again."""
    record: dict[str, Any] = {
        "quick": quick,
        "seed": seed if RUNS[name].seeded else None,
        "commit": _git("rev-parse", "HEAD") + ("" if not _git("status", "-s", "src") else " +"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "versions": {"python": platform.python_version()} | {n: version(n) for n in LIBRARIES},
    }
    if RUNS[name].data == "needed" and data is None:
        return record | {"failed": "It needs the digits: `make results DATA=folder`."}
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = command_of(name, quick=quick, seed=seed, data=data, out=out.name)
        shown = [w for w in words if w != out.name]
        record["command"] = " ".join(["python", *shown]).replace(f"--data {data}", "--data DIR")
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603  our own scripts
            [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        record["seconds"] = round(time.monotonic() - began, 1)
        text = Path(out.name).read_text() if "{out}" in RUNS[name].json else done.stdout
    if done.returncode or not text.strip():
        last = (done.stderr.strip() or "nothing was printed").splitlines()[-1]
        return record | {"failed": last[:300]}
    return record | {"result": json.loads(text)}


def processor() -> str:
    """Its name, and how many cores this process may use."""
    names = (
        [
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ]
        if Path("/proc/cpuinfo").exists()
        else []
    )
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def _git(*words: str) -> str:
    line = ["git", *words]
    return subprocess.run(  # noqa: S603
        line, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def main() -> None:
    """Measures, and writes results and page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help="all, if none is given")
    parser.add_argument("--quick", action="store_true", help="a small part of each")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="default: fresh")
    parser.add_argument("--data", type=Path, help="folder with the digits")
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - RUNS.keys()):
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(RUNS)}")
    RESULTS.mkdir(exist_ok=True)
    for name in [] if options.page else options.names or RUNS:
        found = measure(name, quick=options.quick, seed=options.seed, data=options.data)
        (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        told = found.get("failed") or f"{found['seconds']:.0f} s"
        print(f"{name}: {told}", file=sys.stderr, flush=True)
    write_page()


if __name__ == "__main__":
    main()
