"""Intake of several collectors of one server behind nginx, which passes TLS through.

    python benchmarks/servers_balanced.py [--collectors N] [--reports R]

Prints reports that are acknowledged in a second, each on disk before, and CPU time per report of
all collectors and of nginx: of one collector without nginx, of one behind it, of N behind it.
Reports have 421 cells, x25519, and two processes on the same machine send them over connections
that are kept (`kept`) or one each (`fresh`). It needs nginx with its stream module, and listens on
the loopback address only. It fails if a report was acknowledged and is not on disk. It is not part
of `make results`: few machines have nginx.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from servers import cpu_seconds, intake_seconds, make_homes, messages

MODULE = "/usr/lib/nginx/modules/ngx_stream_module.so"
CONFIG = """\
load_module {module};
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
stream {{
  upstream collectors {{ {servers} }}
  server {{ listen 127.0.0.1:{port}; proxy_pass collectors; }}
}}
"""


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def running(words: list[str], port: int) -> Iterator[int]:
    """A process that listens on a port; its id."""
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def nginx(folder: Path, ports: list[int], port: int) -> list[str]:
    """The command that passes connections on to these ports, in turn."""
    path, servers = folder / "nginx.conf", " ".join(f"server 127.0.0.1:{p};" for p in ports)
    path.write_text(CONFIG.format(module=MODULE, folder=folder, servers=servers, port=port))
    return [shutil.which("nginx") or "nginx", "-c", str(path), "-p", str(folder)]


def children(process: int) -> list[int]:
    """Of a process, and itself."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *map(int, listed)]


def measure(collectors: int, reports: int, *, balanced: bool) -> dict[str, Any]:
    """Intake of so many collectors of server 2."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as name, ExitStack() as stack:
        folder = Path(name)
        homes, signed = make_homes(folder, "x25519")
        home, ports, workers = homes[1], list[int](), list[int]()
        for letter in "abcdefgh"[:collectors]:
            ports.append(free_port())
            words = [sys.executable, "-m", "fedprikl", "server", "run", str(home.folder)]
            words += ["--host", "127.0.0.1", "--port", str(ports[-1]), "--collector", letter]
            workers.append(stack.enter_context(running(words, ports[-1])))
        port, passing = ports[0], list[int]()
        if balanced:
            port = free_port()
            passing = children(stack.enter_context(running(nginx(folder, ports, port), port)))
        found: dict[str, Any] = {"collectors": collectors, "balanced": balanced}
        for kind in ("kept", "fresh"):
            size = reports if kind == "kept" else reports // 5
            bodies = list(messages(signed, 2, size))
            before = [sum(map(cpu_seconds, each)) for each in (workers, passing)]
            seconds = intake_seconds(home, port, bodies, fresh=kind == "fresh")
            after = [sum(map(cpu_seconds, each)) for each in (workers, passing)]
            own, between = (1000 * (b - a) / size for a, b in zip(before, after, strict=True))
            found[kind] = {"per_second": size / seconds, "cpu_ms": own, "nginx_cpu_ms": between}
        intakes = home.intakes()
        held = [sum(each.held().values()) for each in intakes]
        for each in intakes:
            each.close()
        if sum(held) != reports + reports // 5:
            raise RuntimeError(f"Reports are missing: {held} are held.")
    return found | {"held": held}


def main() -> None:
    """Measures one collector alone, behind nginx, and several behind it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--collectors", type=int, default=2)
    parser.add_argument("--reports", type=int, default=10_000)
    given = parser.parse_args()
    rows = [
        measure(1, given.reports, balanced=False),
        measure(1, given.reports, balanced=True),
        measure(given.collectors, given.reports, balanced=True),
    ]
    print(f"load {os.getloadavg()[0]:.1f}")
    for row in rows:
        told = ", ".join(
            f"{kind}: {row[kind]['per_second']:,.0f} per second, {row[kind]['cpu_ms']:.2f} + "
            f"{row[kind]['nginx_cpu_ms']:.2f} ms"
            for kind in ("kept", "fresh")
        )
        print(f"{row['collectors']} collectors, nginx {row['balanced']}: {told}; {row['held']}")


if __name__ == "__main__":
    main()
