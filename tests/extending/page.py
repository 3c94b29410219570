"""The code of docs/extending.md: what a section shows is what the tests run."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).parent.parent.parent / "docs" / "extending.md"


def blocks(section: str) -> list[str]:
    """The Python blocks under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return re.findall(r"^```python\n(.*?)^```", found, re.M | re.S)


def module(section: str, folder: Path, *, name: str) -> ModuleType:
    """The first block of a section as a module in a file of its own: the one file to write."""
    path = folder / f"{name}.py"
    path.write_text(blocks(section)[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made
