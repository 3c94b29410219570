"""The paper's experiments: recorded numbers are found again, and every page is generated."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.handwriting import synthetic_handwriting
from experiments.paper import jobs
from experiments.paper.claims import (
    load_results,
    results_page,
    runtime_table,
    write_results,
    written_table,
)
from experiments.paper.divergences import FITTING, by_treatment
from experiments.paper.everything import JOBS
from experiments.paper.fig_lambda_eps import JOB as LAMBDA_EPS
from experiments.paper.sweeps import PAPER_LINES, Row, Sweep
from experiments.paper.world import HERE, PAIRS, World, data_folder, find_world

from tests.long import long

pytestmark = pytest.mark.slow

RESULTS = HERE / "results"
SLICE = Path(__file__).with_name("made_up_slice.json")
femnist = pytest.mark.skipif(
    not (data_folder() / "nist_digit_owners.npz").exists(),
    reason="needs femnist_digits.npz and nist_digit_owners.npz; name their folder in FEDPRIKL_DATA",
)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return load_results(RESULTS)


@pytest.fixture(scope="module")
def real() -> World:
    return find_world()


def rerun(world: World, row: Row, number: int) -> float:
    """The mean absolute error of one repetition, as the sweep computes it."""
    repetition = world.repetition(number)
    errors = [repetition.estimate(p, row.setting).value - world.truth(p) for p in row.pairs]
    return float(np.mean(np.abs(errors)))


@femnist
def test_the_results_are_of_this_data(real: World, results: dict[str, Any]) -> None:
    for name in JOBS:
        assert results[name]["record"]["data"] == real.record()["data"], name


@femnist
@pytest.mark.parametrize("line", ["no privacy", "baseline", "FedPriKL", "ours, 10 counts"])
def test_a_slice_of_the_real_results_is_found_again(
    line: str, real: World, results: dict[str, Any]
) -> None:
    """One repetition over all 90 pairs, at two values of lambda."""
    for index, row in enumerate(LAMBDA_EPS.rows):
        if row.line == line and row.panel == "1" and row.x in (0.0, 0.5):
            recorded = results["fig_lambda_eps"]["rows"][index]
            assert (recorded["line"], recorded["x"]) == (line, row.x)
            found = rerun(real, row, number=3)
            assert found == pytest.approx(recorded["error_per_repetition"][3], rel=1e-5)


@femnist
def test_closest_and_furthest_pair_of_the_real_digits(real: World) -> None:
    """Also the numbers of the data's own description, by treatment of empty cells."""
    assert real.genuine is not None
    table = {pair: by_treatment(real.genuine, pair) for pair in PAIRS}
    for treatment in FITTING:
        values = {pair: row[treatment] for pair, row in table.items()}
        assert min(values, key=values.__getitem__) in ((3, 8), (8, 3))
        assert max(values, key=values.__getitem__) == (9, 0)
    shown = [[round(table[p][t], 3) for p in ((3, 8), (4, 1), (9, 0))] for t in FITTING]
    assert shown == [[0.217, 0.773, 2.092], [0.196, 0.881, 1.985]]


def test_a_slice_on_made_up_data_is_found_again() -> None:
    """Runs everywhere, without any data; written by `python -m tests.experiments.test_paper`."""
    recorded = json.loads(SLICE.read_text(encoding="utf-8"))
    found = made_up_slice()
    assert found["sha256"] == recorded["sha256"]
    assert found["errors"] == pytest.approx(recorded["errors"], rel=1e-6)


def test_the_slice_would_notice_another_seed() -> None:
    recorded = json.loads(SLICE.read_text(encoding="utf-8"))
    assert made_up_slice(seed=1)["errors"] != pytest.approx(recorded["errors"], rel=1e-3)


def test_every_result_says_where_it_comes_from(results: dict[str, Any]) -> None:
    assert set(JOBS) == set(results)
    for name, document in results.items():
        record = document["record"]
        assert record["data"]["real"], name
        assert len(record["data"]["sha256"]) == 64
        assert record["seconds"] > 0
        assert {"python", "numpy", "fedprikl"} <= set(record["versions"])
        assert record["seed"] == World(synthetic_handwriting(writers=20)).seed
        assert (RESULTS / f"{name}.csv").exists()


