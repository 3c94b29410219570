"""The benchmark runs, on a cohort small enough for every day."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

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


def test_tables_are_printed(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench.table([10])
    result = {
        "rows": rows,
        "profile": {"key agreement (X25519)": 1.0},
        "flower": [{"shares": 21, "threshold": 14, "flower_s": 2.0, "ours_s": 1.0}],
        "floor_ratio": 2.0,
        "floor_ratio_dropouts": 2.0,
        "floor_ratio_roster": 3.0,
        "flower_speedup": None,
        "growth": bench.growth(rows),
    }
    bench.show(result)
    shown = capsys.readouterr().out
    assert "floor_ratio" in shown
    assert "not measured" in shown
