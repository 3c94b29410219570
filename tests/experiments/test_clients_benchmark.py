"""benchmarks/clients.py: its clients draw as real ones do, and a tiny run gives every table."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from experiments.population import Population
from scipy import stats

from fedprikl.planning import client_sizes
from tests.benchmark_modules import loaded
from tests.false_alarm import FALSE_ALARM

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The modules, with few populations and small clients."""
    with (
        loaded("power", parts=("default", "measures", "rivals", "worlds")),
        loaded("clients", parts=("liars", "sizes")) as modules,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(modules.clients, "POPULATIONS", 20)
        patch.setattr(modules.clients_liars, "CLIENTS", 40)
        patch.setattr(client_sizes, "TRIED", 1)  # plans take seconds
        yield modules


def test_simulated_clients_draw_as_real_ones_do(bench: Any) -> None:
    """k each: without replacement, or all of their records and some of the reference."""
    client = np.repeat([0, 1, 2], [50, 3, 1])
    population, pi = Population(client, np.arange(54), 55, 4), np.eye(55)[54]
    drawn = bench.clients.draw_records(population, 7, pi, np.random.default_rng(1))
    assert np.bincount(drawn.client).tolist() == [7, 7, 7, 7]
    counts = drawn.counts_by_client()
    assert (counts[0].max(), counts[0][50:].sum()) == (1, 0)
    assert counts[1][50:].tolist() == [1, 1, 1, 0, 4]
    assert counts[2][50:].tolist() == [0, 0, 0, 1, 6]
    assert counts[3][54] == 7


def test_every_record_is_drawn_equally_often(bench: Any) -> None:
    """Of 2,000 draws of 2 of 5, each is in 800: 6 sigma either way, once in 10^8 by chance."""
    population = Population(np.zeros(5, np.int64), np.arange(5), 6, 1)
    rng = np.random.default_rng(2)
    draws = (bench.clients.draw_records(population, 2, np.eye(6)[5], rng) for _ in range(2000))
    often = sum(np.bincount(drawn.cell, minlength=5) for drawn in draws)
    assert np.all(np.abs(often - 800) < 6 * np.sqrt(2000 * 0.4 * 0.6))


@pytest.mark.validation
def test_a_plan_is_measured_at_every_drift(bench: Any) -> None:
    world = bench.clients.World.make("phones", 0, None)
    rows = bench.clients.measure_unit(world, "client", "aggregator", 1.0, 2, 0, "client")
    assert [(row["kind"], row["drift"]) for row in rows] == [
        ("none", 0.0),
        ("smooth", 0.43),
        ("rough", 0.43),
    ]
    assert all(0 < row["mae"] < 0.1 for row in rows)
    assert {row["k"] for row in rows} == {int(world.held.mean() / 2)}
    assert 0 < rows[0]["smallest_drift"] < 0.1


@pytest.mark.validation
def test_liars_stay_within_the_bound(bench: Any) -> None:
    rows = bench.clients_liars.measure_liars(1, attacks=3)
    assert {row["divergence"] for row in rows if not row["column"]} == {"kl", "tv", "js"}
    assert all(0 < row["moved"] <= row["bound"] < row["breaking_the_protocol"] for row in rows)


ROUNDS = 2, 120  # references, and populations of each


def kept(alarms: int, rate: float = 0.01) -> bool:
    """Whether so many alarms may be at this rate: fails by chance at `FALSE_ALARM` at most."""
    return bool(stats.binom.sf(alarms - 1, ROUNDS[0] * ROUNDS[1], rate) > FALSE_ALARM)


@pytest.mark.validation
@pytest.mark.parametrize("spread", [1.5, 2.0])
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_very_unequal_clients_raise_no_more_false_alarms_than_stated(
    bench: Any, trust: str, spread: float
) -> None:
    """With the planner's own k."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_sizes, "TRIED", 3)
        (row,) = bench.clients_sizes.measure_sizes(spread, trust, False, None, 1, *ROUNDS)
    assert row["short"] > 0.2
    assert kept(row["false_alarms"])


@pytest.mark.validation
@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_that_check_would_catch_clients_that_repeat_their_records(bench: Any, trust: str) -> None:
    """Three clients in four hold fewer than 50 records. Filled up, they raise no alarms."""
    (row,) = bench.clients_sizes.measure_sizes(2.0, trust, False, 50, 2, *ROUNDS)
    assert row["short"] > 0.7
    assert kept(row["false_alarms"])
    assert not kept(row["repeated"])


def test_the_bars_are_read_off_the_rows(bench: Any) -> None:
    case = {"world": "stand-in", "unit": "client", "trust": "aggregator", "smallest_drift": 0.02}
    cases = [
        case | {"kind": kind, "drift": nats, "mae": mae}
        for kind, nats, mae in (("none", 0.0, 0.003), ("smooth", 0.43, 0.02), ("rough", 0.43, 9.0))
    ]
    liars = [{"moved": 0.2, "bound": 0.1}]
    equal = [{"values": [1.0]}, {"values": [1.0]}]
    sizes = [{"upper": 0.015}, {"upper": 0.03}]
    found = {row["bar"]: row["held"] for row in bench.clients.bars(cases, liars, equal, sizes)}
    assert found == {
        "mae, none": True,
        "smallest_drift, none": False,
        "mae, smooth": False,
        "liars beyond the bound": False,
        "false alarms, upper limit": False,
        "k = 1 equals unit record": True,
    }
