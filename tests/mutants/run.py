"""How many mistakes in the core the tests notice: `make mutants`.

    python -m tests.mutants.run [--sample 20] [--seed text] [module ...]

Each mutant runs in a copy of the repository, with the tests that its module is about (core.json,
the quickest first). It is killed if one of them fails, or if they take five times as long as
without it. A survivor is a mistake that no test notices, unless reasons.json says why it is none:
then it is not counted. Results are in results/mutants.json, unless of another sample or seed.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.sampling import Mutant, sample

ROOT = Path(__file__).parents[2]
REASONS = Path(__file__).with_name("reasons.json")
RESULTS = ROOT / "results" / "mutants.json"
BAR = 0.95
SEED, SAMPLE = "1", 20  # of the results that are kept; others are printed, as a check
CORE: dict[str, list[str]] = json.loads(Path(__file__).with_name("core.json").read_text())


# Loaded once: what takes longer to import than most mutants live. Nothing of fedprikl, and nothing
# that starts threads (OpenDP does), which do not survive a fork.
LIBRARIES = (
    *("numpy", "scipy.optimize", "scipy.special", "scipy.stats", "mpmath", "dp_accounting.pld"),
    *("cryptography.hazmat.primitives.hpke", "hypothesis", "pytest"),
)
KNOWN = {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
KNOWN |= {"CI": "1"}  # the same examples of hypothesis each time
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Workshop:
    """A copy of the repository in which one module at a time is broken."""

    folder: Path

    def tests_of(self, module: str) -> list[str]:
        """The tests that are about it, and its own examples."""
        return [*(f"tests/{name}.py" for name in CORE[module]), f"src/fedprikl/{module}"]

    def passes(self, module: str, timeout: float, *, whole: bool = False) -> bool:
        """Whether all tests of a module pass, in time. If it is `whole`, bytecode is kept."""
        process = FORK.Process(target=self._run, args=(module, whole))
        process.start()
        process.join(timeout)
        if process.is_alive():
            os.killpg(process.pid or 0, signal.SIGKILL)
            process.join()
        return process.exitcode == 0

    def _run(self, module: str, whole: bool) -> None:
        """In a process of its own, which imports fedprikl and its tests from the copy."""
        os.setsid()
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os.chdir(self.folder)
        known = [str(self.folder), str(self.folder / "src")]
        sys.path[:] = known + [p for p in sys.path if p not in ("", str(ROOT), str(ROOT / "src"))]
        os.environ["PYTHONPATH"] = known[1]
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self.folder / "hypothesis")
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        sys.dont_write_bytecode = not whole
        line = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"]
        line += ["-m", "not validation", "-W", "ignore", *self.tests_of(module)]
        sys.exit(importlib.import_module("pytest").main(line))

    def survives(self, module: str, mutant: Mutant, timeout: float) -> bool:
        """Whether no test notices."""
        path = self.folder / "src" / "fedprikl" / module
        whole = path.read_text()
        try:
            path.write_text(mutant.text)
            return self.passes(module, timeout)
        finally:
            path.write_text(whole)


def judge(workshop: Workshop, module: str, size: int, seed: str) -> dict[str, Any]:
    """How many mutants of a module were killed, and those that were not."""
    source = (workshop.folder / "src" / "fedprikl" / module).read_text()
    reasons = json.loads(REASONS.read_text()).get(module, {})
    began = time.monotonic()
    if not workshop.passes(module, 1800, whole=True):
        raise SystemExit(f"The tests of {module} fail without any mistake in it.")
    timeout = 30 + 5 * (time.monotonic() - began)
    chosen = sample(source, size, f"{seed} {module}")
    found: dict[str, Any] = {"mutants": len(chosen), "killed": 0, "equivalent": [], "survived": []}
    for mutant in chosen:
        what = f"{mutant.line}: {mutant.name}"
        if mutant.name in reasons:
            found["equivalent"].append(f"{what} ({reasons[mutant.name]})")
        elif workshop.survives(module, mutant, timeout):
            found["survived"].append(what)
            print(f"{module}:{what} survives", flush=True)
        else:
            found["killed"] += 1
    meaningful = found["mutants"] - len(found["equivalent"])
    found["share"] = found["killed"] / meaningful if meaningful else 1.0
    print(f"{module}: {found['killed']} of {meaningful} killed, {timeout:.0f} s", flush=True)
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("modules", nargs="*", default=list(CORE))
    options.add_argument("--sample", type=int, default=SAMPLE, help="mutants per module")
    options.add_argument("--seed", default=SEED)
    chosen = options.parse_args()
    kept = chosen.seed == SEED and chosen.sample == SAMPLE
    results: dict[str, Any] = {"seed": SEED, "sample": SAMPLE, "bar": BAR, "modules": {}}
    if kept and RESULTS.exists():
        results["modules"] = json.loads(RESULTS.read_text())["modules"]
    os.environ |= KNOWN
    for name in LIBRARIES:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "_build", "dist")
        shutil.copytree(ROOT, Path(folder, "copy"), ignore=left_out)
        for module in chosen.modules:
            results["modules"][module] = judge(
                Workshop(Path(folder, "copy")), module, chosen.sample, chosen.seed
            )
            if kept:
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    low = [name for name, each in results["modules"].items() if each["share"] < BAR]
    if low:
        raise SystemExit(f"Fewer than {BAR:.0%} of the mutants were killed in {', '.join(low)}.")


if __name__ == "__main__":
    main()
