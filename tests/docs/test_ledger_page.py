"""docs/ledger.md: its example runs, and its table is the one that is tested."""

import re
from pathlib import Path

import pytest

from tests.privacy import test_ledger_crashes

PAGE = (Path(__file__).parent.parent.parent / "docs/ledger.md").read_text(encoding="utf-8")


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/ledger.md", "exec"), {})
    assert float(capsys.readouterr().out) == pytest.approx(0.5)


def test_the_crash_table_is_the_tested_one() -> None:
    (mark,) = test_ledger_crashes.test_killed_between_any_two_steps.pytestmark  # type: ignore[attr-defined]
    for point, left_the_house, state in mark.args[1]:
        (row,) = re.findall(rf"^\| {point} \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
        assert row[0].startswith("the release" if left_the_house else "nothing")
        assert row[1] == (f"{state}, charged" if state else "not charged")
