"""A collector that is killed at any moment: what it acknowledged is there, and nothing twice."""

import contextlib
import http.client
import random
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deployment.servers.test_links import free_ports
from tests.deployment.servers.world import World, reports

SENDERS = 4


class Sending:
    """Clients that send reports, again and again, until told to stop."""

    def __init__(self, world: World, port: int) -> None:
        self.signed = world.plan()
        self.context = ssl.create_default_context(cafile=str(world.homes[1].folder / "ca.pem"))
        self.port, self.stopped = port, threading.Event()
        self.acknowledged: set[bytes] = set()
        self.tried: set[bytes] = set()

    def run(self) -> None:
        while not self.stopped.is_set():
            message = reports(self.signed)[1]
            self.tried.add(message[44:60])
            while not self.stopped.is_set():
                if self._post(message):
                    self.acknowledged.add(message[44:60])
                    break
                time.sleep(0.02)

    def _post(self, message: bytes) -> bool:
        link = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=self.context)
        try:
            with contextlib.closing(link):
                link.request("POST", "/v1/reports", message)
                return link.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


@contextlib.contextmanager
def collecting(world: World, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    words = [sys.executable, "-m", "fedprikl", "server", "run", str(world.homes[1].folder)]
    process = subprocess.Popen(
        [*words, "--host", "127.0.0.1", "--port", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.validation)])
def test_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    world, rng = World.make(tmp_path), random.Random(29)  # noqa: S311
    (port, *_) = free_ports()
    sending = Sending(world, port)
    threads = [threading.Thread(target=sending.run) for _ in range(SENDERS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(kills):
            with collecting(world, port) as process:
                enough = len(sending.acknowledged) + rng.randrange(5, 60)
                while len(sending.acknowledged) < enough:
                    time.sleep(0.001)
                process.kill()  # in the middle of what it is doing
        with collecting(world, port) as process:
            enough = len(sending.acknowledged) + 10
            while len(sending.acknowledged) < enough:
                time.sleep(0.01)
            sending.stopped.set()
            for thread in threads:
                thread.join()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0  # a clean stop
    finally:
        sending.stopped.set()
    (intake,) = world.homes[1].intakes()
    kept = intake.reports(bytes.fromhex(sending.signed.plan.fingerprint), 0)
    held = [report_id for report_id, _ in kept]
    assert len(set(held)) == len(held)
    assert sending.acknowledged <= set(held) <= sending.tried
