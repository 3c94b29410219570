"""`fedprikl serve` as a user types it; a made-up series stands for a history."""

import importlib.util
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedprikl.cli import serve_command
from fedprikl.errors import InvalidInputError, MissingExtraError
from tests.dashboard.sources import Source
from tests.monitoring.statuses import series

pytestmark = pytest.mark.slow

STATUS = series(7, since=4, missed=(2,))
GIVEN = ["history.db", "--plan", "plan.json"]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr(serve_command, "open_series", lambda *_, **__: Source(STATUS))
    found = typer.Typer(rich_markup_mode="markdown")
    found.command()(serve_command.serve_command)
    return found


def call(app: typer.Typer, *words: str) -> Any:
    return CliRunner().invoke(app, [*GIVEN, *words], catch_exceptions=True)


def test_static_files(app: typer.Typer, tmp_path: Path) -> None:
    done = call(app, "--static", str(tmp_path / "site"))
    assert done.exit_code == 0
    assert "9 files written" in done.stdout
    assert (tmp_path / "site" / "periods" / "0006.html").is_file()
    again = call(app, "--static", str(tmp_path / "site"))
    assert "0 files written" in again.stdout


def test_without_the_extra_files_can_still_be_written(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def lacking(name: str, *more: Any) -> Any:
        return None if name == "uvicorn" else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", lacking)
    done = call(app)
    assert isinstance(done.exception, MissingExtraError)
    assert "pip install 'fedprikl[serve]'" in str(done.exception)
    assert call(app, "--static", str(tmp_path)).exit_code == 0


def test_a_taken_port_is_told(app: typer.Typer) -> None:
    from fedprikl.deployment.web import open_socket

    with open_socket("127.0.0.1", 0) as taken:
        done = call(app, "--port", str(taken.getsockname()[1]))
    assert isinstance(done.exception, InvalidInputError)
    assert "--port" in str(done.exception)


def test_a_malformed_key_is_wrong_usage(app: typer.Typer) -> None:
    assert call(app, "--signer", "abc").exit_code == 2
    assert call(app, "--port", "70000").exit_code == 2


def test_help_has_an_example(app: typer.Typer) -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    assert "Example: fedprikl serve history.db" in " ".join(said.split())


SCRIPT = """
import sys
import typer
from fedprikl.cli import serve_command
from tests.cli.test_serve_command import STATUS, Source
serve_command.open_series = lambda *_, **__: Source(STATUS)
app = typer.Typer()
app.command()(serve_command.serve_command)
app()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_ends_it_well(number: signal.Signals) -> None:
    """Printed address, one page, then the signal: exit code 0 and nothing on standard error."""
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *GIVEN, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "no_proxy": "*"},
    ) as running:
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            assert line.startswith("serving http://127.0.0.1:")
            address = line.split()[1]
            with urllib.request.urlopen(address, timeout=120) as answer:  # noqa: S310
                assert b"Drift since week 4" in answer.read()
            running.send_signal(number)
            _, said = running.communicate(timeout=120)
        finally:
            running.kill()
    assert running.returncode == 0
    assert said == ""
