"""The warm executor: what is preloaded, that forks answer, and that they share no randomness."""

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx
import pytest
from flwr.app import Message

from fedprikl.deployment.flower.executor import Executor
from tests.deployment.fake_grid import FakeFederation, FakeGrid
from tests.deployment.test_roster_federation import NOBODY, with_roster

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parent.parent.parent
ENVIRONMENT = os.environ | {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
}
# Only plans, verdicts and reports need these.
NOT_AT_A_SITE = {"scipy.linalg", "scipy.optimize", "scipy.stats", "polars", "pandas", "matplotlib"}


@dataclass
class WarmGrid:
    """Delivers each message to a preloaded process, which answers in a fork."""

    process: subprocess.Popen[bytes]
    modules: set[str] = field(default_factory=set)
    threads: set[int] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)

    def deliver(self, grid: FakeGrid, message: Message) -> Message:
        node, start = message.metadata.dst_node_id, time.monotonic()
        pickle.dump((message, grid.contexts[node]), _pipe(self.process.stdin))
        _pipe(self.process.stdin).flush()
        found = pickle.load(_pipe(self.process.stdout))  # noqa: S301  of our own process
        answer: Message
        answer, grid.contexts[node], modules, threads = found
        self.seconds.append(time.monotonic() - start)
        self.modules |= set(modules)
        self.threads.add(threads)
        return answer


def _pipe(found: IO[bytes] | None) -> IO[bytes]:
    assert found is not None
    return found


@pytest.fixture
def warm(
    federation: FakeFederation, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[WarmGrid]:
    assert federation  # its home is in the environment that the process inherits
    more = ["--ledger"] if "untrusted" in request.node.name else []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.deployment.warm_site", *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT | {"FEDPRIKL_HOME": os.environ["FEDPRIKL_HOME"]},
    ) as process:
        grid = WarmGrid(process)
        monkeypatch.setattr(FakeGrid, "deliver", lambda own, message: grid.deliver(own, message))
        yield grid
        _pipe(process.stdin).close()


def fresh(code: str) -> str:
    """What a Python process prints that runs nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("plan", [{}, NOBODY], ids=["trusted", "untrusted"])
def test_forks_answer_a_whole_round_and_import_nothing_late(
    federation: FakeFederation, warm: WarmGrid, plan: dict[str, Any]
) -> None:
    """A site has no scipy.optimize or scipy.linalg, unless it keeps count of its own budget."""
    grid = with_roster(federation, **plan) if plan else federation.grid()
    release, _ = federation.run(grid)
    assert sum(cohort.included for cohort in release.cohorts) == len(federation.files)
    assert warm.threads == {1}
    assert bool(warm.modules & NOT_AT_A_SITE) is bool(plan)
    loaded = fresh(
        f"""
        import runpy, sys
        import tests.deployment.warm_site as warm
        warm.preload("site", ledger={bool(plan)})
        print(*sys.modules)
        """
    )
    late = warm.modules - set(loaded.split())
    assert {name for name in late if not name.startswith("encodings.")} == set()


@pytest.mark.parametrize("party", ["site", "aggregator"])
def test_a_preloaded_process_has_one_thread(party: str) -> None:
    said = fresh(
        f"""
        from fedprikl.deployment.flower import executor
        executor.preload({party!r})
        executor.check_can_fork()
        print("it can fork")
        """
    )
    assert said == "it can fork\n"


def test_a_process_with_threads_does_not_fork() -> None:
    said = fresh(
        """
        import threading
        from fedprikl.deployment.flower.executor import check_can_fork
        from fedprikl.errors import DeploymentError
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        try:
            check_can_fork()
        except DeploymentError as error:
            print(error)
        """
    )
    assert "This process has 2 threads" in said


def test_two_forks_draw_different_noise_and_keys() -> None:
    """48 bits and more each, so by chance they agree never."""
    said = fresh(
        """
        import json, os
        from fedprikl.deployment.flower import executor
        executor.preload("site")

        def drawn():
            from fedprikl.privacy import SECURE_NOISE
            from fedprikl.protocol import SealingKey, SigningKey
            return [
                SECURE_NOISE.integer_gaussian([0] * 16, sigma=1e6).tolist(),
                SECURE_NOISE.integer_laplace([0] * 16, scale=1e6).tolist(),
                SECURE_NOISE.laplace([0.0] * 4, scale=1e6).tolist(),
                SECURE_NOISE.below(2**60),
                SealingKey.generate().public,
                SigningKey.generate().public,
                os.urandom(16).hex(),
            ]

        for _ in range(2):
            if os.fork() == 0:
                os.write(1, json.dumps(drawn()).encode() + b"\\n")
                os._exit(0)
            os.wait()
        """
    )
    first, second = map(json.loads, said.splitlines())
    assert all(one != other for one, other in zip(first, second, strict=True))


SERVING = """
import os, pathlib, sys, time
from dataclasses import dataclass
from fedprikl.deployment.flower.executor import Executor
folder = pathlib.Path(sys.argv[1])

