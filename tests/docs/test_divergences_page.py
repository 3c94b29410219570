"""docs/divergences.md: its tables are true, and its example runs."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from fedprikl.divergence import divergences

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = (DOCS / "divergences.md").read_text(encoding="utf-8")
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])"


def script() -> Any:
    path = DOCS / "divergence_table.py"
    spec = importlib.util.spec_from_file_location("divergence_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(table: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


@pytest.mark.parametrize("name", ["noise", "power"])
def test_a_table_is_up_to_date(name: str) -> None:
    """Words to the letter, numbers to 5% or 0.11, as libraries may change a last digit."""
    made = script()
    now, stands = made.TABLES[name](), made.table_in(PAGE, name)
    assert re.sub(NUMBER, "#", now) == re.sub(NUMBER, "#", stands)
    numbers = [[float(x) for x in re.findall(NUMBER, table)] for table in (now, stands)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.05, abs=0.11 if name == "power" else 0)


def test_what_the_page_says_of_its_tables() -> None:
    made = script()
    noise, power = (rows(made.table_in(PAGE, name)) for name in ("noise", "power"))
    assert set(noise) == set(power) == set(made.NAMES)
    per_record = {name: float(row[4]) for name, row in noise.items()}
    assert 90 < per_record["kl"] / per_record["tv"] < 110
    assert max(per_record, key=per_record.__getitem__) == "psi"
    found = {name: [float(x) for x in row] for name, row in power.items()}
    for free, tenth in zip(found["tv"][:3], found["tv"][6:], strict=True):
        assert tenth > 0.9 * free  # next to nothing is lost
    assert all(max(row[i] for row in found.values()) == found["tv"][i] for i in (0, 3, 6))
    assert all(found["tv"][i] < 0.7 * found["js"][i] for i in (1, 2))


def test_every_divergence_that_exists_is_on_the_page() -> None:
    for name, divergence in divergences._known.items():
        if type(divergence).__module__.startswith("fedprikl."):
            assert f"| `{name}` |" in PAGE


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/divergences.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 6
    assert all("is what no drift gives." in line for line in printed)
