"""`fedprikl demo`: the main job on files, and how right it was."""

import json
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fedprikl.cli.app import app
from fedprikl.demo.flights import DRIFTED, flight_table
from fedprikl.protocol import Release

pytestmark = pytest.mark.slow

runner = CliRunner()
small = partial(  # as wide as the whole one: too many combinations to compare them
    flight_table, aircraft=24, flights=60, reference_aircraft=60, reference_flights=100
)


def run(*arguments: str) -> Result:
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The demo as a user runs it, once."""
    folder = tmp_path_factory.mktemp("demo")
    said = run("demo", "--json", "--keep", str(folder / "kept"), "--report", str(folder / "x.html"))
    return json.loads(said.stdout), folder


def test_it_finds_the_two_columns(whole: tuple[dict[str, Any], Path]) -> None:
    """Noise is fresh in every run: both drifts are so large that missing one is no chance.

    A false alarm is, at 1% a run; so no more than one column may be called falsely here.
    """
    document, _ = whole
    assert document["found"] == list(DRIFTED)
    assert document["missed"] == []
    assert len(document["falsely_called"]) <= 1
    assert len(document["left_alone"]) + len(document["falsely_called"]) == 6
    for column in document["columns"]:
        tv = column["tv"]
        assert tv["value"] == pytest.approx(tv["truth"], abs=0.02)
        assert column["kl"]["value"] == pytest.approx(column["kl"]["truth"], abs=0.01)
    # With a coverage of 95%, fewer than four of eight hold the truth once in 50,000 runs.
    assert sum(column["tv"]["covered"] for column in document["columns"]) >= 4
    assert 0 < document["seconds"] < 100  # a blow-up only


def test_clients_vanish_and_the_round_goes_on(whole: tuple[dict[str, Any], Path]) -> None:
    document, _ = whole
    cohorts = document["release"]["cohorts"]
    assert sum(cohort["clients"] for cohort in cohorts) == 120
    assert 114 <= sum(cohort["included"] for cohort in cohorts) < 120


def test_one_column_looks_drifted_and_is_not(whole: tuple[dict[str, Any], Path]) -> None:
    """The ages of 120 aircraft differ from those of others as much as a column that drifted."""
    document, _ = whole
    truth = {column["column"]: column["tv"]["truth"] for column in document["columns"]}
    assert truth["aircraft_age"] > 0.9 * min(truth[name] for name in DRIFTED)
    assert all(truth[name] > 0.09 for name in DRIFTED)


def test_the_files_are_kept(whole: tuple[dict[str, Any], Path]) -> None:
    document, folder = whole
    kept = folder / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["aircraft", "demo", "reference.csv"]
    assert len(list((kept / "aircraft").iterdir())) == 120
    release = Release.load(kept / "demo" / "release.json")
    assert release.is_intact
    assert release.signature == document["signature"]
    assert "departure_delay" in (folder / "x.html").read_text(encoding="utf-8")


def test_the_same_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed commands work as they stand, in this order."""
    monkeypatch.setattr("fedprikl.cli.demo_command.flight_table", small)
    monkeypatch.chdir(tmp_path)
    said = run("demo", "--keep", "made-up flights").stdout
    change, *commands = said[said.index("The same by hand") :].strip().splitlines()[1:]
    monkeypatch.chdir(shlex.split(change)[1])
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "fedprikl"
        run(*arguments)
    assert Release.load("release.json").is_intact
    assert Path("report.html").exists()


def test_it_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprikl.cli.demo_command.flight_table", small)
    monkeypatch.chdir(tmp_path)
    said = run("demo").stdout
    steps = ["The data", "The reference", "The plan", "The round", "The answer", "How right it was"]
    assert re.findall(r"^\d\. (.*)$", said, re.MULTILINE) == steps
    assert "24 aircraft hold" in said
    assert re.search(r"1 aircraft vanished on the way", said)
    assert "Missed: " in said
    assert "Falsely called: " in said
    assert "by hand" not in said  # nothing is kept
    assert [path.name for path in tmp_path.iterdir()] == ["fedprikl-demo.html"]


def test_a_folder_with_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = runner.invoke(app, ["demo", "--keep", str(tmp_path)])
    assert result.exit_code == 1
    assert "is not empty" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
