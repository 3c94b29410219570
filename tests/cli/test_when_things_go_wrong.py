"""Ctrl-C, a full disk, a missing library: one line, nothing lost, no traceback."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from fedprikl import store as whole_files
from fedprikl.cli.app import app
from fedprikl.cli.options import check_outputs
from fedprikl.errors import InvalidInputError
from fedprikl.privacy import Ledger
from fedprikl.protocol import Release
from fedprikl.store import write_whole
from tests.cli.test_round_commands import call, fails

pytestmark = pytest.mark.slow

ESTIMATE = ("estimate", "plan.json", "clients")
# A command that says when it is busy, and then stays busy.
BUSY = {
    "python": "while True: sum(range(1000))",
    "sleep": "import time; time.sleep(60)",
    "duckdb": (
        "import duckdb; "
        "duckdb.connect().execute('SELECT sum(a.range * b.range) FROM range(1e7) a, range(1e7) b')"
    ),
    "progress": (
        "from fedprikl.cli.console import progress_bar\n"
        "    with progress_bar() as bar:\n"
        "        for _ in bar.track(range(10**9)): pass"
    ),
}


def python(code: str, *line: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("place", "command", "work"),
    [
        *(("front.local_parties.count_all", ESTIMATE, work) for work in BUSY),
        ("cli.demo_command.compare", ("demo", "--json"), "duckdb"),
        ("cli.paper_demo.compare", ("demo", "--paper"), "duckdb"),
        ("cli.verify_command.check_key", ("verify", "plan.json"), "duckdb"),
        (
            "cli.federate_command.check_key",
            ("federate", "some-superlink", "--signer", "ab" * 32),
            "sleep",
        ),
    ],
)
def test_ctrl_c_is_one_line(planned: Path, place: str, command: tuple[str, ...], work: str) -> None:
    code = (
        f"import fedprikl.cli, fedprikl.{place.rpartition('.')[0]}\n"
        "def busy(*_, **__):\n"
        "    print('busy', flush=True)\n"
        f"    {BUSY[work]}\n"
        f"fedprikl.{place} = busy\n"
        "fedprikl.cli.main()"
    )
    with python(code, *command) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    *notes, last = error.splitlines()
    assert process.returncode == 130
    assert last.startswith("fedprikl: stopped.")
    assert all("had no budget" in note for note in notes)
    assert not (planned / "release.json").exists()


def test_the_handler_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedprikl.cli.app import main

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["fedprikl", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("extra", ["matplotlib", "flwr"])
def test_estimate_without_an_extra(planned: Path, extra: str) -> None:
    """As after `pip install fedprikl`: everything works, and the report has its charts."""
    code = f"import sys; sys.modules[{extra!r}] = None; from fedprikl.cli import main; main()"
    with python(code, *ESTIMATE) as process:
        said, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert "differ from the reference" in said
    page = (planned / "report.html").read_text(encoding="utf-8")
    assert "What is protected" in page
    assert "<svg" in page
    assert Release.load(planned / "release.json").is_intact


def full(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def denied(*_: Any, **__: Any) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("json_wanted", [False, True])
@pytest.mark.parametrize(("name", "fault"), [("os.fsync", full), ("tempfile.mkstemp", denied)])
def test_a_release_that_cannot_be_written_is_printed(
    planned: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: Any, json_wanted: bool
) -> None:
    """It has been charged: the budget does not allow another one."""
    write = whole_files.write_whole

    def fail(path: Path, text: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"fedprikl.store.{name}", fault)
            write(path, text)

    monkeypatch.setattr("fedprikl.cli.release_output.write_whole", fail)
    line = [*ESTIMATE, "--json"] if json_wanted else [*ESTIMATE]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 1
    assert isinstance(result.exception, InvalidInputError)
    assert "The release has been charged" in str(result.exception)
    (planned / "saved.json").write_text(json.dumps(json.loads(result.stdout)))
    call("verify", "saved.json")
    with Ledger.open("ledger.db") as book:
        assert len(book.account("clients").rounds) == 1
    assert not [path for path in planned.iterdir() if path.name.startswith(".")]
    assert not (planned / "release.json").exists()


def test_a_report_that_cannot_be_written_leaves_the_release(
    planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = whole_files.write_whole

    def fail(path: Path, text: str) -> None:
        if path.suffix == ".html":
            raise InvalidInputError("Cannot write.")
        write(path, text)

    monkeypatch.setattr("fedprikl.cli.release_output.write_whole", fail)
    result = CliRunner().invoke(app, [*ESTIMATE])
    assert "The release itself is in release.json" in str(result.exception)
    assert Release.load(planned / "release.json").is_intact


def test_files_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "release.json"
    write_whole(path, "first")
    monkeypatch.setattr("fedprikl.store.os.fsync", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_whole(path, "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_outputs_that_could_not_be_written_are_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for path, words in (
        (tmp_path / "folder", "is a folder"),
        (tmp_path / "none" / "x", "there is no folder"),
        (tmp_path / "link", "exists already"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            check_outputs(path, force=False)
    with pytest.raises(InvalidInputError, match="the same name"):
        check_outputs(tmp_path / "x", tmp_path / "folder" / ".." / "x", force=True)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        check_outputs(tmp_path / "x", force=True)


@pytest.mark.parametrize("option", ["--output", "--report"])
def test_estimate_tries_its_outputs_before_it_charges(
    option: str, planned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that fits, but not with what is put around it while it is written."""
    words = fails(monkeypatch, capsys, *ESTIMATE, option, 250 * "x" + ".html")
    assert "Cannot write" in words
    assert not (planned / "ledger.db").exists()


@pytest.mark.parametrize(
    "name",
    [
        "plan.json",
        "ref.json",
        "aggregator.pem",
        "ledger.db",
        "ledger.db.lock",
        "ledger.db-journal",
        "link",
        "twin",
        "organiser.pem",  # of another command
        "clients/new.csv",
        "elsewhere.csv",  # which a client's file is a link to
    ],
)
@pytest.mark.parametrize("option", ["--output", "--report"])
def test_no_output_overwrites_what_a_release_is_made_of(
    option: str, name: str, planned: Path
) -> None:
    """Before anything is charged, also with --force."""
    with Ledger.open("ledger.db") as book:
        head = book.head
    Path("link").symlink_to(planned / "ledger.db")
    Path("twin").hardlink_to("plan.json")
    Path("clients/site0.csv").rename("elsewhere.csv")
    Path("clients/site0.csv").symlink_to(planned / "elsewhere.csv")
    before = {path: path.read_bytes() for path in planned.rglob("*") if path.is_file()}
    result = CliRunner().invoke(app, [*ESTIMATE, option, name, "--force"])
    assert "never overwritten" in str(result.exception)
    assert before == {path: path.read_bytes() for path in planned.rglob("*") if path.is_file()}
    with Ledger.open("ledger.db") as book:
        assert book.head == head


@pytest.mark.usefixtures("planned")
def test_other_commands_overwrite_no_input_either() -> None:
    call("ledger", "--population", "phones", "--set-epsilon", "1")
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    more = ("--clients", "6", "--records", "360", "--force")
    for line in (
        ("plan", "ref.json", *more, "-o", "ref.json"),
        ("plan", "ref.json", *more, "-o", "ledger.db"),
        ("reference", "public.csv", "-o", "organiser.pem", "--force"),
        ("demo", "--report", "ledger.db"),
        ("ledger", "--backup", "ledger.db-journal"),
    ):
        result = CliRunner().invoke(app, line)
        assert "never overwritten" in str(result.exception), line
    assert before == {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
