"""Three servers as a user has them: plan, compare, verify, report, audit, and a series."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import BudgetExceededError
from fedprikl.protocol.sums import ScoredSum, ServersSum
from fedprikl.reporting.facts import privacy_sentences
from tests.cli.test_round_commands import call

MONDAY = date(2027, 1, 4)
CELLS = np.array([40, 30, 20, 10])
REFERENCE = fk.Reference.from_counts(CELLS * 1000)


def clients(shares: Any = CELLS, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(4, 50, p=shares / shares.sum()).tolist() for _ in range(12)]


@pytest.fixture(scope="module")
def planned() -> Any:
    return fk.plan(REFERENCE, clients=12, records=600, epsilon=1, trust="servers")


def test_a_drift_is_found_charged_and_verified(planned: Any, tmp_path: Path) -> None:
    """The four cells are turned around: a total variation of 0.4, far beyond any noise."""
    key = fk.SigningKey.generate()
    where: dict[str, Any] = {"ledger": tmp_path / "ledger.db", "key": key}
    result = fk.compare(REFERENCE, clients(CELLS[::-1]), planned, **where)
    assert result.drifted
    assert result.privacy.holds
    assert result.epsilon_left == pytest.approx(0, abs=1e-4)
    assert fk.verify(result.release, key=key.public, plan=planned) is result.release
    assert any("No single server saw" in each for each in privacy_sentences(result.release))
    with pytest.raises(BudgetExceededError):
        fk.compare(REFERENCE, clients(seed=2), planned, **where)


def test_laplace_noise_is_that_of_a_trusted_aggregator(planned: Any) -> None:
    """Its law on counts, and so every forecast, is the same."""
    trusted = replace(planned.plan, trust="aggregator", servers=None)
    ours, theirs = ServersSum(planned.plan).noises, ScoredSum(trusted).noises
    assert [str(each.charge) for each in ours if each.is_counts] == [
        str(each.charge) for each in theirs if each.is_counts
    ]
    assert planned.cost.neighbours == 0


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_series_runs_over_three_servers(unit: Any, tmp_path: Path) -> None:
    rows = [
        (f"c{n % 5}", n % 2, MONDAY + timedelta(days=7 * week + n % 7))
        for week in range(2)
        for n in range(60)
    ]
    table = tmp_path / "visits.csv"
    pl.DataFrame(rows, schema=["id", "cell", "day"], orient="row").write_csv(table)
    reference = fk.Reference.from_counts([1, 1])
    series = fk.Series(every="week", first="2027-01-04", periods=4, time_column="day")
    plan = fk.plan(
        reference, clients=5, records=60, epsilon=1, series=series, trust="servers", unit=unit
    )
    found = fk.monitor(
        reference,
        table,
        plan,
        client="id",
        history=tmp_path / "history.db",
        ledger=tmp_path / "ledger.db",
        key=fk.SigningKey.generate(),
        at="2027-01-19T06:00:00+00:00",
    )
    counted = 60 if unit == "record" else 5 * plan.plan.contribution_bound
    assert [(each.number, each.records) for each in found.released] == [(0, counted), (1, counted)]


def test_the_commands_plan_and_estimate(tmp_path: Path) -> None:
    REFERENCE.save(tmp_path / "ref.json")
    data = tmp_path / "data"
    data.mkdir()
    for number, cells in enumerate(clients()):
        (data / f"{number}.csv").write_text("cell\n" + "\n".join(map(str, cells)) + "\n")
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"suite": "x25519", "lost": "counts"}))
    ref, plan, out = (str(tmp_path / f"{name}.json") for name in ("ref", "plan", "release"))
    size = ["--clients", "12", "--records", "600"]
    said = call("plan", ref, *size, "--trust", "servers", "--servers", str(servers), "-o", plan)
    assert "One report to each of three servers" in " ".join(said.stdout.split())
    key, book, page = (str(tmp_path / name) for name in ("key.pem", "ledger.db", "report.html"))
    call("estimate", plan, str(data), "--ledger", book, "--key", key, "-o", out, "--report", page)
    found = json.loads(call("verify", out, "--plan", plan, "--json").stdout)
    assert "no single server" in json.dumps(found)
