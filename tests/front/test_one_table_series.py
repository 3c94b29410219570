"""A series over one table, in a file or a database: the same releases, each record once."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import HistoryError, InvalidInputError
from fedprikl.monitoring.history import History
from fedprikl.records import DatabaseTable
from tests.cli.test_round_commands import call
from tests.postgres import execute, ingest

MONDAY = date(2027, 1, 4)
WEEKS = fk.Series(every="week", first="2027-01-04", periods=4, time_column="day")


def visits(weeks: int = 2) -> pl.DataFrame:
    """Of five people, one of whom was here in the first week only."""
    rows = [
        (f"SECRET{n % 5}", n % 2, MONDAY + timedelta(days=7 * week + n % 7))
        for week in range(weeks)
        for n in range(60)
        if week == 0 or n % 5
    ]
    return pl.DataFrame(rows, schema=["id", "cell", "day"], orient="row")


@pytest.fixture(scope="module")
def reference() -> fk.Reference:
    return fk.Reference.from_counts([1, 1])


Planner = Callable[..., Any]


@pytest.fixture(scope="module")
def planned(reference: fk.Reference) -> Planner:
    def make(**more: Any) -> Any:
        return fk.plan(reference, clients=5, records=60, epsilon=1, series=WEEKS, **more)

    return make


def watch(reference: fk.Reference, table: Any, plan: Any, folder: Path, day: int) -> Any:
    return fk.monitor(
        reference,
        table,
        plan,
        client="id",
        history=folder / f"{plan.plan.population}.db",
        ledger=folder / f"ledger of {plan.plan.population}.db",
        counted=folder / "counted.db",
        key=fk.SigningKey.generate(),
        at=f"{MONDAY + timedelta(days=day)}T06:00:00+00:00",
    )


@pytest.mark.parametrize("kind", ["csv", "postgresql"])
def test_each_record_counts_in_its_week_once(
    kind: str,
    reference: fk.Reference,
    planned: Planner,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if kind == "csv":
        table: Any = tmp_path / "visits.csv"
        visits().write_csv(table)
    else:
        url = request.getfixturevalue("server")
        ingest(url, "weekly", visits().to_arrow())
        table = DatabaseTable(url, "weekly")
    plan = planned(population="one")
    found = watch(reference, table, plan, tmp_path, 8)
    assert [(each.number, each.records) for each in found.released] == [(0, 60)]
    with pytest.raises(HistoryError, match="counted before"):
        watch(reference, table, planned(population="other"), tmp_path, 8)


def test_who_is_asked_does_not_depend_on_the_week(
    reference: fk.Reference, planned: Planner, tmp_path: Path
) -> None:
    visits().write_csv(tmp_path / "visits.csv")
    key, plan = fk.SigningKey.generate(), planned()
    found = fk.monitor(
        reference,
        tmp_path / "visits.csv",
        plan,
        client="id",
        history=tmp_path / "history.db",
        ledger=tmp_path / "ledger.db",
        key=key,
        at="2027-01-19T06:00:00+00:00",
    )
    assert [each.records for each in found.released] == [60, 48]
    with History.open(tmp_path / "history.db", create=False) as history:
        releases = history.releases([0, 1])
    assert [each.cohorts[0].clients for each in releases.values()] == [5, 5]
    assert b"SECRET" not in (tmp_path / "history.db").read_bytes()


def test_a_table_needs_a_time_column(reference: fk.Reference, tmp_path: Path) -> None:
    named = fk.Series(every="week", first="2027-01-04", periods=4)
    plan = fk.plan(reference, clients=5, records=60, epsilon=1, series=named)
    with pytest.raises(InvalidInputError, match="--time-column"):
        watch(reference, tmp_path / "visits.csv", plan, tmp_path, 8)


def test_the_commands_read_a_server(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ingest(server, "weekly", visits(1).to_arrow())
    execute(server, "CREATE VIEW only_cells AS SELECT cell FROM weekly")
    call("reference", "--data", server, "--table", "only_cells", "-o", "ref.json")
    reference = fk.Reference.load("ref.json")
    assert reference.probabilities.tolist() == [0.5, 0.5, 0.0]
    once = fk.plan(reference, clients=5, records=60, epsilon=1)
    Path("plan.json").write_text(json.dumps(fk.SignedPlan(once.plan).to_dict()))
    own = ("--data", server, "--table", "weekly", "--client-column", "id")
    call("estimate", "plan.json", *own)
    assert fk.Release.load("release.json").records == 60
    first = date.today() - timedelta(days=date.today().weekday() + 7)
    weeks = fk.Series(every="week", first=str(first), periods=4, time_column="day")
    made = fk.plan(reference, clients=5, records=60, epsilon=1, series=weeks, population="weekly")
    Path("weeks.json").write_text(json.dumps(fk.SignedPlan(made.plan).to_dict()))
    shift = (first - MONDAY).days
    moved = f"SELECT id, cell, day + {shift} AS day FROM weekly"  # noqa: S608
    execute(server, f"CREATE VIEW now AS {moved}")
    here = ("--data", server, "--table", "now", "--client-column", "id")
    said = json.loads(call("monitor", "run", "weeks.json", *here, "--json").stdout)
    assert [each["records"] for each in said["points"] if each["state"] == "released"] == [60]
