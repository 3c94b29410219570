"""A round over Flower on loopback: wall time, CPU per message, and who answered in each step.

    python benchmarks/flower.py [--json] [--clients 50]

Every client is a `fedprikl site` of its own, with TLS and node authentication, as in
docs/deployment.md. `seconds` is the wall time of `fedprikl federate`, from the command to the
verified release. `cpu_per_message` is the CPU time that all processes of all sites took meanwhile
per answer, beyond what they take when nothing is asked: `idle_cpu`, CPU seconds per site and
second, mostly polling. `cpu_per_message_and_polling` includes that. `relay_cpu` is the CPU time of
the relay, for all messages: no run on a machine is shorter. Counting and crypto are
measured in this process on the same files, with the same plan. Needs about 0.25 GB of memory per
client.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from shown import show

sys.path.insert(0, str(Path(__file__).parents[1]))  # deploy/ is not part of the package

from deploy.loopback import Loopback
from deploy.small_world import node_configs, set_up_aggregator, write_sites

from fedprikl.deployment.settings import Home
from fedprikl.protocol import Client, SealingKey, Server, SignedPlan, SigningKey, Step, run_round
from fedprikl.protocol.keys import Address, seal_answer
from fedprikl.records import open_records
from fedprikl.reference import Reference

ROWS = 1000
SETTLE = 20.0  # seconds


def over_flower(folder: Path, files: list[Path]) -> dict[str, Any]:
    """A real round: its wall time, the sites' CPU time, seconds and answers of each step."""
    clients = len(files)
    # The sites share their cores with a relay that must keep time.
    with Loopback(folder, niceness=15) as federation:
        set_up_aggregator(federation.aggregator, folder / "public.csv", dropout=0.1)
        shutil.copy(federation.aggregator / "plan.json", folder / "plan.json")
        federation.start_relay()
        federation.add_sites(node_configs(federation.aggregator, files))
        federation.await_sites()
        idle = idle_cpu(federation)
        cpu, relay, start = federation.cpu("site"), federation.cpu("superlink"), time.monotonic()
        result = federation.federate(
            *("--clients", str(clients), "--wait", "600", "--step-timeout", "600"),
            *("--grace", "60", "--json"),  # all share these cores, so the last are slow
            timeout=3600,
        )
        seconds, cpu = time.monotonic() - start, federation.cpu("site") - cpu
        relay = federation.cpu("superlink") - relay
        if result.returncode:
            raise SystemExit(result.stderr)
        progress = "\n".join(json.loads(result.stdout)["progress"])
    for file in Home(federation.aggregator).refusals.glob("*.json"):
        print("lost:", *json.loads(file.read_text()).values(), sep="\n  ", file=sys.stderr)
    found = re.findall(r"^(\w+): (\d+) of \d+ answered, .* ([0-9.]+) s", progress, re.MULTILINE)
    answers = {step: int(answered) for step, answered, _ in found}
    return {
        "seconds": round(seconds, 1),
        "cpu_per_message": round((cpu - idle * seconds) / sum(answers.values()), 3),
        "cpu_per_message_and_polling": round(cpu / sum(answers.values()), 3),
        "idle_cpu": round(idle / clients, 4),
        "relay_cpu": round(relay, 1),
        "all_answered": set(answers.values()) == {clients} and len(answers) == len(Step),
        "step_answers": answers,
        "step_seconds": {step: float(seconds) for step, _, seconds in found},
    }


def idle_cpu(federation: Loopback) -> float:
    """CPU seconds per second of all sites while nothing is asked, once they have settled."""
    time.sleep(SETTLE)
    cpu, start = federation.cpu("site"), time.monotonic()
    time.sleep(SETTLE)
    return (federation.cpu("site") - cpu) / (time.monotonic() - start)


def in_process(folder: Path, files: list[Path]) -> tuple[float, float]:
    """CPU seconds of all clients' counting, and of a whole round without Flower."""
    home = Home(folder / "aggregator")
    reference = Reference.load(home.reference)
    start = time.process_time()
    held = [open_records(file).count(reference).counts for file in files]
    counting = time.process_time() - start
    members = {
        file.name: Client(each, reference, randomness=os.urandom)
        for file, each in zip(files, held, strict=True)
    }
    start = time.process_time()
    run_round(
        Server(SignedPlan.load(home.folder / "plan.json"), reference),
        members,
        key=SigningKey.generate(),
        ledger=None,
        software="benchmark",
        at=datetime.now(UTC).isoformat(),
        rng=np.random.default_rng(1),
    )
    return counting, time.process_time() - start


def sealing(messages: int = 500) -> dict[str, float]:
    """CPU milliseconds to seal a message, at the client, and to open it, at the aggregator."""
    key = SealingKey.generate()
    address = Address(
        round_id="ab" * 16, cohort=bytes(32), member=1, invitation=bytes(32), step=Step.INPUT
    )
    start = time.process_time()
    sealed = [seal_answer(bytes(1700), key.public, address) for _ in range(messages)]
    middle = time.process_time()
    for message in sealed:
        key.open(message, address)
    end = time.process_time()
    return {
        "seal_ms": round(1000 * (middle - start) / messages, 3),
        "open_ms": round(1000 * (end - middle) / messages, 3),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedprikl-") as name:
        folder = Path(name)
        files = write_sites(folder, sites=options.clients, rows=ROWS)
        measured = over_flower(folder, files)
        counting, crypto = in_process(folder, files)
    found = {
        "clients": options.clients,
        "cores": os.cpu_count() or 1,
        **measured,
        "counting_per_client": round(counting / options.clients, 4),
        "crypto_per_client": round(crypto / options.clients, 4),
        **sealing(),
    }
    show(found, as_json=options.json)


if __name__ == "__main__":
    main()
