"""The benchmark runs, on a cohort small enough for every day."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "secure_sum.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("bench_secure_sum", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_small_run_counts_cpu_and_bytes(bench: Any) -> None:
    cost = bench.run(bench.make_plan(6, 5, 3), gone=frozenset({2}))
    assert cost.clients > 0
    assert cost.aggregator > 0
    assert cost.up["advert"] == 201
    assert cost.down["advert"] == 45 + 5 * 164


@pytest.fixture
def small(bench: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The whole benchmark on cohorts of ten, on a machine without Flower."""
    monkeypatch.setattr(bench, "FLOOR", (10, 9, 6))
    monkeypatch.setattr(bench, "QUICK_SIZES", (10,))
    monkeypatch.setitem(sys.modules, "flower_secagg", None)
    return bench


def test_one_json_object_with_every_figure(small: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small.main(["--quick", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["floor_ratio"] > 0
    assert result["floor_ratio_dropouts"] > 0
    assert result["flower_speedup"] is None
    assert result["growth"] is None
    assert any("Flower is not installed" in text for text in result["notes"])
    assert any("--quick leaves out" in text for text in result["notes"])
    for name in ("profile", "profile_sparse"):
        assert sum(result[name].values()) == pytest.approx(1)


def test_tables_are_printed(small: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small.main(["--quick"])
    shown = capsys.readouterr().out
    assert "floor_ratio" in shown
    assert "not measured" in shown
    assert "Where the time goes" in shown


def test_growth_is_the_ratio_of_the_cost_per_client(bench: Any) -> None:
    rows = bench.table([10, 20])
    assert bench.growth(rows, 10, 20) > 0
    assert bench.growth(rows) is None


def test_with_flower_the_speedup_is_the_smallest(
    small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings = [{"shares": 21, "threshold": 14, "flower_s": each, "ours_s": 1.0} for each in (9, 7)]
    monkeypatch.setattr(small, "flower", lambda _: timings)
    assert small.measure(quick=True)["flower_speedup"] == 7
