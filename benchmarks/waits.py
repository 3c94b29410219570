"""Where people wait: CPU seconds and peak memory of the steps a user calls, on made-up tables.

Each step is a process of its own, as a user starts it; its time includes that of importing.
`benchmarks/speed.py --json` shows them. The package is compiled first, as pip does.
"""

import compileall
import json
import os
import sys
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import fedprikl

CARRIERS, AIRPORTS = list("ABCDEFGHIJKLMNOP"), ["EWR", "JFK", "LGA"]
FIRST, LAST = date(2027, 1, 4), date(2028, 1, 2)


def measured(*words: str) -> dict[str, float]:
    """CPU seconds and megabytes of one process, which must end well (or with drift found).

    A process begins with the largest memory of the one that starts it: here that is a small one.
    """
    with tempfile.NamedTemporaryFile() as found:
        command = [sys.executable, *words]
        starter = [sys.executable, "-S", "-E", "-c", _STARTER, found.name, *command]
        child = os.posix_spawn(sys.executable, starter, _ENVIRONMENT, file_actions=_QUIET)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) not in (0, 3):
            raise SystemExit(f"failed: {' '.join(words)[:300]}")
        seconds, kilobytes = json.load(found)
    return {"seconds": round(seconds, 2), "megabytes": round(kilobytes / 1024)}


_QUIET = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
_ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
_STARTER = """
import json, os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
with open(sys.argv[1], "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss], file)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def table(rng: np.random.Generator, rows: int, clients: int, columns: int) -> dict[str, Any]:
    """A client's id, a carrier, an airport, and numbers that depend on the client a little."""
    owner = rng.integers(clients, size=rows)
    own = rng.normal(size=clients)[owner]
    found: dict[str, Any] = {
        "id": [f"N{n:05}" for n in owner],
        "carrier": rng.choice(CARRIERS, rows).tolist(),
        "airport": rng.choice(AIRPORTS, rows).tolist(),
    }
    for n in range(columns - 2):
        found[f"number{n}"] = np.round(10 * rng.normal(size=rows) + own).astype(int).tolist()
    return found


def write(path: Path, columns: dict[str, Any]) -> None:
    """As CSV."""
    lines = map(",".join, zip(*(map(str, values) for values in columns.values()), strict=True))
    path.write_text("\n".join([",".join(columns), *lines, ""]))


def cli(*words: object) -> dict[str, float]:
    """One command."""
    return measured("-m", "fedprikl", *map(str, words))


def waits() -> dict[str, dict[str, float]]:
    """Every step by its name."""
    rng = np.random.default_rng(28)
    compileall.compile_dir(Path(fedprikl.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        os.chdir(folder)
        return {
            **fits(folder, rng),
            **files(folder, rng),
            **weeks(folder, rng),
            **whole(folder, rng),
        }


def fits(folder: Path, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """`Reference.fit` with ids; plans of ten columns."""
    write(folder / "fit.csv", table(rng, 79_000, 3695, 4))
    write(folder / "wide.csv", table(rng, 20_000, 500, 10))
    ref = folder / "wide.json"
    found = {
        "fit": cli(
            "reference", folder / "fit.csv", "-o", folder / "fit.json", "--client-column", "id"
        )
    }
    found["fit of ten columns"] = cli(
        "reference", folder / "wide.csv", "-o", ref, "--client-column", "id"
    )
    plan = ("plan", ref, "--clients", 500, "--records", 20_000, "--epsilon", 1)
    found["plan"] = cli(*plan, "-o", folder / "once.json")
    series = ("--every", "week", "--first", FIRST, "--until", LAST, "--time-column", "day")
    found["plan of weeks"] = cli(*plan, *series, "-o", folder / "weeks.json")
    return found


def files(folder: Path, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """`estimate` over 1,809 files, and over a third of them."""
    ref, found = folder / "fit.json", {}
    for number in (603, 1809):
        clients = folder / f"clients{number}"
        clients.mkdir()
        for n in range(number):
            write(clients / f"{n}.csv", table(rng, 40, 1, 4))
        plan = folder / f"plan{number}.json"
        cli("plan", ref, "--clients", number, "--records", 40 * number, "--epsilon", 1, "-o", plan)
        place = folder / f"out{number}"
        place.mkdir()
        out = ("-o", place / "release.json", "--report", place / "report.html")
        own = ("--ledger", place / "ledger.db", "--key", place / "key.pem", "--reference", ref)
        found[f"estimate of {number} files"] = cli("estimate", plan, clients, *own, *out)
    return found


def weeks(folder: Path, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """A week of 200 clients: what one more week costs."""
    ref, clients = folder / "wide.json", folder / "weekly"
    clients.mkdir()
    for n in range(200):
        columns = table(rng, 200, 1, 10)
        columns["day"] = [FIRST + timedelta(days=int(day)) for day in rng.integers(14, size=200)]
        write(clients / f"{n}.csv", columns)
    own = [ref, clients, *(folder / name for name in ("weeks.json", "w.db", "w.pem", "h.db"))]
    code = (
        "import sys, fedprikl as fk; r, c, p, l, k, h, at = sys.argv[1:]; "
        "fk.monitor(r, c, p, history=h, ledger=l, key=k, at=at)"
    )
    found = {}
    for name, day in (("first week", 8), ("second week", 15), ("nothing due", 15)):
        at = f"{FIRST + timedelta(days=day - 1)}T06:00:00+00:00"
        found[f"monitor, {name}"] = measured("-c", code, *map(str, own), at)
    return found


def whole(folder: Path, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """The README's four commands on one table of 300,000 rows with 4,000 clients."""
    place = folder / "one table"
    place.mkdir()
    write(place / "public.csv", table(rng, 300_000, 4000, 4))
    write(place / "own.csv", table(rng, 300_000, 4000, 4))
    os.chdir(place)
    return {
        "four: reference": cli(
            "reference", "public.csv", "-o", "ref.json", "--client-column", "id"
        ),
        "four: plan": cli(
            "plan", "ref.json", "--clients", 4000, "--records", 300_000, "--epsilon", 1
        ),
        "four: estimate": cli("estimate", "plan.json", "own.csv", "--client-column", "id"),
        "four: verify": cli("verify", "release.json"),
    }
