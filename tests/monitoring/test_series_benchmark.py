"""benchmarks/series.py: its worlds are what they say, and a tiny run gives every table."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedprikl.monitoring import null_series as nominal
from fedprikl.privacy import laplace_variance
from tests.benchmark_modules import loaded

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """Both modules, with few simulated series: thresholds are rough."""
    with loaded("series", parts=("worlds",)) as modules, pytest.MonkeyPatch.context() as patch:
        patch.setattr(nominal, "FEWEST", 40)
        patch.setattr(nominal, "EFFORT", 1)
        yield modules


def test_noise_is_that_of_a_plan(bench: Any) -> None:
    """Discrete Laplace noise of scale 2 / epsilon; without a trusted party a sum of such noises."""
    trusted, alone = map(bench.series_worlds.noise_of, ("aggregator", "none"))
    assert trusted.scale == pytest.approx(2.0)
    assert trusted.sd**2 == pytest.approx(laplace_variance(trusted.scale))
    assert alone.sd > 1.2 * trusted.sd


def test_a_year_has_its_drift_and_its_deviation(bench: Any) -> None:
    """From the week on in which it begins."""
    worlds = bench.series_worlds
    world, rng = worlds.KnownWorld("lognormal", 0), np.random.default_rng(1)
    gone = np.where(np.arange(250) < 125, 0.0, world.pi)
    held = world.held(rng, gone / gone.sum(), start=30)
    assert held.shape == (52, 251)
    assert np.all(held.sum(axis=1) == worlds.RECORDS)
    assert held[:30, :125].sum(axis=1).min() > 0 == held[30:, :125].sum()


@pytest.mark.parametrize("same", [True, False])
def test_clients_of_a_year_stay_or_change(
    bench: Any, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weeks of the same clients vary as dealt records do; those of other clients vary more."""
    monkeypatch.setattr(bench.series_worlds, "PUBLIC", 100)
    held = bench.series_worlds.ClientsWorld(0, same=same).held(np.random.default_rng(2))
    mean = held.mean(axis=0)
    heavy = mean > 20
    spread = float(np.mean((held - mean)[:, heavy] ** 2 / mean[heavy]))
    assert (0.9 < spread < 1.05) if same else spread > 1.05, spread


def test_a_tiny_run(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Every table, the keys, and bars that follow from the numbers."""
    series = bench.series
    rows = {
        "alarms": [series.measure_alarms("lognormal", "none", 2, 0, 1)],
        "delay": [
            series.measure_delay("lognormal", "aggregator", "heavy", nats, 1, 0)
            for nats in series.DRIFTS
        ],
        "error": [{"nats": nats, "mean": mean} for nats, mean in ((0.0, 0.001), (0.5, 0.02))],
    }
    result = series.result_of(rows, {"each": 0.001}, 0)
    keys = "years false_alarm_per_year upper delay_weeks error_by_week seconds_per_release"
    assert set(keys.split()) <= result.keys()
    assert result["delay_weeks"][1]["within_1"] == 1.0
    assert list(result["bars"].values()) == [False, True, True, True, False]
    json.dumps(result)
    assert capsys.readouterr().out == ""
