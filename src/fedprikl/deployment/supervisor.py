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
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import IO

from fedprikl.errors import DeploymentError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a dead process is started again
SETTLED = 60.0  # seconds after which a process counts as well
STAYED = 2.0  # seconds that a process has to live before anybody is told that all is ready
STOPPING = 10.0  # seconds that all processes together have to end
TROUBLE = 5.0  # seconds between two looks at what they need besides each other
LOOK = 0.2  # seconds between two looks at them
SILENT = 60.0  # seconds without a sign of life after which a process is not well
EVERY, HOUR = 0.5, 3600.0  # seconds


@dataclass(slots=True, kw_only=True)
class Child:
    """A process to keep running, and how it is now.

    It touches `beat`, if it has one, whenever all is well.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    beat: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    listener: threading.Thread | None = None
    started: float = 0.0
    restart_at: float = 0.0
    pause: float = FIRST_PAUSE
    restarts: int = 0

    @property
    def is_well(self) -> bool:
        """Whether it runs, and has given a sign of life lately if it gives any."""
        if self.process is None or self.process.poll() is not None:
            return False
        with suppress(OSError):
            return self.beat is None or time.time() - self.beat.stat().st_mtime < SILENT
        return False

    def start(self, hear: Callable[[str, str], None] | None = None) -> None:
        """Starts the process; `hear` is handed its name and each line that it writes."""
        self.started = time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603  our own commands, no shell
            list(self.command),
            env=os.environ | dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=None if hear is None else subprocess.PIPE,
            stderr=None if hear is None else subprocess.STDOUT,
        )
        if hear is not None and self.process.stdout is not None:
            listening = partial(_listen, self.process.stdout, partial(hear, self.name))
            self.listener = threading.Thread(target=listening, name=self.name, daemon=True)
            self.listener.start()


def _listen(stream: IO[bytes], hear: Callable[[str], None]) -> None:
    """Until nobody writes any more."""
    with stream:
        for line in stream:
            hear(line.decode(errors="replace"))


class Supervisor:
    """Runs children until it is told to stop."""

    def __init__(
        self,
        children: Sequence[Child],
        say: Callable[[str], None],
        *,
        hear: Callable[[str, str], None] | None = None,
        chore: Callable[[], None] = lambda: None,
        trouble: Callable[[], str] = str,
    ) -> None:
        """`hear` is handed each line of each child; `chore` is done at first, and every hour.

        `trouble`: what is wrong with what the children need besides each other; said when new.
        """
        self.children, self._say, self._stopping = children, say, False
        self._hear, self._chore, self._trouble, self._ready = hear, chore, trouble, False
        self._told = ""  # the trouble that was said last

    @property
    def health(self) -> dict[str, object]:
        """What a health endpoint tells: which processes run, and the first sentence of trouble."""
        found = self._trouble().partition(". ")[0]
        return {
            "well": self._is_well,
            "processes": {
                child.name: {"well": child.is_well, "restarts": child.restarts}
                for child in self.children
            },
        } | ({"trouble": found} if found else {})

    @property
    def _is_well(self) -> bool:
        running = bool(self.children) and all(child.is_well for child in self.children)
        return running and not self._trouble()

    def _say_ready(self) -> None:
        """Once: what was said before about processes that do not answer yet is over."""
        now = time.monotonic()
        stayed = all(now - child.started > STAYED for child in self.children)
        if not self._ready and stayed and self._is_well:
            self._ready = True
            self._say("ready: all processes run and answer each other; waiting for rounds")

    def _say_trouble(self) -> None:
        """Once for each; else the first word of it would come with the next round."""
        found = self._trouble()
        if found and found != self._told:
            self._say(f"ERROR {found}")
        elif self._told and not found:
            self._say("mended: what was wrong is right again")
        self._told = found

    def run(self) -> None:
        """Until SIGTERM or SIGINT; every child has ended when this returns."""
        before = {n: signal.signal(n, self._stop) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            next_chore = next_trouble = time.monotonic()
            while not self._stopping:
                if time.monotonic() >= next_chore:
                    self._chore()
                    next_chore += HOUR
                if time.monotonic() >= next_trouble:
                    self._say_trouble()
                    next_trouble += TROUBLE
                for child in self.children:
                    self._look_after(child)
                self._say_ready()
                time.sleep(LOOK)
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _look_after(self, child: Child) -> None:
        now, process = time.monotonic(), child.process
        if self._stopping:
            return
        if process is None:
            if now >= child.restart_at:
                child.start(self._hear)
        elif process.poll() is not None:
            if now - child.started > SETTLED:
                child.pause = FIRST_PAUSE
            self._say(
                f"{child.name} ended ({_ending(process.returncode)}); it is started again "
                f"in {child.pause:g} s"
            )
            child.process, child.restart_at = None, now + child.pause
            child.pause = min(2 * child.pause, LONGEST_PAUSE)
            child.restarts += 1

    def _end_all(self) -> None:
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.terminate()
        end = time.monotonic() + STOPPING
        for process in running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for child in self.children:
            if child.listener is not None:
                child.listener.join(1.0)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


@contextmanager
def serve_health(port: int, health: Callable[[], Mapping[str, object]]) -> Iterator[int]:
    """Answers on a port of this machine while the block lasts; the port. 0: any that is free.

    It is for everybody on this machine, so `health` tells no more than what is public.
    """

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

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
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


def watch_parent(parent: int) -> None:
    """Sends this process a SIGTERM once its parent is another one than `parent`."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def watched(module: str, function: str, *arguments: str) -> list[str]:
    """The command line of a function that ends with this process.

    >>> watched("http.server", "test", "--help")[-3:]
    ['http.server', 'test', '--help']
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
