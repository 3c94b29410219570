"""benchmarks/columns.py: shortcuts give what a round gives, and a tiny run gives every table."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedprikl as fk
from fedprikl.divergence import skewed_divergence
from fedprikl.privacy import NoiseSource
from fedprikl.protocol.noised_round import answer_columns
from tests.benchmark_modules import loaded
from tests.protocol.worlds import InsecureNoNoise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SMALL = (6, 4_000, 1.0, 0.1)  # columns, records, epsilon, nats


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """All modules of the benchmark, by name."""
    with loaded("columns") as modules:
        yield modules


@pytest.fixture(scope="module")
def saved(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a run with one small task of every kind."""
    columns, worlds, measures = bench.columns, bench.columns_worlds, bench.columns_measures
    tasks = [
        (columns.measure_columns, ("independent", *SMALL)),
        (columns.rivals_beside, ("independent",)),
    ]
    out = tmp_path_factory.mktemp("columns") / "columns.json"
    extent = {"references": 1, "populations": 20, "sized": 1, "raw": 1, "repeats": 1}
    with pytest.MonkeyPatch.context() as patch, out.open("w", encoding="utf-8") as stream:
        patch.setattr(columns, "QUICK", extent)
        patch.setattr(columns, "tasks", lambda quick: tasks)  # noqa: ARG005
        patch.setattr(worlds, "REFERENCE_RECORDS", 20_000)
        patch.setattr(worlds.World.reference, "__defaults__", (5_000,))
        patch.setattr(measures, "SPEED_SHAPES", ((3, 4), (5, 4)))
        patch.setattr(measures, "SPEED_REFERENCE", 2_000)
        patch.setattr(measures, "CELLS_COLUMNS", 6)
        patch.setattr(measures, "CELLS_RECORDS", 1_000)
        patch.setattr(bench.columns_rivals, "COLUMNS", SMALL[0])
        patch.setattr(bench.columns_rivals, "RECORDS", SMALL[1])
        patch.setattr(bench.columns_rivals, "NATS", (0.1,))
        patch.setattr(sys, "stdout", stream)
        columns.main(["--json", "--quick", "--workers", "1", "--seed", "5"])
    return out


@pytest.mark.validation
def test_one_json_object_with_every_table(saved: Path) -> None:
    result = json.loads(saved.read_text(encoding="utf-8"))
    asked = {"columns", "records", "epsilon", "trust", "drift"}
    measured = {"recall", "false_alarms", "upper", "kl_error", "kl_error_no_drift"}
    assert [row["trust"] for row in result["cases"]] == ["aggregator", "none"]
    for row in result["cases"]:
        assert asked | measured <= set(row)
        assert row["recall"] > 0.9
        assert row["false_alarms"] < row["upper"] < 1
        assert 0 < row["kl_error_no_drift"] < 0.1
    assert {row["stated"] for row in result["cells"]} == {0.1}
    assert all(row["measured"] <= row["upper"] <= 1 for row in result["cells"])
    assert {"method", "agreement", "false_alarms", "misses"} <= set(result["evidently"][0])
    assert {"plan", "count", "sum", "ms_per_count"} <= set(result["speed"][0])
    assert all(set(bar) >= {"bar", "worst", "limit", "holds"} for bar in result["bars"])


