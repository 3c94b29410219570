"""Hints about files that are read as something else, and about what is not installed."""

from pathlib import Path

import pytest

from fedprikl import libraries
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
