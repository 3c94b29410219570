"""Processes that are kept running, end together, and never outlive the one that started them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedprikl.deployment import supervisor as supervising
from fedprikl.deployment.supervisor import Child, Supervisor, serve_health
from fedprikl.errors import DeploymentError
from tests.deployment.test_warm_executor import ENVIRONMENT, is_running, wait_until

NOTES = "import os, pathlib, sys, time; note = pathlib.Path(sys.argv[1])\n"
LIVES = f"{NOTES}note.open('a').write(f'{{os.getpid()}}\\n'); time.sleep(60)"
DIES = f"{NOTES}note.open('a').write('x'); sys.exit(3)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LIVES


def child(name: str, code: str, note: Path, beat: Path | None = None) -> Child:
    return Child(name=name, command=[sys.executable, "-c", code, str(note)], beat=beat)


@contextmanager
def running(supervisor: Supervisor) -> Iterator[None]:
    """Runs it here, in the main thread of a moment: it is stopped by a signal, as in life."""
    failures: list[BaseException] = []
    done = threading.Event()
    thread = threading.Thread(target=_run, args=(supervisor, failures, done))
    thread.start()
    try:
        yield
    finally:
        supervisor._stop(signal.SIGTERM, None)
        thread.join(20)
    assert done.is_set()
    assert failures == []


def _run(supervisor: Supervisor, failures: list[BaseException], done: threading.Event) -> None:
    try:
        supervisor.run()
    except BaseException as error:
        failures.append(error)
    finally:
        done.set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST_PAUSE": 0.05, "LOOK": 0.01, "STOPPING": 0.5}.items():
        monkeypatch.setattr(supervising, name, value)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # not in the main thread


def test_it_says_once_that_all_is_ready_and_at_once_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "STAYED", 0.0)
    said: list[str] = []
    policy, beat = tmp_path / "policy", tmp_path / "beat"
    node = child("node", LIVES, tmp_path / "note", beat)
    monkeypatch.setattr(supervising, "TROUBLE", 0.01)
    trouble = "no policy. It is a secret why."
    one = Supervisor([node], said.append, trouble=lambda: "" if policy.exists() else trouble)
    with running(one):
        beat.touch()
        wait_until(lambda: node.is_well)
        assert one.health["well"] is False
        assert one.health["trouble"] == "no policy"  # the rest is not for everybody
        policy.touch()
        wait_until(lambda: len(said) == 3)
        assert one.health["well"] is True
        assert "trouble" not in one.health
        policy.unlink()
        assert one.health["well"] is False
        wait_until(lambda: len(said) == 4)
    assert said[0] == said[3] == f"ERROR {trouble}"  # once for each time
    assert {words.partition(":")[0] for words in said[1:3]} == {"ready", "mended"}


def test_a_dead_process_is_started_again_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "LONGEST_PAUSE", 0.15)
    said: list[str] = []
    one = Supervisor([child("node", DIES, tmp_path / "note")], said.append)
    one.children[0].pause = 0.05
    with running(one):
        wait_until(lambda: one.children[0].restarts >= 3)
    words = "node ended (exit code 3); it is started again in "
    assert said[:3] == [f"{words}{pause} s" for pause in (0.05, 0.1, 0.15)]


def test_a_killed_process_is_replaced_and_the_other_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "a", tmp_path / "b"
    two = Supervisor([child(note.name, LIVES, note) for note in notes], lambda _: None)
    with running(two):
        wait_until(lambda: all(note.exists() and note.read_text() for note in notes))
        first, other = (int(note.read_text()) for note in notes)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(notes[0].read_text().split()) == 2, 60)
        assert two.children[1].restarts == 0
        assert is_running(other)
    pids = [int(pid) for note in notes for pid in note.read_text().split()]
    assert not any(map(is_running, pids))


def test_a_process_that_will_not_end_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "note"
    one = Supervisor([child("stubborn", STUBBORN, note)], lambda _: None)
    with running(one):
        wait_until(lambda: note.exists() and note.read_text())
    assert not is_running(int(note.read_text()))


def asked(port: int, path: str = "/health") -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")


def test_health_is_that_all_run_and_give_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note, beat = tmp_path / "note", tmp_path / "beat"
    one = Supervisor([child("executor", LIVES, note, beat)], lambda _: None)
    with serve_health(0, lambda: one.health) as port:
        assert asked(port)[0] == 503
        with running(one):
            wait_until(lambda: one.children[0].process)
            assert asked(port)[0] == 503  # it runs, and has said nothing yet
            beat.touch()
            well = {"well": True, "processes": {"executor": {"well": True, "restarts": 0}}}
            assert asked(port) == (200, well)
            assert asked(port, "/")[0] == 404
            monkeypatch.setattr(supervising, "SILENT", -1.0)
            assert asked(port)[0] == 503
        with pytest.raises(DeploymentError, match="--health-port"), serve_health(port, dict):
            pass


WATCHED = """
import subprocess, sys, time
from fedprikl.deployment.supervisor import watched
child = subprocess.Popen(watched("tests.deployment.test_supervisor", "idle"))
print(child.pid, flush=True)
time.sleep(60)
"""


def idle() -> None:
    time.sleep(60)


def test_a_watched_process_does_not_outlive_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()

    wait_until(lambda: not is_running(pid))
