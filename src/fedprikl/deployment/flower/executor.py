"""The warm executor: runs each task of a Flower app in a fork of a process that has it imported.

Flower starts a Python process for every message, which costs two seconds of CPU, nearly all of it
imports. A fork costs milliseconds, and ends with its message as before.

A fork copies the thread that calls it and no other, but every lock as it stands: a process with
more threads must not fork. So this process imports, polls and forks, and nothing else: no records
are read, no noise is drawn, no key is loaded before the fork. Random bytes come from the system
(`os.urandom`), or from libraries that notice a fork.
"""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

import httpx

from fedprikl.deployment.flower.plain_words import no_task_words
from fedprikl.deployment.flower.runtime import TaskSource
from fedprikl.deployment.supervisor import watch_parent
from fedprikl.errors import DeploymentError

STOPS = (signal.SIGTERM, signal.SIGINT)
STOPPING = 5.0  # seconds that a task has to end when the executor is stopped
AT_ONCE = 32  # forks; further tasks wait at the API until one of them has ended
LONGEST_PAUSE = 30.0  # between two attempts to reach an API that does not answer
IDLE_PAUSE = 2.0  # between two looks where nothing has been asked for a while
log = logging.getLogger(__name__)


def check_can_fork() -> None:
    """Raises a `DeploymentError` if this process has more threads than one."""
    threads = Path("/proc/self/task")
    found = len(list(threads.iterdir())) if threads.is_dir() else 1
    if found > 1:
        raise DeploymentError(
            f"This process has {found} threads, so it cannot fork safely. Set "
            "OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 before it starts."
        )


@dataclass(slots=True, kw_only=True)
class Executor:
    """Acquires tasks and forks; `run` is handed a task's token in the fork.

    `beat` is touched whenever the API has answered, `parent` is the process without which this one
    ends. Ends by SIGTERM or SIGINT, with all its forks, of which there are `at_once` at most.
    """

    source: TaskSource
    run: Callable[[str], None]
    poll: float
    beat: Path | None = None
    parent: int = 0
    own: bool = False  # whether the API is that of this site's own SuperNode, not of a relay
    at_once: int = AT_ONCE
    _forks: set[int] = field(default_factory=set)
    _stopping: bool = False

    def serve(self) -> None:
        """Until it is told to stop."""
        check_can_fork()
        gc.collect()
        gc.freeze()  # what is imported is shared with the forks, and never looked at again
        for number in STOPS:
            signal.signal(number, self._stop)
        pause, full = self.poll, False
        try:
            while not self._stopping and (not self.parent or os.getppid() == self.parent):
                self._reap()
                before, full = full, len(self._forks) >= self.at_once
                if full and not before:
                    log.warning("%d tasks run at once; others wait for one to end", self.at_once)
                token = "" if full else self._acquire()
                if token:
                    self._fork(token)
                pause = self.poll if full else self._pause_after(token, pause)
                time.sleep(pause)
        finally:
            self._stopping = True
            self._end_forks()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Once is enough: what follows tidies up.

        The loop looks as well: Python drops an exception that comes while a destructor runs.
        """
        if not self._stopping:
            self._stopping = True
            raise SystemExit(0)

    def _pause_after(self, token: str | None, pause: float) -> float:
        """Short while a round is on; an idle site costs little, and looks at least this often."""
        if token:
            return self.poll
        if token is None:
            return min(2 * pause, LONGEST_PAUSE)
        return min(1.5 * pause, max(self.poll, IDLE_PAUSE))

    def _acquire(self) -> str | None:
        """The token of a task, empty if there is none; None if the API cannot be asked now."""
        try:
            token = self.source.acquire()
        except httpx.HTTPError as error:
            log.warning(no_task_words(error, own=self.own))
            return None
        if self.beat is not None:
            self.beat.touch()
        return token

    def _fork(self, token: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # os.fork calls functions of Python's own and drops their exceptions, so signals wait.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            pid = os.fork()
            if not pid:
                self._run_task(token, mask)
            self._forks.add(pid)
        except OSError as error:
            log.error("fedprikl: a task could not be started: %s", error.strerror)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _run_task(self, token: str, mask: set[int]) -> NoReturn:
        """Ends the process, which is a fork, without the tidying up that is the parent's."""
        code = 1
        try:
            self._forks, self._stopping = set(), False
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            watch_parent(os.getppid())
            self.run(token)
            code = 0
        except Exception as error:
            log.error("fedprikl: a task failed: %s", type(error).__name__)
        finally:
            self._stopping = True
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid in list(self._forks):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._forks.discard(pid)

    def _end_forks(self) -> None:
        for pid in self._forks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        end = time.monotonic() + STOPPING
        while self._forks and time.monotonic() < end:
            self._reap()
            time.sleep(0.05)
        for pid in self._forks:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
