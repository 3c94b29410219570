"""The commands as a user types them: tables, JSON, reports, errors and exit codes."""

import json
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app, main
from fedprikl.demo import drifted_population

runner = CliRunner()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::fedprikl.errors.PaperCalibrationWarning"),
]


def run_json(*arguments: str) -> Any:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("small_demo")
def test_paper_demo_json(tmp_path: Path) -> None:
    """Of fewer clients; the README's table is a test of it as it is."""
    report = tmp_path / "demo.html"
    document = run_json("demo", "--paper", "--repetitions", "3", "--report", str(report))
    assert 0 < document["seconds"] < 100  # a blow-up only: 10 s measured, on two busy cores
    assert 0.1 < document["truth"] < 0.4
    for row in document["estimates"]:
        assert {"name", "value", "error", "claimed_epsilon", "true_epsilon"} <= set(row)
        assert row["error"] == pytest.approx(abs(row["value"] - document["truth"]))
    exact = document["estimates"][-1]
    assert exact["true_epsilon"] <= exact["claimed_epsilon"] == 1.0
    paper = next(row for row in document["estimates"] if row["name"] == "aggregator, paper")
    assert paper["true_epsilon"] > 20
    assert document["estimates"][0]["true_epsilon"] is None
    assert document["report"] == str(report)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"}:
            self.found.append(tag)


SMALL_DEMO = """
from functools import partial
import fedprikl.cli.paper_demo as demo
demo.drifted_population = partial(demo.drifted_population, clients=60, cells=512)
from fedprikl.cli import main
main()
"""


@pytest.fixture
def small_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same demo on fewer clients: most of its time are secure sums."""
    small = partial(drifted_population, clients=60, cells=512)
    monkeypatch.setattr("fedprikl.cli.paper_demo.drifted_population", small)


@pytest.mark.usefixtures("small_demo")
def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    report = tmp_path / "demo.html"
    result = runner.invoke(app, ["demo", "--paper", "--repetitions", "3", "--report", str(report)])
    assert result.exit_code == 0
    assert "true ε" in result.stdout
    assert "exact, 250 points" in result.stdout
    assert str(report) in result.stdout.replace("\n", "")
    page = report.read_text(encoding="utf-8")
    links = _Links()
    links.feed(page)
    assert links.found == []
    assert page.count("<svg") == 2
    assert "Protected: one record" in page
    assert "released with epsilon 1." in page


@pytest.mark.parametrize(("calibration", "refuted"), [("paper", True), ("exact", False)])
def test_audit_json(calibration: str, refuted: bool) -> None:
    document = run_json(
        "audit", "--calibration", calibration, "--trials", "20000", "--false-alarm", "1e-9"
    )
    assert document["claimed_epsilon"] == 1.0
    assert document["refuted"] is refuted
    assert (document["lower_bound_epsilon"] > 1.0) is refuted
    assert document["seconds"] < 600  # a blow-up only


def test_audit_in_words() -> None:
    result = runner.invoke(app, ["audit", "--calibration", "paper", "--trials", "2000"])
    assert "REFUTED" in result.stdout
    result = runner.invoke(app, ["audit", "--noise", "gaussian", "--trials", "2000"])
    assert "not refuted" in result.stdout


@pytest.mark.parametrize("command", ["demo", "audit"])
def test_help_has_an_example(command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: fedprikl {command}" in " ".join(result.stdout.split())


def test_wrong_usage_exits_with_2() -> None:
    assert runner.invoke(app, ["demo", "--repetitions", "3"]).exit_code == 2
    assert runner.invoke(app, ["demo", "--paper", "--keep", "flights"]).exit_code == 2
    assert runner.invoke(app, ["audit", "--calibration", "magic"]).exit_code == 2
    assert runner.invoke(app, ["nonsense"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--epsilon", "0"], "epsilon must be above 0"),
        (["demo", "--epsilon", "nan"], "epsilon must be a finite number"),
        (["demo", "--seed", "-1"], "must not be negative"),
        (["demo", "--paper", "--seed", "-1"], "must not be negative"),
        (["demo", "--keep", "/dev/null"], "Cannot keep files in /dev/null"),
        (["demo", "--keep", "/"], "is not empty"),
        (
            ["demo", "--paper", "--repetitions", "1", "--report", "/no/such/folder/x.html"],
            "Cannot write",
        ),
        (["audit", "--delta", "2"], "delta must lie strictly between"),
        (["audit", "--calibration", "paper", "--epsilon", "-1"], "epsilon must be above 0"),
    ],
)
def test_errors_are_sentences_without_traceback(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fedprikl", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    streams = capsys.readouterr()
    assert stop.value.code == 1
    assert words in streams.err
    assert "Traceback" not in streams.err
    assert streams.out == ""


def test_the_installed_command_prints_its_version_and_warns_plainly(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "fedprikl")]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("fedprikl ")
    demo = subprocess.run(
        [sys.executable, "-c", SMALL_DEMO, "demo", "--paper", "--repetitions", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(demo.stdout)["truth"] > 0
    assert demo.stderr.count("warning: The paper's calibration claims epsilon 1") == 2
    assert (tmp_path / "fedprikl-demo.html").exists()


@pytest.mark.usefixtures("small_demo")
def test_a_demo_without_matplotlib_has_its_charts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = tmp_path / "x.html"
    result = runner.invoke(app, ["demo", "--paper", "--repetitions", "1", "--report", str(report)])
    assert result.exit_code == 0, result.output
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "Protected: one record" in page