def test_the_results_page_is_generated(results: dict[str, Any]) -> None:
    page = (HERE / "RESULTS.md").read_text(encoding="utf-8")
    assert page == results_page(results, "results/")
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    assert runtime_table(results) in written_table(readme)


def test_the_paper_settings_are_the_paper_settings(results: dict[str, Any]) -> None:
    for name in ("fig_lambda_eps", "fig_batch_size", "fig_m"):
        for row in results[name]["rows"]:
            assert row["pairs"] == 90
            assert len(row["error_per_repetition"]) == 10
    assert {row["epsilon"] for row in results["fig_batch_size"]["rows"]} == {0.5, None}


@pytest.mark.parametrize(
    "name",
    [
        n if n in ("fig_pairs", "theory") else long(n)
        for n in JOBS
        if n.startswith("fig") or n in ("bias", "theory")
    ],
)
def test_figures_of_made_up_data_say_so(name: str, tmp_path: Path, results: dict[str, Any]) -> None:
    document = json.loads(json.dumps(results[name]))
    document["record"]["data"]["real"] = False
    jobs.load_job(name).draw(document, tmp_path)
    pictures = list(tmp_path.glob("*.svg"))
    assert len(pictures) == (2 if name.startswith("fig") else 1)
    assert len(list(tmp_path.glob("*.png"))) == len(pictures)
    for picture in pictures:
        assert "MADE-UP DATA" in picture.read_text(encoding="utf-8")


def test_a_page_of_made_up_data_says_so(tmp_path: Path, results: dict[str, Any]) -> None:
    for name, document in results.items():
        changed = json.loads(json.dumps(document))
        changed["record"]["data"]["real"] = False
        (tmp_path / f"{name}.json").write_text(json.dumps(changed), encoding="utf-8")
    write_results(tmp_path)
    assert "MADE-UP DATA" in (tmp_path / "RESULTS.md").read_text(encoding="utf-8")


def test_without_data_the_world_is_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPRIKL_DATA", str(tmp_path / "absent"))
    assert not find_world().digits.real
    monkeypatch.setenv("FEDPRIKL_DATA", str(tmp_path))
    assert not find_world().digits.real


def test_a_stopped_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(synthetic_handwriting(writers=60))
    ran: list[jobs.Unit] = []

    class Counted(Sweep):
        def run(self, world: World, unit: jobs.Unit) -> Any:
            if len(ran) == 4:
                raise KeyboardInterrupt
            ran.append(unit)
            return super().run(world, unit)

    setting = replace(PAPER_LINES["no privacy"], batches=2, points=3)
    rows = (Row(line="no privacy", panel="x", x=0.0, setting=setting, pairs=((3, 8), (8, 3))),)
    monkeypatch.setattr(jobs, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(jobs, "results_folder", lambda real: tmp_path / f"results-{real}")
    monkeypatch.setattr(jobs, "load_job", lambda _: Counted(name="tiny", rows=rows))
    runner = jobs.Runner(world, processes=1, made_up=True)
    with pytest.raises(KeyboardInterrupt):
        runner.run(["tiny"])
    assert len(ran) == 4
    first, ran[:] = list(ran), []
    for _ in range(4):  # four units at a time, and one run that only writes
        try:
            runner.run(["tiny"])
        except KeyboardInterrupt:
            first, ran[:] = first + ran, []
    assert sorted(first + ran) == [(n, d) for n in range(10) for d in (3, 8)]
    (row,) = load_results(tmp_path / "results-False")["tiny"]["rows"]
    assert row["error"] == pytest.approx(np.mean(row["error_per_repetition"]), rel=1e-5)


def made_up_slice(seed: int = 5) -> dict[str, Any]:
    """Errors of every line of the lambda figure on three pairs of a small made-up population."""
    world = World(synthetic_handwriting(writers=400), seed=seed)
    rows = [row for row in LAMBDA_EPS.rows if row.panel == "0.5" and row.x == -0.5]
    few = [replace(row, pairs=((3, 8), (4, 1), (9, 0))) for row in rows]
    return {"sha256": world.digits.sha256, "errors": [rerun(world, row, 0) for row in few]}


if __name__ == "__main__":
    SLICE.write_text(json.dumps(made_up_slice(), indent=1) + "\n", encoding="utf-8")
