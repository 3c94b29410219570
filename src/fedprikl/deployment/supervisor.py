"""Keeps the processes of a site, an aggregator or a relay running, and ends them together.

A process that dies is started again: after a second, then two, then four, up to a minute; one that
has lived for a minute starts afresh. SIGTERM and SIGINT end all of them.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

from fedprikl.errors import DeploymentError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a dead process is started again
SETTLED = 60.0  # seconds after which a process counts as well
STOPPING = 10.0  # seconds that all processes together have to end
LOOK = 0.2  # seconds between two looks at them
SILENT = 60.0  # seconds without a sign of life after which a process is not well
EVERY = 0.5  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process to keep running. It touches `beat`, if it has one, whenever all is well."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    beat: Path | None = None


@dataclass(slots=True)
class ChildState:
    """A child as it is now."""

    child: Child
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restart_at: float = 0.0
    pause: float = FIRST_PAUSE
    restarts: int = 0

    @property
    def is_well(self) -> bool:
        """Whether it runs, and has given a sign of life lately if it gives any."""
        if self.process is None or self.process.poll() is not None:
            return False
        beat = self.child.beat
        with suppress(OSError):
            return beat is None or time.time() - beat.stat().st_mtime < SILENT
        return False


class Supervisor:
    """Runs children until it is told to stop."""

    def __init__(self, children: Sequence[Child], say: Callable[[str], None]) -> None:
        self.states = [ChildState(child) for child in children]
        self._say, self._stopping = say, False

    @property
    def health(self) -> dict[str, object]:
        """What a health endpoint tells: no more than which processes run."""
        return {
            "well": bool(self.states) and all(state.is_well for state in self.states),
            "processes": {
                state.child.name: {"well": state.is_well, "restarts": state.restarts}
                for state in self.states
            },
        }

    def run(self) -> None:
        """Until SIGTERM or SIGINT; every child has ended when this returns."""
        before = {n: signal.signal(n, self._stop) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._stopping:
                for state in self.states:
                    self._look_after(state)
                time.sleep(LOOK)
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _look_after(self, state: ChildState) -> None:
        now, process = time.monotonic(), state.process
        if process is None:
            if now >= state.restart_at and not self._stopping:
                self._start(state)
        elif process.poll() is not None and not self._stopping:
            if now - state.started > SETTLED:
                state.pause = FIRST_PAUSE
            self._say(
                f"{state.child.name} ended ({_ending(process.returncode)}); it is started again "
                f"in {state.pause:g} s"
            )
            state.process, state.restart_at = None, now + state.pause
            state.pause = min(2 * state.pause, LONGEST_PAUSE)
            state.restarts += 1

    def _start(self, state: ChildState) -> None:
        state.started = time.monotonic()
        state.process = subprocess.Popen(  # noqa: S603  our own commands, no shell
            list(state.child.command),
            env=os.environ | dict(state.child.environment),
            stdin=subprocess.DEVNULL,
        )

    def _end_all(self) -> None:
        running = [state.process for state in self.states if state.process is not None]
        for process in running:
            process.terminate()
        end = time.monotonic() + STOPPING
        for process in running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def watch_parent(parent: int) -> None:
    """Sends this process a SIGTERM once its parent is another one than `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def watched(module: str, function: str, *arguments: str) -> list[str]:
    """The command line of a function that ends with this process.

    >>> watched("flwr.supernode.cli", "flower_supernode", "--help")[-3:]
    ['flwr.supernode.cli', 'flower_supernode', '--help']
    """
    # -P: this folder is not where the function's own imports are to be found.
    program = [sys.executable, "-P", str(Path(__file__))]
    return [*program, str(os.getpid()), module, function, *arguments]


def main() -> None:
    """Runs the function that the command line names."""
    parent, module, function, *arguments = sys.argv[1:]
    sys.argv = [function, *arguments]
    watch_parent(int(parent))
    with suppress(KeyboardInterrupt):  # Ctrl-C while it imports: there is nothing to tell
        getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    main()


Health = Callable[[], Mapping[str, object]]


@contextmanager
def serve_health(port: int, health: Health) -> Iterator[int]:
    """Answers on a port of this machine while the block lasts; the port. 0: any that is free.

    It is for everybody on this machine, so `health` tells no more than that processes run.
    """
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(health))
    except OSError as error:
        raise DeploymentError(
            f"The health port {port} cannot be used: {error.strerror}. Choose another with "
            "--health-port."
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            found = health() if self.path == "/health" else None
            content = b"" if found is None else json.dumps(found).encode() + b"\n"
            self.send_response(404 if found is None else 200 if found["well"] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silent: it is asked every few seconds."""

    return Handler
