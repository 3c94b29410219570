"""How many mistakes in the core the tests notice: `make mutants`.

    python -m tests.mutants.run [--sample 20] [--seed text] [module ...]

Each mutant runs in a copy of the repository, with the tests that its module is about (core.json,
the quickest first). It is killed if one of them fails, or if they take five times as long as
without it. A survivor is a mistake that no test notices, unless reasons.json says why it is none:
then it is not counted. Results are in results/mutants.json.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
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
CORE: dict[str, list[str]] = json.loads(Path(__file__).with_name("core.json").read_text())


@dataclass(frozen=True)
class Workshop:
    """A copy of the repository in which one module at a time is broken."""

    folder: Path

    def tests_of(self, module: str) -> list[str]:
        """Its own examples, and the tests that are about it."""
        return [
            f"src/fedprikl/{module}",
            *(f"tests/{name}.py" for name in CORE[module]),
        ]

    def passes(self, module: str, timeout: float) -> bool:
        """Whether all tests of a module pass, in time."""
        line = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        line += ["-m", "not validation", "-W", "ignore", *self.tests_of(module)]
        known = {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        known |= {
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
        }
        process = subprocess.Popen(
            line,
            cwd=self.folder,
            env=os.environ | known,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

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
    if not workshop.passes(module, 1800):
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
    options.add_argument("--sample", type=int, default=20, help="mutants per module")
    options.add_argument("--seed", default="1")
    chosen = options.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results = (
        known if known.get("seed") == chosen.seed and known.get("sample") == chosen.sample else {}
    )
    results |= {"seed": chosen.seed, "sample": chosen.sample, "bar": BAR}
    with tempfile.TemporaryDirectory() as folder:
        left_out = shutil.ignore_patterns(".*", "__pycache__", "_build", "dist")
        shutil.copytree(ROOT, Path(folder, "copy"), ignore=left_out)
        for module in chosen.modules:
            results.setdefault("modules", {})[module] = judge(
                Workshop(Path(folder, "copy")), module, chosen.sample, chosen.seed
            )
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    low = [name for name, each in results["modules"].items() if each["share"] < BAR]
    if low:
        raise SystemExit(f"Fewer than {BAR:.0%} of the mutants were killed in {', '.join(low)}.")


if __name__ == "__main__":
    main()
