"""The warm executor: runs each task of a Flower app in a fork of a process that has it imported.

    python -m fedprikl.deployment.flower.executor site --address ... --secret ... --poll 0.5

`fedprikl site` and `fedprikl aggregator` start it. Flower starts a Python process for every
message, which costs two seconds of CPU, nearly all of it imports. A fork costs milliseconds, and
ends with its message as before.

A fork copies the thread that calls it and no other, but every lock as it stands: a process with
more threads must not fork. So this process imports, polls and forks, and nothing else: no records
are read, no noise is drawn, no key is loaded before the fork. Random bytes come from the system
(`os.urandom`), or from libraries that notice a fork.
"""

import argparse
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import httpx

from fedprikl.deployment.flower import privates
from fedprikl.deployment.flower.privates import Party, Runtime
from fedprikl.deployment.supervisor import watch_parent
from fedprikl.errors import DeploymentError

STOPS = (signal.SIGTERM, signal.SIGINT)
STOPPING = 5.0  # seconds that a task has to end when the executor is stopped
AT_ONCE = 32  # forks; further tasks wait at the API until one of them has ended
LONGEST_PAUSE = 30.0  # between two attempts to reach an API that does not answer
IDLE_PAUSE = 2.0  # between two looks where nothing has been asked for a while
APPS: dict[Party, str] = {
    "site": "fedprikl.deployment.flower.client:app",
    "aggregator": "fedprikl.deployment.flower.server:app",
}
# What tasks would import late: of the aggregator, and of a site that keeps count of a budget of its
# own. Not OpenDP and pyarrow, which start threads: a fork that needs them imports them.
LEDGER = ("scipy.optimize", "scipy.special")
log = logging.getLogger(__name__)


def preload(party: Party, app: str = "", *, ledger: bool = False) -> Callable[[Runtime, str], None]:
    """Imports what the tasks of a party need; what runs one of them, in a fork."""
    of_budgets = LEDGER if ledger or party == "aggregator" else ()
    for name in privates.LATE[party] + of_budgets:
        import_module(name)
    module, _, attribute = (app or APPS[party]).partition(":")
    found: Any = getattr(import_module(module), attribute)
    return partial(privates.answer_message if party == "site" else privates.host_run, app=found)


def check_can_fork() -> None:
    """Raises a `DeploymentError` if this process has more threads than one."""
    threads = Path("/proc/self/task")
    found = len(list(threads.iterdir())) if threads.is_dir() else 1
    if found > 1:
        raise DeploymentError(
            f"This process has {found} threads, so it cannot fork safely. Set "
            "OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 before it starts."
        )


def no_task_words(error: httpx.HTTPError, *, own: bool = False) -> str:
    """Why there is no task now, from what went wrong when one was asked for.

    `own`: a site's executor asked, and asks the site's own SuperNode; else it is the relay.
    """
    where = f"{error.request.url.host}:{error.request.url.port}"
    if not isinstance(error, httpx.HTTPStatusError):
        said = f"Connection attempt failed, retrying: {error}"
        return privates.in_plain_words(said, relay=where, own=own)
    who = f"This site's own SuperNode ({where})" if own else where
    code = error.response.status_code
    if code not in (401, 403):
        return f"{who} hands out no tasks now (HTTP {code}); trying again."
    advice = (
        "Start this site again: both get a new one."
        if own
        else "Take the relay's superexec.secret (--secret), and check that both clocks are right."
    )
    return f"{who} refuses this process (HTTP {code}): it has another secret. {advice}"


@dataclass(slots=True, kw_only=True)
class Executor:
    """Acquires tasks and forks; `run` is handed a task's token in the fork.

    `beat` is touched whenever the API has answered, `parent` is the process without which this one
    ends. Ends by SIGTERM or SIGINT, with all its forks, of which there are `at_once` at most.
    """

    acquire: Callable[[], str]  # the token of a task, empty if there is none
    run: Callable[[str], None]
    poll: float
    beat: Path | None = None
    parent: int = 0
    own: bool = False  # whether the API is that of this site's own SuperNode, not of a relay
    at_once: int = AT_ONCE
    _begun: float = field(default_factory=time.monotonic)
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
            token = self.acquire()
        except httpx.HTTPError as error:
            log.log(self._level(error), no_task_words(error, own=self.own))
            return None
        if self.beat is not None:
            self.beat.touch()
        return token

    def _level(self, error: httpx.HTTPError) -> int:
        """A SuperNode or a host's relay starts at the same time: at first no answer is no news."""
        answered = isinstance(error, httpx.HTTPStatusError) or privates.is_untrusted(error)
        starting = time.monotonic() < self._begun + privates.STARTING
        return logging.INFO if starting and not answered else logging.WARNING

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
        self._signal_forks(signal.SIGTERM)
        end = time.monotonic() + STOPPING
        while self._forks and time.monotonic() < end:
            self._reap()
            time.sleep(0.05)
        self._signal_forks(signal.SIGKILL)

    def _signal_forks(self, number: int) -> None:
        for pid in self._forks:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def main(arguments: list[str] | None = None) -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("party", choices=sorted(APPS))
    parser.add_argument("--address", required=True)
    parser.add_argument("--root-certificates", type=Path)
    parser.add_argument("--secret", type=Path, required=True)
    parser.add_argument("--poll", type=float, required=True)
    parser.add_argument("--beat", type=Path)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--app", default="")
    parser.add_argument("--ledger", action="store_true")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedprikl").setLevel(logging.INFO)
    own = options.party == "site"  # whose SuperNode is at the address; else it is the relay's
    privates.explain_flower(options.address, own=own)
    run = preload(options.party, options.app, ledger=options.ledger)
    roots, secret = options.root_certificates, options.secret.read_bytes()
    if not secret:
        raise DeploymentError(f"The file {options.secret} is empty: it has to hold the secret.")
    runtime = Runtime(
        address=options.address, roots=None if roots is None else roots.read_bytes(), secret=secret
    )
    with suppress(SystemExit), runtime.tasks(options.party) as acquire:
        Executor(
            acquire=acquire,
            run=partial(run, runtime),
            own=own,
            poll=options.poll,
            beat=options.beat,
            parent=options.parent,
        ).serve()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
