"""What three servers cost: a client, a server's core, its disk, and the answer.

    python benchmarks/servers.py [--json] [--quick] [--million] [--accuracy]

client_ms                CPU milliseconds of one report beyond counting (hybrid suite)
payload_bytes            bytes of its three messages
reports_per_core_second  reports that one core opens, checks and adds up (server 2, x25519);
                         `hybrid` has the same with the hybrid suite
intake_per_second        reports that one collector process takes in over HTTPS, each on disk before
                         it is acknowledged; clients run on the same machine
clients, seconds         a round in one process, from counts to answer; `ratio` is its time over
                         that of benchmarks/federation.py in the same run
growth                   CPU time per report of a server, at the end over that at the start: of a
                         collector from 10^4 to 10^5 reports over HTTPS, of the roles from 10^4 to
                         10^5, with --million to 10^6 (made-up shares, neither read nor opened)
peak_mib                 the most memory of a collector, and of a server that answers
disk_bytes               of a report at server 2 (hybrid suite)
intake_cpu_ms            CPU milliseconds of the collector for a report, on connections that are
                         kept; `fresh` has the same if each report has a connection of its own
power_ratio, kl_ratio    with --accuracy: how exact three servers are beside a trusted aggregator
                         (benchmarks/servers_accuracy.py; takes long)

The reports have 421 cells. --quick takes a tenth of everything.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import federation
import numpy as np
import report_cost
import servers_accuracy

from fedprikl.deployment.servers.home import Limits, ServerHome, Task
from fedprikl.deployment.servers.intake import Intake, Received
from fedprikl.deployment.servers.meeting import open_rows
from fedprikl.protocol import (
    AskedView,
    Budget,
    Plan,
    Question,
    Servers,
    SignedPlan,
    SigningKey,
)
from fedprikl.protocol.report import SuiteName, make_reports
from fedprikl.protocol.server_share import ID_BYTES, Ids, ServerShare
from fedprikl.reference import Reference
from fedprikl.secure_sum.line_shares import PRIME, Field

CELLS = report_cost.CELLS
CHUNK = 512
CONNECTIONS, SENDERS = 32, 2
CHALLENGE = bytes(range(32))


def make_homes(folder: Path, suite: SuiteName) -> tuple[list[ServerHome], SignedPlan]:
    """Three servers that accepted a plan of 421 cells."""
    organiser, homes = SigningKey.generate(), list[ServerHome]()
    for number in (1, 2, 3):
        homes.append(ServerHome(folder / f"{suite}{number}"))
        homes[-1].create(
            address=f"https://server{number}",
            peer=f"127.0.0.1:{number}",
            host="127.0.0.1",
            limits=Limits(organiser=organiser.public),
            days=2,
        )
    cards, reference = [home.card for home in homes], Reference.from_counts([10] * CELLS)
    plan = Plan(
        population="bench",
        reference=reference.fingerprint,
        trust="servers",
        servers=Servers(
            suite=suite,
            sealing=tuple(getattr(card, suite) for card in cards),
            signing=tuple(card.signing for card in cards),
            addresses=tuple(card.address for card in cards),
        ),
        budget=Budget(epsilon=1.0),
        views=(AskedView(points=CELLS),),
        questions=(Question(release="counts"),),
    )
    signed = SignedPlan.sign(plan, organiser)
    for home in homes:
        home.join(cards)
        home.accept(signed, reference, None)
    return homes, signed


def messages(signed: SignedPlan, number: int, size: int) -> Iterator[bytes]:
    """What so many clients send to one server."""
    counts = np.random.default_rng(0).integers(0, 50, CELLS)
    vector = np.append(counts, [0, counts.sum()])
    plan, servers = bytes.fromhex(signed.plan.fingerprint), signed.plan.servers or Servers()
    for _ in range(size):
        sent = make_reports(
            vector, plan=plan, period=0, suite=servers.suite, servers=servers.sealing
        )
        yield sent[number - 1]


def reports_per_core_second(task: Task, sent: Sequence[bytes]) -> float:
    """Reports that one core opens, checks and adds up in a second."""
    ids = b"".join(sorted(message[44:60] for message in sent))
    role = ServerShare(number=task.number, blocks=task.blocks)
    role.agree({3: role.close(ids)} if task.number != 3 else {1: role.close(ids)})
    chunks = [sent[i : i + CHUNK] for i in range(0, len(sent), CHUNK)]
    start = time.process_time()
    role.check(CHALLENGE, (open_rows(task, 0, chunk) for chunk in chunks))
    return len(sent) / (time.process_time() - start)


def disk_bytes(folder: Path, sent: Sequence[bytes]) -> float:
    """Bytes of disk that one report takes."""
    path = folder / f"disk-{len(sent[0])}.db"
    kept = Intake(path)
    kept.add([Received(bytes(32), 0, message[44:60], None, message) for message in sent])
    kept.close()
    return path.stat().st_size / len(sent)


async def _send(port: int, roots: str, queue: list[bytes], fresh: bool) -> None:
    """Reports one after the other, on one connection that is kept, or on one each."""
    context, kept = ssl.create_default_context(cafile=roots), list[Any]()
    while queue:
        body = queue.pop()
        if fresh or not kept:
            if kept:
                kept[1].close()
            kept = list(await asyncio.open_connection("127.0.0.1", port, ssl=context))
        reader, writer = kept
        head = f"POST /v1/reports HTTP/1.1\r\nHost: s\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(answer.partition(b"content-length:")[2].split()[0]))
        if b" 200 " not in answer[:20]:
            raise RuntimeError(answer.decode())
    if kept:
        kept[1].close()


def _sender(port: int, roots: str, bodies: list[bytes], fresh: bool) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(_send(port, roots, bodies, fresh))

    asyncio.run(run())


def intake_seconds(
    home: ServerHome, port: int, bodies: Sequence[bytes], *, fresh: bool = False
) -> float:
    """Until all of them are acknowledged, sent by processes of their own."""
    context, roots = multiprocessing.get_context("fork"), str(home.folder / "ca.pem")
    start = time.perf_counter()
    senders = [
        context.Process(target=_sender, args=(port, roots, list(bodies[i::SENDERS]), fresh))
        for i in range(SENDERS)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
        if sender.exitcode:
            raise RuntimeError("A report was not taken.")
    return time.perf_counter() - start


def cpu_seconds(process: int) -> float:
    """That a process has used."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def intake(folder: Path, few: int, many: int) -> dict[str, float]:
    """One collector process: reports per second, growth of the time per report, its memory."""
    homes, signed = make_homes(folder, "x25519")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "fedprikl", "server", "run", str(homes[1].folder)]
    process = subprocess.Popen(  # noqa: S603
        [*words, "--host", "127.0.0.1", "--port", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        seconds, busy, done = list[float](), list[float](), 0
        while done < many:  # in parts: all of them would not fit into memory
            bodies, before = list(messages(signed, 2, few)), cpu_seconds(process.pid)
            seconds.append(intake_seconds(homes[1], port, bodies) / few)
            busy.append((cpu_seconds(process.pid) - before) / few)
            done += few
        bodies, before = list(messages(signed, 2, few // 10)), cpu_seconds(process.pid)
        intake_seconds(homes[1], port, bodies, fresh=True)
        alone = (cpu_seconds(process.pid) - before) / len(bodies)
        done += len(bodies)
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    (stored,) = homes[1].intakes()
    if list(stored.held().values()) != [done]:
        raise RuntimeError("Reports are missing.")
    return {
        "per_second": 1 / float(np.median(seconds)),
        "growth": busy[-1] / busy[0],
        "cpu_ms": 1000 * float(np.median(busy)),
        "fresh": 1000 * alone,
        "peak_mib": peak,
        "reports": done,
    }


def _rows(size: int) -> Iterator[tuple[Ids, Field]]:
    """Shares as they are after opening: random ids, random numbers."""
    rng = np.random.default_rng(1)
    for start in range(0, size, CHUNK):
        some = min(CHUNK, size - start)
        ids = np.frombuffer(rng.bytes(ID_BYTES * some), dtype=f"S{ID_BYTES}")
        yield ids, rng.integers(0, PRIME, (some, CELLS + 3), dtype=np.uint64)


def role_seconds(size: int) -> float:
    """Per report: agreement on ids, checks, sum and what is left out, at one server."""
    ids = b"".join(chunk.tobytes() for chunk, _ in _rows(size))
    rows = [part for part, _ in zip(_rows(4 * CHUNK), range(4), strict=False)]
    role = ServerShare(number=2, blocks=(CELLS + 1,))
    start = time.process_time()
    told = role.close(ids)
    role.agree({1: told, 3: told})
    chunks = (ids[i : i + ID_BYTES * CHUNK] for i in range(0, len(ids), ID_BYTES * CHUNK))
    shares = (
        (np.frombuffer(some, dtype=f"S{ID_BYTES}"), rows[n % 4][1][: len(some) // ID_BYTES])
        for n, some in enumerate(chunks)
    )
    checks = role.check(CHALLENGE, shares)
    role.settle({1: checks, 3: checks})
    return (time.process_time() - start) / size


def _roles(sizes: Sequence[int]) -> dict[str, float]:
    seconds = [role_seconds(size) for size in sizes]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"growth": seconds[-1] / seconds[0], "peak_mib": peak}


def apart(function: Callable[..., Any], *words: Any) -> Any:
    """What a function finds in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, words)


def measured(*, tenth: bool, million: bool) -> dict[str, Any]:
    """All numbers."""
    part = 10 if tenth else 1
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name:
        speed, disk = {}, {}
        for suite in report_cost.PER_SERVER:
            homes, signed = make_homes(Path(name), suite)  # type: ignore[arg-type]
            for number in (1, 2):
                (task,) = homes[number - 1].tasks()
                sent = list(messages(signed, number, 4000 // part))
                speed[suite, number] = reports_per_core_second(task, sent)
                disk[suite, number] = disk_bytes(Path(name), sent)
        taken = intake(Path(name, "intake"), 10_000 // part, 100_000 // part)
    roles = apart(_roles, [10_000 // part, (1_000_000 if million else 100_000) // part])
    rng, clients = np.random.default_rng(0), 3579 // part
    seconds = federation.one_round(clients, rng, servers=True)["seconds"]
    beside = federation.one_round(clients, rng)["seconds"]
    return {
        "cells": CELLS,
        "client_ms": report_cost.client_ms(),
        "payload_bytes": report_cost.payload_bytes(),
        "reports_per_core_second": speed["x25519", 2],
        "hybrid": speed["hybrid", 2],
        "server_1": speed["x25519", 1],
        "disk_bytes": disk["hybrid", 2],
        "intake_per_second": taken["per_second"],
        "intake_cpu_ms": taken["cpu_ms"],
        "fresh": taken["fresh"],
        "clients": clients,
        "seconds": seconds,
        "ratio": seconds / beside,
        "growth": max(taken["growth"], roles["growth"]),
        "growth_intake": taken["growth"],
        "growth_roles": roles["growth"],
        "peak_mib": max(taken["peak_mib"], roles["peak_mib"]),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--million", action="store_true", help="roles up to 10^6 reports")
    parser.add_argument("--accuracy", action="store_true", help="beside a trusted aggregator too")
    options = parser.parse_args()
    found = measured(tenth=options.quick, million=options.million)
    if options.accuracy:
        exact = servers_accuracy.accuracy(quick=options.quick)
        found |= {name: exact[name] for name in ("power_ratio", "kl_ratio")}
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:26} {value:12,.3f}" if isinstance(value, float) else f"{name:26} {value:12,}")


if __name__ == "__main__":
    main()
