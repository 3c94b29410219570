"""One format of logs, whatever the processes write: time, level, no colours, no releases."""

import io
import json
import re
import sys
import threading
from datetime import UTC, datetime

import pytest

from fedprikl.deployment import supervisor as supervising
from fedprikl.deployment.log_lines import LogFormat, log_line, log_to
from fedprikl.deployment.supervisor import Child, Supervisor
from tests.deployment.test_supervisor import running
from tests.deployment.test_warm_executor import wait_until

AT = datetime(2027, 1, 4, 9, tzinfo=UTC)
LINE = re.compile(r"2027-01-04T09:00:00Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) node: \S.*")


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ("\x1b[92mINFO \x1b[0m:      Starting Flower", "INFO", "Starting Flower"),
        ("\x1b[93mWARNING \x1b[0m:   slow", "WARNING", "slow"),
        ("2026-11-18 14:20:16,123 ERROR fedprikl takes no part", "ERROR", "fedprikl takes no part"),
        ("plain words", "INFO", "plain words"),
        ("INFORMED people", "INFO", "INFORMED people"),
        ("a\x07b\x9b31mc", "INFO", "a bc"),
        ("[fedprikl] no release: too few", "ERROR", "[fedprikl] no release: too few"),
        ("ERROR : Public key already in use", "INFO", "Public key already in use"),
    ],
)
def test_a_line_has_a_time_and_a_level(text: str, level: str, words: str) -> None:
    line = log_line(text, "node", at=AT, form="text")
    assert LINE.fullmatch(line)
    assert line.split(" ", 3)[1:] == [level, "node:", words]
    assert json.loads(log_line(text, "node", at=AT, form="json")) == {
        "time": "2027-01-04T09:00:00Z",
        "level": level,
        "process": "node",
        "message": words,
    }


@pytest.mark.parametrize("text", ["", "  \n", '[fedprikl] release: {"value": 1}', "\x1b[0m"])
def test_a_release_is_no_line_of_a_log(text: str) -> None:
    assert log_line(text, "node", at=AT, form="text") == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_children_write_is_heard(form: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of their streams, from a process of their own, to the last line before they end."""
    for name, value in {"LOOK": 0.01, "STOPPING": 5.0}.items():
        monkeypatch.setattr(supervising, name, value)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # not the main thread
    code = (
        "import sys, time; print('out', flush=True); print('err', file=sys.stderr, flush=True)\n"
        "time.sleep(60)"
    )
    stream, chores = io.StringIO(), threading.Event()
    log = log_to(form, stream, lambda: AT)
    child = Child(name="node", command=[sys.executable, "-c", code])
    one = Supervisor([child], lambda words: log("fedprikl", words), hear=log, chore=chores.set)
    with running(one):
        wait_until(lambda: stream.getvalue().count("\n") == 2)
    assert chores.is_set()
    lines = stream.getvalue().splitlines()
    if form == "json":
        assert {json.loads(line)["message"] for line in lines} == {"out", "err"}
    else:
        assert all(LINE.fullmatch(line) for line in lines)
