"""Commands say "Cannot tell" where no drift could have been found; that is no drift to a script."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.testing import CliRunner

import fedprikl as fk
from fedprikl.cli import release_output
from fedprikl.cli.app import app
from fedprikl.documents import readable
from fedprikl.protocol import SignedPlan
from tests.monitoring.small_series import DRIFTED, REFERENCE, World, over, plan_of, quick_folder

pytestmark = pytest.mark.slow

runner = CliRunner()
SAID = "Cannot tell: with so few records and this epsilon"
# Noise of hundreds on each count. It is real: so rarely is it taken for drift.
TINY: dict[str, Any] = {"epsilon": 0.01, "total_epsilon": 0.01, "false_alarm": 1e-4}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three clients of twenty records, all of which have drifted, and next to no budget."""
    plan = plan_of(None, **TINY)
    REFERENCE.save(tmp_path / "ref.json")
    text = readable(SignedPlan(plan).to_dict())
    (tmp_path / "plan.json").write_text(text, encoding="utf-8")
    (tmp_path / "clients").mkdir()
    cells = "\n".join(str(cell) for cell, many in enumerate(DRIFTED) for _ in range(many))
    for name in "abc":
        (tmp_path / "clients" / f"{name}.csv").write_text(f"cell\n{cells}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_estimate_and_verify(folder: Path) -> None:
    made = runner.invoke(app, ["estimate", "plan.json", "clients", "--fail-on-drift"])
    assert made.exit_code == 0
    assert made.stdout.startswith(SAID)
    assert "No drift" not in made.stdout
    assert f"--fail-on-drift: {SAID}" in made.stderr
    assert SAID in (folder / "report.html").read_text(encoding="utf-8")
    assert "fail-on-drift" not in runner.invoke(app, ["verify", "release.json"]).stderr
    read = runner.invoke(app, ["verify", "release.json", "--json", "--fail-on-drift"])
    assert read.exit_code == 0
    assert f"--fail-on-drift: {SAID}" in read.stderr
    found = json.loads(read.stdout)
    assert found["verdict"] == "cannot tell"
    assert found["drifted"] is None
    assert found["findable"] is None
    assert found["release"]["verdict"]["verdict"] == "cannot tell"


def test_json_and_python(folder: Path) -> None:
    made = runner.invoke(app, ["estimate", "plan.json", "clients", "--json"])
    found = json.loads(made.stdout)
    assert (found["verdict"], found["drifted"]) == ("cannot tell", None)
    result = fk.compare("ref.json", folder / "clients", "plan.json", ledger=None)
    assert (result.outcome, result.drifted) == ("cannot tell", None)
    assert str(result).startswith(SAID)
    assert "cannot tell" in repr(result)
    assert result.to_frame("polars")["verdict"].to_list() == ["cannot tell"]
    assert result.to_dict()["verdict"] == "cannot tell"


def test_a_large_budget_can_tell(folder: Path) -> None:
    """The same records and a thousand times the budget: drift is found, and the exit code is 3."""
    plan = plan_of(None, epsilon=10.0, total_epsilon=10.0)
    (folder / "plan.json").write_text(readable(SignedPlan(plan).to_dict()), encoding="utf-8")
    line = ["estimate", "plan.json", "clients", "--fail-on-drift", "--json"]
    made = runner.invoke(app, [*line, "--largest-epsilon", "10"])
    assert made.exit_code == release_output.DRIFT_FOUND
    found = json.loads(made.stdout)
    assert (found["verdict"], found["drifted"]) == ("drift", True)
    assert 0 < found["findable"] < 0.5


def test_three_outcomes_have_three_colours() -> None:
    colours = {Text("", style=style).style for style in release_output.STYLES.values()}
    assert len(colours) == 4


def test_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    with quick_folder() as folder:
        world = World.create(folder / "series", plan_of(**TINY))
        REFERENCE.save(world.folder / "ref.json")
        text = readable(world.signed.to_dict())
        (world.folder / "plan.json").write_text(text, encoding="utf-8")
        for week in range(3):
            world.grow(week, DRIFTED)
        status = world.monitor(over(2))
        assert status.outcome == "cannot tell"
        monkeypatch.chdir(world.folder)
        line = ["monitor", "status", "plan.json", "--metrics", "metrics.prom", "--site", "public"]
        shown = runner.invoke(app, line)
        assert shown.exit_code == 0
        first, second, *_ = shown.stdout.splitlines()
        assert first == f"{SAID} no drift could be found in 3 weeks."
        assert second.startswith("Fewer columns, more records or a larger epsilon would help")
        told = json.loads(runner.invoke(app, ["monitor", "status", "plan.json", "--json"]).stdout)
        assert told["verdict"] == "cannot tell"
        assert told["headline"] == first
        assert told["findable"] == {
            "can_tell": False,
            "findable": None,
            "untold": [""],
            "ordinary": False,
        }
        assert "series_can_tell" in Path("metrics.prom").read_text(encoding="utf-8")
        page = Path("public/index.html").read_text(encoding="utf-8")
        assert f'<h1 class="untold">{first}</h1>' in page
        monkeypatch.undo()
