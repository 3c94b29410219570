"""A folder of client files, a public file, three commands, an answer and a report."""

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedprikl.cli.app import app, main
from fedprikl.front import local_parties
from fedprikl.protocol import Release, SignedPlan, SigningKey
from fedprikl.reference import Reference
from fedprikl.reporting import ColumnValues, facts, release_words

pytestmark = pytest.mark.slow

runner = CliRunner()
NINE = ("--clients", "9", "--records", "9")
README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")


def write_rows(path: Path, rng: np.random.Generator, rows: int, mean: float) -> None:
    ages, plans = rng.normal(mean, 12, rows), rng.choice(["basic", "plus"], rows)
    lines = [f"{age:.1f},{plan}" for age, plan in zip(ages, plans, strict=True)]
    path.write_text("age,plan\n" + "\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(2)
    write_rows(tmp_path / "public.csv", rng, 2000, 40.0)
    (tmp_path / "clients").mkdir()
    for i in range(12):
        write_rows(tmp_path / "clients" / f"site{i}.csv", rng, 60, 46.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Any:
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result


def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *line: str) -> str:
    """The sentence a failing command prints; exit code 1 and no traceback."""
    monkeypatch.setattr(sys, "argv", ["fedprikl", *line])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def shown(release: Release) -> str:
    """A release as every command shows it: drift first, then how much, of whom, how protected."""
    return release_words(release)


def test_estimate_and_verify_say_the_same_about_a_release(folder: Path) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    call("plan", "ref.json", "--clients", "12", "--records", "720")
    estimated = call("estimate", "plan.json", "clients").stdout
    words = shown(Release.load(folder / "release.json"))
    assert words.startswith(("The 12 clients differ from the reference.", "No drift found among"))
    assert "drift found: " in words.lower()
    release, plan = Release.load("release.json"), SignedPlan.load("plan.json").plan
    values = ColumnValues(release, plan, Reference.load("ref.json"))  # which verify does not know
    lines = list(values.lines(facts.ranked(release.columns)))
    assert lines
    assert estimated.startswith(release_words(release, (), lines))
    verified = call("verify", "release.json").stdout
    assert verified.startswith("unchanged since it was signed; compare the signer with the key you")
    signer = Release.load(folder / "release.json").signer
    known = call("verify", "release.json", "--signer", signer).stdout
    assert known.startswith(f"genuine\nsigner: {signer}\n")
    assert "genuine" not in verified
    assert verified.endswith(f"\n{words}\n")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert html.escape(words.splitlines()[0]) in page


def test_the_readme_walk_works_as_written(folder: Path) -> None:
    """Every `fedprikl` line of the README's walk, in order."""
    (block,) = re.findall(r"<!-- walk -->\n```sh\n(.*?)```", README, re.DOTALL)
    commands = [line.split("#")[0].split() for line in block.splitlines() if line.strip()]
    assert [command[1] for command in commands] == ["reference", "plan", "estimate", "verify"]
    for command in commands:
        call(*command[1:])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Counted: 12 of 12 clients." in page
    for words in ("differ from the reference by", "Protected: one record", "95% interval", "<svg"):
        assert words in page


def test_an_estimate_as_json_is_a_genuine_release(folder: Path) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    planned = json.loads(
        call("plan", "ref.json", "--clients", "12", "--records", "720", "--json").stdout
    )
    assert planned["predicted_error"] > 0
    document = json.loads(call("estimate", "plan.json", "clients", "--json").stdout)
    content = document["release"]
    assert sum(c["included"] for c in content["cohorts"]) == 12
    assert content["privacy"]["holds"] is True
    assert json.loads((folder / "release.json").read_text())["signature"] == document["signature"]
    verified = json.loads(
        call("verify", "release.json", "--signer", document["signer"], "--json").stdout
    )
    assert verified["genuine"] is True


def test_a_spent_budget_refuses_and_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    call("plan", "ref.json", "--clients", "12", "--records", "720")
    call("estimate", "plan.json", "clients")
    before = (folder / "release.json").read_bytes()
    monkeypatch.setattr(local_parties, "count_all", None)  # refused before anything is counted
    error = fails(monkeypatch, capsys, "estimate", "plan.json", "clients", "--force")
    assert "Nothing was charged" in error
    assert (folder / "release.json").read_bytes() == before


def test_without_a_trusted_party(folder: Path) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    call(
        *("plan", "ref.json", "--clients", "12", "--records", "720", "--trust", "none"),
        *("--epsilon", "2", "--key", "organiser.pem", "--threshold", "0.5"),
    )
    content = json.loads(call("estimate", "plan.json", "clients", "--json").stdout)["release"]
    assert content["noisy_counts"] is not None
    assert content["privacy"]["trust"].startswith("nobody")
    assert (folder / "organiser.pem").exists()
    assert "your own threshold, from the plan" in (folder / "report.html").read_text(
        encoding="utf-8"
    )


def test_a_changed_release_is_not_genuine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    call("plan", "ref.json", "--clients", "12", "--records", "720")
    call("estimate", "plan.json", "clients")
    other = SigningKey.generate().public
    assert "NOT genuine" in fails(monkeypatch, capsys, "verify", "release.json", "--signer", other)
    document = json.loads((folder / "release.json").read_text())
    document["release"]["answers"][0]["value"] = 0.0
    (folder / "release.json").write_text(json.dumps(document))
    assert "NOT genuine" in fails(monkeypatch, capsys, "verify", "release.json")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["estimate", "plan.json", "nowhere"], "no file or folder nowhere"),
        (["estimate", "none.json", "clients"], "Cannot read the plan"),
        (["estimate", "plan.json", "clients", "--reference", "public.csv"], "holds data"),
        (["estimate", "plan.json", "few"], "needs 3"),
        (["estimate", "plan.json", "clients", "-o", "no/where.json"], "there is no folder"),
        (["plan", "ref.json", "--force", *NINE, "--epsilon", "0"], "above 0"),
        (["plan", "ref.json", *NINE, "-o", "no/p"], "Cannot write"),
        (["verify", "ref.json"], "not a fedprikl release"),
    ],
)
def test_bad_calls_say_what_to_do(
    line: list[str],
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    call("reference", "public.csv", "-o", "ref.json")
    call("plan", "ref.json", "--clients", "12", "--records", "720")
    (folder / "few").mkdir()
    assert words in fails(monkeypatch, capsys, *line)
    assert not (folder / "ledger.db").exists()


@pytest.mark.parametrize("command", ["plan", "estimate", "verify"])
def test_help_has_an_example(command: str) -> None:
    text = " ".join(call(command, "--help").stdout.split())
    assert f"Example: fedprikl {command}" in text
