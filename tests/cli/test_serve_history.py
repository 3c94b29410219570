"""`fedprikl serve`: the page of a history as files, or over the web; nothing is ever written."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.documents import readable
from fedprikl.protocol import SigningKey
from tests.cli.test_round_commands import call, fails
from tests.monitoring.small_series import World, over, quick_folder

runner = CliRunner()


@pytest.fixture(scope="module")
def _counted() -> Iterator[World]:
    with quick_folder() as folder:
        world = World.create(folder / "series").grow(0).grow(1)
        world.monitor(over(1))
        (world.folder / "plan.json").write_text(readable(world.signed.to_dict()))
        yield world


@pytest.fixture
def world(_counted: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two weeks, released; nobody changes anything. It is the working directory."""
    monkeypatch.chdir(_counted.folder)
    return _counted


def test_the_page_as_files(world: World, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in world.folder.glob("*.db")}
    said = call("serve", "history.db", "--static", str(tmp_path / "public")).stdout
    assert said.startswith("5 files written; open ")
    written = {path.name for path in (tmp_path / "public").rglob("*") if path.is_file()}
    assert written == {"index.html", "series.json", "metrics.prom", "0000.html", "0001.html"}
    status = json.loads((tmp_path / "public" / "series.json").read_text())
    assert [point["state"] for point in status["points"][:2]] == ["released"] * 2
    assert status["budget"]["spent"] == pytest.approx(2.0)
    assert {path: path.read_bytes() for path in world.folder.glob("*.db")} == before


@pytest.mark.usefixtures("world")
def test_it_needs_no_ledger(tmp_path: Path) -> None:
    call("serve", "history.db", "--ledger", "nowhere.db", "--static", str(tmp_path / "public"))
    assert json.loads((tmp_path / "public" / "series.json").read_text())["budget"] is None
    assert not Path("nowhere.db").exists()


@pytest.mark.usefixtures("world")
def test_the_key_is_that_of_the_releases(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    static = ("--static", str(tmp_path / "public"))
    key = SigningKey.load("aggregator.pem").public
    call("serve", "history.db", "--signer", key, *static)
    other = SigningKey.generate().public
    error = fails(monkeypatch, capsys, "serve", "history.db", "--signer", other, *static)
    assert "are not signed by the key that you gave" in " ".join(error.split())


@pytest.mark.usefixtures("world")
def test_a_history_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in (["--static", str(tmp_path / "public")], ["--port", "0"]):
        error = fails(monkeypatch, capsys, "serve", str(tmp_path / "none.db"), *more)
        assert "There is no history" in " ".join(error.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"not a database" * 99], ids=["empty", "text"])
@pytest.mark.usefixtures("world")
def test_a_broken_history_is_a_page_that_says_so(content: bytes, tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(content)
    call("serve", str(broken), "--static", str(tmp_path / "public"))
    assert "This history has faults" in (tmp_path / "public" / "index.html").read_text()


@pytest.mark.usefixtures("world")
def test_the_page_over_the_web() -> None:
    pytest.importorskip("uvicorn")
    program = "from fedprikl.cli.app import main; main()"
    line = [sys.executable, "-c", program, "serve", "history.db", "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            said = child.stdout.readline().split()
            assert said[0] == "serving"
            for name, word in [("", "No drift"), ("health", "ok"), ("metrics", "# EOF")]:
                page = said[1].rstrip("/") + "/" + name
                with urllib.request.urlopen(page, timeout=120) as answer:  # noqa: S310
                    assert word in answer.read().decode()
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(120)


@pytest.mark.usefixtures("world")
def test_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = runner.invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).stdout
    assert "fedprikl serve history.db --plan plan.json --static public" in said
    assert runner.invoke(app, ["serve"]).exit_code == 2
    assert runner.invoke(app, ["serve", "history.db", "--port", "70000"]).exit_code == 2
    error = fails(monkeypatch, capsys, "serve", "history.db", "--plan", "nowhere.json")
    assert "nowhere.json" in error