@pytest.mark.parametrize(
    ("trust", "ask"),
    [("aggregator", ("columns",)), ("aggregator", ("kl", "columns")), ("none", ("columns",))],
)
def test_many_populations_are_judged_as_one_round_judges_them(
    bench: Any, trust: Any, ask: tuple[str, ...]
) -> None:
    """Without noise, so that both see the same numbers."""
    rng = np.random.default_rng(1)
    world = bench.columns_worlds.World.draw("alike", 3, rng)
    kinds = ("none", "smooth", "heavy")
    held = world.populations(2, 4_000, bench.columns_worlds.drifts(world.pi, kinds, 0.02, 1), rng)
    reference = world.reference(rng, 5_000)
    plan = fk.plan(reference, clients=40, records=4_000, epsilon=1.0, trust=trust, ask=ask).plan
    ours = bench.columns_default.Default(plan, reference.views, 40, 4_000)
    order = [[view.labels.index(label) for label in world.labels] for view in reference.views]
    held = np.stack([held[:, j][:, np.argsort(order[j])] for j in range(3)], axis=1)
    noisy = [
        bench.columns_default.Noisy(held[:, j].astype(float), np.zeros((2, 1))) for j in (0, 1, 2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        source: NoiseSource = InsecureNoNoise()
        patch.setattr(bench.columns_default, "_source", lambda _: source)
        flags, kl = ours.flags(held, noisy, rng), ours.kl(noisy)
        told = ours.moved(noisy, 0.1) * flags[:, :, None]
        for i, one in enumerate(held):
            released = ours.released(list(one), source)
            found = answer_columns(plan, reference.views, released, clients=40)
            assert [column.drifted for column in found] == flags[i].tolist()
            for j, column in enumerate(found):
                size = column.answer("kl")
                assert size is not None
                # The benchmark draws the resampled noise of all populations in one stream.
                assert size.value == pytest.approx(kl[i, j], abs=0.005)
                ways = {"up": 1, "down": -1, "": 0}
                assert [ways[cell.shifted] for cell in column.cells] == told[i, j].tolist()


def test_drifts_have_the_stated_size_and_few_moves_two_cells(bench: Any) -> None:
    worlds = bench.columns_worlds
    pi = worlds.World.draw("alike", 5, np.random.default_rng(2)).pi
    for kind in ("smooth", "rare", "heavy", "few"):
        for each, ratios in zip(pi, worlds.drifts(pi, [kind] * 5, 0.01, 3), strict=True):
            assert each @ ratios == pytest.approx(1)
            assert skewed_divergence(each, each * ratios, skew=0.01) == pytest.approx(0.01)
            if kind == "few":
                assert np.count_nonzero(np.abs(ratios - 1) > 1e-9) == 2


def test_populations_have_the_distribution_they_should_have(bench: Any) -> None:
    worlds, rng = bench.columns_worlds, np.random.default_rng(3)
    for name in worlds.WORLDS:
        world = worlds.World.draw(name, 4, rng)
        ratios = worlds.drifts(world.pi, ["none", *worlds.KINDS], 0.05, 3)
        held = world.populations(400, 5_000, ratios, rng)
        assert held.shape == (400, 4, 12)
        assert np.all(held.sum(axis=2) == 5_000)
        mean, error = held.mean(axis=0) / 5_000, held.std(axis=0) / 5_000 / 20
        assert np.all(np.abs(mean - world.pi * ratios) < 5 * error)
        # Columns and records go together in one world only.
        extra = held[:, 0].var(axis=0) / (5_000 * world.pi[0] * (1 - world.pi[0]))
        assert bool(extra.mean() > 1.15) is (name == "alike")
        together = np.corrcoef(held.reshape(400, -1).T)[:12, 12:]
        assert bool(np.abs(together).max() > 0.3) is (name == "alike")


def test_tables_are_printed(saved: Path, bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench.columns.main(["--read", str(saved)])
    result, shown = json.loads(saved.read_text(encoding="utf-8")), capsys.readouterr().out
    for table in bench.columns_tables.TABLES.values():
        assert table(result) in shown


def test_the_seed_changes_all_that_is_random(bench: Any) -> None:
    measures = bench.columns_measures

    def views(seed: int) -> list[float]:
        rng = bench.columns_worlds.generator(seed, "columns", "independent", 0)
        world = bench.columns_worlds.World.draw("independent", 2, rng)
        found: list[float] = np.concatenate([view.mass for view in world.views(rng)]).tolist()
        return found

    assert views(1) == views(1) != views(2)
    assert measures.upper(0, 2_000) < 0.0024 < measures.upper(1, 2_000)
