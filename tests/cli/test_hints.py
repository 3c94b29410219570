"""Hints about files that are read as something else, and about what is not installed."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedprikl import Reference, libraries
from fedprikl.cli.app import app
from fedprikl.cli.ledger_command import noise_words
from fedprikl.cli.options import reference_beside
from fedprikl.privacy.charges import ConcentratedRelease, compose_charges
from fedprikl.protocol import AskedView, Budget, Plan, Question, SignedPlan
from tests.cli.test_round_commands import call, fails


def test_dates_with_the_year_last_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{1 + i % 28}.11.2023,v{i % 3}.1" for i in range(300)]
    Path("days.csv").write_text("day,version\n" + "\n".join(lines))
    said = " ".join(call("reference", "days.csv", "-o", "ref.json", "--json").output.split())
    assert "Column 'day' holds 28 categories that look like dates" in said
    assert "'version' holds" not in said


def test_columns_of_ids_and_times_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what they hold, or by a name like stay_id; the columns that are named are not compared."""
    monkeypatch.chdir(tmp_path)
    lines = [
        f"p{n % 400},{n},2026-{1 + n % 12:02}-{1 + n % 28:02}T08:00:00,{n % 90},t{n % 150}"
        for n in range(4000)
    ]
    Path("a.csv").write_text("\n".join(["patient,stay_id,visited_at,paid,town", *lines]))
    said = " ".join(call("reference", "a.csv", "-o", "a.json", "--json").output.split())
    assert "a client is a site" in said
    for hint in ("'patient' looks like ids", "--client-column stay_id", "--time-column visited_at"):
        assert hint in said
    for name in ("paid", "town"):
        assert f"'{name}' looks like" not in said
    named = ("--client-column", "patient", "--time-column", "visited_at", "--json")
    said = call("reference", "a.csv", "-o", "b.json", *named).output
    assert "looks like ids" not in said
    assert "holds times" not in said


def test_another_separator_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("age;plan\n" + "40;a\n41;b\n" * 50)
    assert "seem to be separated by ;" in call("reference", "a.csv", "-o", "r.json").output
    said = call("reference", "a.csv", "-o", "s.json", "--separator", ";").output
    assert "seem to be" not in said


def test_the_demo_names_the_extra_before_it_says_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(libraries, "find_spec", lambda _: None)
    said = fails(monkeypatch, capsys, "demo")
    assert said.startswith("fedprikl: This needs scipy")
    assert "fedprikl[plan]" in said
    assert not list(tmp_path.iterdir())


def test_a_file_in_another_encoding_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "town,size\nZürich,1\nBern,2\n"
    for name, content in (("a.csv", text), ("b.csv", text.replace("town", "Städte"))):
        Path(name).write_text(content, encoding="latin-1")
        line = ("reference", name, "-o", f"{name}.json")
        assert "--encoding cp1252" in fails(monkeypatch, capsys, *line)
        call(*line, "--encoding", "cp1252")


def test_what_can_be_asked_is_listed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Reference.from_counts([5, 5]).save("ref.json")
    line = ("plan", "ref.json", "--clients", "5", "--records", "50", "--ask", "lk")
    said = fails(monkeypatch, capsys, *line)
    assert "kl, psi" in said
    assert "'columns'" in said


@pytest.mark.parametrize("command", ["estimate plan.json .", "verify plan.json", "audit plan.json"])
@pytest.mark.parametrize("text", ['{"a":', "{}"])
def test_a_corrupt_document_names_its_file(
    command: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(text)
    assert "plan.json: " in fails(monkeypatch, capsys, *command.split())


def test_a_document_of_another_kind_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Reference.from_counts([5, 5]).save("ref.json")
    Path("report.html").write_text("<!doctype html><html></html>")
    Path("page.html").write_text('<HTML lang="en">')
    for command in ("estimate ref.json .", "verify ref.json"):
        assert fails(monkeypatch, capsys, *command.split()).strip().endswith("It is a reference.")
    for page in ("report.html", "page.html"):
        said = fails(monkeypatch, capsys, "verify", page)
        assert "It is a web page: give the .json file" in said


def test_wrong_values_are_told_without_names_of_types() -> None:
    line = ["plan", "ref.json", "--records", "50", "--clients"]
    said = CliRunner().invoke(app, [*line, "many"])
    assert said.exit_code == 2
    assert "'many' is not a whole number." in " ".join(said.output.split())
    said = CliRunner().invoke(app, [*line, "5", "--every", "week", "--until", "31.12.2027"])
    assert said.exit_code == 2
    assert "is not a date like 2027-12-31" in re.sub(r"[\s│]+", " ", said.output)


def test_a_long_list_of_noises_is_counted() -> None:
    charges = [ConcentratedRelease(rho=rho) for rho in (0.1, 0.1, 0.1, 0.1, 0.2, 0.3, 0.4)]
    said = noise_words(compose_charges(charges))
    assert said.startswith("4 times ")
    assert said.endswith(" and 3 more")
    assert noise_words(charges[0]) == charges[0].per_unit()


def test_a_time_column_without_times_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("carrier", "1960-01-01"):
        Path("a.csv").write_text("plan,day\n" + f"a,{text}\nb,{text}\n" * 20)
        said = fails(
            monkeypatch, capsys, "reference", "a.csv", "-o", "ref.json", "--time-column", "day"
        )
        assert "40 rows of column 'day' have no time" in said


def test_a_reference_is_found_beside_a_pipe_and_data(tmp_path: Path) -> None:
    reference = Reference.from_counts([5, 5])
    reference.save(tmp_path / "found.json")
    os.mkfifo(tmp_path / "a.json")  # who opened it would wait for ever
    (tmp_path / "data.json").write_text("[1, 2]")
    plan = Plan(
        population="people",
        reference=reference.fingerprint,
        budget=Budget(epsilon=1.0),
        views=(AskedView(points=2),),
        questions=(Question(),),
    )
    signed = SignedPlan(plan)
    assert reference_beside(tmp_path / "plan.json", signed) == tmp_path / "found.json"
    (tmp_path / "found.json").unlink()
    assert reference_beside(tmp_path / "plan.json", signed) == tmp_path / "ref.json"


def test_what_to_leave_out_is_not_named_as_what_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"p{n % 400},x{n},{n % 7}" for n in range(4000)]
    Path("a.csv").write_text("\n".join(["patient,note,town", *lines]))
    notes = json.loads(call("reference", "a.csv", "-o", "a.json", "--json").stdout)["notes"]
    assert any("'patient' looks like ids" in each for each in notes)
    (unique,) = (each for each in notes if "almost as many values" in each)
    assert unique.endswith("leave it out with --columns town.")
