"""docs/verdict.md: its example runs, and says what it shows."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs/verdict.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/verdict.md", "exec"), {})
    assert re.match(
        r"(No drift|Drift) found: .*kl \(.* times its threshold\);", capsys.readouterr().out
    )
