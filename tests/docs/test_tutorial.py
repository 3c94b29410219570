"""The notebook runs from top to bottom, shows what it says, and is kept without outputs."""

import ast
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parent.parent.parent / "docs" / "tutorial.ipynb"
DOCUMENT = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in DOCUMENT["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line, if that is an expression, as a notebook shows it."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    shown = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307
    if (page := getattr(shown, "_repr_html_", None)) is not None:
        assert page()
    return shown


def test_outputs_are_stripped() -> None:
    assert (DOCUMENT["nbformat"], DOCUMENT["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in DOCUMENT["cells"]}) == len(DOCUMENT["cells"])
    for cell in DOCUMENT["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        else:
            assert set(cell) == {"cell_type", "id", "metadata", "source"}
        assert cell["metadata"] == {}


def test_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    start = time.process_time()
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell(source, names) for source in CODE]
    plt.close("all")
    assert time.process_time() - start < 120  # a blow-up only
    assert {"carrier", "departure_delay"} <= set(names["result"].columns.drifted)
    assert shown[-1] is True
    printed = capsys.readouterr().out
    assert re.search(r"spent epsilon (0\.9\d*|1) of 1 in 1 round", printed)
    assert "aircraft_age     true tv 0.1" in printed
    assert (names["folder"] / "report.html").exists()
    assert len(list(tmp_path.iterdir())) == 1  # everything is in one folder of its own
