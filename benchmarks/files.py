"""How long it takes to count the CSV files of many clients, and how much memory.

    python benchmarks/files.py --files 4000 --rows 50 --json

Writes the files to a temporary folder and counts them as `fedprikl estimate` does. The time is the
processor time of the counting alone, `peak_mib` the largest memory of the whole process.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from fedprikl.records import count_all, fit_reference


def write_rows(path: Path, rng: np.random.Generator, rows: int) -> None:
    """Flights, more or less: a carrier, a delay with gaps, a day."""
    carriers = rng.choice(["AA", "B6", "DL", "EV", "UA", "WN"], rows)
    delays = rng.normal(10, 30, rows).round(1)
    days = rng.integers(1, 29, rows)
    lines = [
        f"{carrier},{'NA' if delay > 60 else delay},2013-01-{day:02}"
        for carrier, delay, day in zip(carriers, delays, days, strict=True)
    ]
    path.write_text("\n".join(["carrier,delay,day", *lines, ""]), encoding="utf-8")


def measure(files: int, rows: int) -> dict[str, float]:
    """Seconds of processor time and MiB to count so many files of so many rows."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder, "public.csv"), rng, 20_000)
        reference = fit_reference(Path(folder, "public.csv"))
        sources = {f"client{i}": Path(folder, f"client{i}.csv") for i in range(files)}
        for path in sources.values():
            write_rows(path, rng, rows)
        start = time.process_time()
        counted = count_all(sources, reference)
        seconds = time.process_time() - start
    if sum(held.total for held in counted.values()) != files * rows:
        raise SystemExit("records were lost")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"files": files, "rows": rows, "cpu_seconds": round(seconds, 3), "peak_mib": round(peak)}


def main() -> None:
    """Measures once and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=4000)
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    found = measure(options.files, options.rows)
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
