"""Hints about files that are read as something else, and about what is not installed."""

from pathlib import Path

import pytest

from fedprikl import Reference, libraries
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
