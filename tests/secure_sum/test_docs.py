"""Every block of code in the documentation runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "secure-sum.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str) -> None:
    exec(compile(block, str(PAGE), "exec"), {})


def test_there_are_blocks() -> None:
    assert BLOCKS
