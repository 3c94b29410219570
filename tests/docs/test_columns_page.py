"""The page on columns: its example runs and finds what it says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "columns.md"


def test_the_example_finds_the_column_that_drifted() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, object] = {"print": lambda *_: None}
    exec(code, names)
    assert names["result"].columns.drifted == ("delay",)  # type: ignore[attr-defined]
