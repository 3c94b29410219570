"""docs/columns.md: its example runs, and finds the column that moved."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/columns.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/columns.md", "exec"), {})
    assert "'delay'" in capsys.readouterr().out  # another one: once in 200 runs, by chance
