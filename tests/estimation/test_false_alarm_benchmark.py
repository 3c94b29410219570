"""benchmarks/false_alarms.py runs, with few repetitions and without evidently."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "false_alarms.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("bench_false_alarms", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    monkeypatch.setitem(sys.modules, "evidently_drift", None)
    spec.loader.exec_module(module)
    return module


def test_one_json_object_with_every_case(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 repetitions with fresh noise: each check below fails by chance once in 10^7 runs."""
    plain = bench.CASES[0]
    alike = bench.Case("alike", bench.zipf(62, 0.5), 4000, 62, clients=40, icc=0.05)
    monkeypatch.setattr(bench, "CASES", (plain, alike))
    bench.main(["--json", "--repetitions", "20"])
    result = json.loads(capsys.readouterr().out)
    assert any("evidently is not installed" in note for note in result["notes"])
    rows = {(row["case"], row["method"]): row for row in result["cases"]}
    assert len(rows) == 2 + 3
    assert all(row["repetitions"] == 20 for row in rows.values())
    for (_, method), row in rows.items():
        assert row["false_alarms"] <= 6 / 20 or "ignored" in method
    for case in (plain, alike):
        row = rows[case.name, "fedprikl, epsilon 1"]
        assert row["smallest_drift"] > 0
        assert row["found"] >= 10 / 20


def test_a_table_is_printed(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "CASES", bench.CASES[:1])
    bench.main(["--repetitions", "5"])
    shown = capsys.readouterr().out
    assert "62 classes, 500 records" in shown
    assert "note: evidently is not installed" in shown


def test_drift_has_the_size_it_says(bench: Any) -> None:
    """A Gamma variable of shape a has E[-ln r] = ln a - digamma(a), without skew."""
    assert bench.gamma_shape(0.05, 1e-9) == pytest.approx(10.2, rel=0.01)