@dataclass
class Source:
    tokens: list
    def acquire(self):
        return self.tokens.pop() if self.tokens else ""

def run(token):
    (folder / token).write_text(str(os.getpid()))
    if token == "long":
        time.sleep(60)
    if token == "bad":
        raise ValueError("a secret value")

acquire = Source(["long", "bad", "good"]).acquire
Executor(acquire=acquire, run=run, poll=0.01, beat=folder / "beat").serve()
"""


def test_tasks_run_in_forks_that_end_with_the_executor(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVING, str(tmp_path)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: (tmp_path / "long").exists() and (tmp_path / "long").read_text())
        forks = {name: int((tmp_path / name).read_text()) for name in ("good", "bad", "long")}
        assert process.pid not in forks.values()
        assert len(set(forks.values())) == 3
        wait_until(lambda: not is_running(forks["good"]) and not is_running(forks["bad"]))
        assert is_running(forks["long"])
        assert (tmp_path / "beat").exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
        assert not is_running(forks["long"])
        assert process.stderr is not None
        said = process.stderr.read()
    assert "a task failed: ValueError" in said
    assert "secret" not in said


STORM = """
import contextlib, os, pathlib, signal, sys
from fedprikl.deployment.flower.executor import Executor
folder, hook = pathlib.Path(sys.argv[1]), sys.argv[2]

class Source:
    asked = 0
    def acquire(self):
        self.asked += 1
        if self.asked == 2 and hook == "after_in_child":
            with contextlib.suppress(ChildProcessError):  # it has been reaped already
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            os.kill(os.getpid(), signal.SIGTERM)
        if self.asked == 2 and hook:
            os._exit(7)  # the signal was lost
        return "token"

def run(token):
    if hook:
        (folder / "ran").touch()
        signal.pause() if hook == "after_in_parent" else None

def stop():
    os.kill(os.getpid(), signal.SIGTERM)

def serve():
    try:
        Executor(acquire=Source().acquire, run=run, poll=0.001, parent=os.getppid()).serve()
    except SystemExit as error:
        os._exit(error.code)

if hook:
    os.register_at_fork(**{hook: stop})
    serve()
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        serve()
    while not pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text():
        pass
    os.kill(pid, signal.SIGTERM)
    assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.parametrize("hook", ["before", "after_in_parent", "after_in_child", ""])
def test_a_signal_while_it_forks_is_obeyed(tmp_path: Path, hook: str) -> None:
    """In what Python itself runs before and after a fork; and real ones in a storm of tasks."""
    done = subprocess.run(
        [sys.executable, "-c", STORM, str(tmp_path), hook],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert hook == "after_in_parent" or not (tmp_path / "ran").exists()


def test_forks_have_a_limit() -> None:
    """Two run, others wait at the API. In ten turns one of them ends, so three were taken."""
    said = fresh(
        """
        import os, signal, time
        from fedprikl.deployment.flower.executor import Executor
        asked, turns, sleep = [], [], time.sleep

        class Source:
            def acquire(self):
                asked.append("token")
                return "token"

        def turn(seconds):
            turns.append(seconds)
            if len(turns) == 5:
                os.kill(min(executor._forks), signal.SIGKILL)
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            if len(turns) == 10:
                os.kill(os.getpid(), signal.SIGTERM)
            sleep(seconds)

        time.sleep = turn
        acquire = Source().acquire
        executor = Executor(acquire=acquire, run=lambda _: signal.pause(), poll=0.01, at_once=2)
        try:
            executor.serve()
        except SystemExit:
            print(len(asked))
        """
    )
    assert said == "3\n"


def wait_until(condition: Any, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process is there and not just waiting to be reaped."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_only_at_first_is_no_answer_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it asks starts with it. A refusal, or a certificate that is not trusted, is news."""
    executor = Executor(acquire=str, run=lambda _: None, poll=0.5)
    request = httpx.Request("POST", "https://127.0.0.1:9443/v1/runtime")
    silent = httpx.ConnectError("Connection refused", request=request)
    foreign = httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] expired", request=request)
    response = httpx.Response(401, request=request)
    refused = httpx.HTTPStatusError("x", request=request, response=response)
    levels = [executor._level(each) for each in (silent, foreign, refused)]
    assert levels == [logging.INFO, logging.WARNING, logging.WARNING]
    monkeypatch.setattr("fedprikl.deployment.flower.privates.STARTING", 0.0)
    assert executor._level(silent) == logging.WARNING


def test_an_idle_executor_looks_less_often_and_soon_again_after_a_message() -> None:
    executor = Executor(acquire=str, run=lambda _: None, poll=0.5)
    pauses = [0.5]
    for _ in range(10):
        pauses.append(executor._pause_after("", pauses[-1]))
    assert pauses == sorted(pauses)
    assert pauses[-1] == 2.0
    assert executor._pause_after("a task", pauses[-1]) == 0.5
    slow = Executor(acquire=str, run=lambda _: None, poll=10.0)
    assert slow._pause_after("", 10.0) == 10.0
    assert executor._pause_after(None, 25.0) == 30.0  # an API that does not answer
