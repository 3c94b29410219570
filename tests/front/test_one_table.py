"""A comparison of one table with an id column."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.cli.app import app
from fedprikl.errors import FedPriKLError, InvalidInputError, RecordsError
from fedprikl.privacy.statement import NO_CLIENT
from tests.cli.test_round_commands import call, fails, runner

CLIENTS = 30


def visits(gap: bool = False) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    ids: list[str | None] = [f"SECRET{i % CLIENTS}" for i in range(600)]
    ids[17] = None if gap else ids[17]
    return pl.DataFrame({"ward": rng.choice(["a", "b", "c"], 600), "patient": ids})


@pytest.fixture(scope="module")
def reference() -> fk.Reference:
    return fk.Reference.fit(pl.DataFrame({"ward": ["a"] * 50 + ["b"] * 30 + ["c"] * 20}))


@pytest.fixture(scope="module", params=["record", "client"])
def planned(request: pytest.FixtureRequest, reference: fk.Reference) -> Any:
    return fk.plan(reference, clients=CLIENTS, records=600, epsilon=1, unit=request.param)


@pytest.mark.parametrize("no_client", ["drop", "one-each"])
@pytest.mark.parametrize("gap", [False, True])
def test_a_release_says_what_became_of_rows_without_an_id(
    reference: fk.Reference, planned: Any, no_client: Any, gap: bool
) -> None:
    found = fk.compare(
        reference, visits(gap), planned, client="patient", no_client=no_client, ledger=None
    )
    alone = gap and no_client == "one-each"
    assert found.release.cohorts[0].clients == CLIENTS + alone
    assert NO_CLIENT[no_client] in str(found.privacy)
    again = fk.Release.from_bytes(found.release.to_bytes())
    assert again.is_intact
    assert again.privacy.no_client == no_client
    assert "SECRET" not in f"{found.release.to_bytes()!r}{found!r}{found.to_dict()}"


def test_a_refused_row_charges_nothing(
    reference: fk.Reference, planned: Any, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.db"
    with pytest.raises(RecordsError, match="has no client"):
        fk.compare(reference, visits(gap=True), planned, client="patient", ledger=ledger)
    assert not ledger.exists()


def test_the_old_message_names_the_option(reference: fk.Reference, planned: Any) -> None:
    with pytest.raises(InvalidInputError, match="--client-column"):
        fk.compare(reference, visits(), planned)
    with pytest.raises(FedPriKLError, match="2 clients; a secure sum needs 3"):
        fk.compare(reference, visits()[:2], planned, client="patient", ledger=None)


def test_the_command(
    planned: Any,
    reference: fk.Reference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    reference.save("ref.json")
    Path("plan.json").write_text(json.dumps(fk.SignedPlan(planned.plan).to_dict()))
    visits(gap=True).write_csv("visits.csv")
    assert "--client-column" in fails(monkeypatch, capsys, "estimate", "plan.json", "visits.csv")
    said = call(
        "estimate", "plan.json", "visits.csv", "--client-column", "patient", "--no-client", "drop"
    ).output
    assert NO_CLIENT["drop"] in " ".join(said.split())
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "visits.csv")
    assert b"SECRET" not in kept
    assert "SECRET" not in said


def test_the_command_reads_a_database(
    planned: Any,
    reference: fk.Reference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    reference.save("ref.json")
    Path("plan.json").write_text(json.dumps(fk.SignedPlan(planned.plan).to_dict()))
    with sqlite3.connect("clinic.db") as file:
        file.execute("CREATE TABLE visits (ward, id)")
        file.executemany("INSERT INTO visits VALUES (?, ?)", visits().rows())
    file.close()
    line = ["estimate", "plan.json", "--data", "sqlite:clinic.db", "--table", "visits"]
    for wrong in (line, ["estimate", "plan.json"], [*line, "clients", "--client-column", "id"]):
        assert runner.invoke(app, wrong).exit_code == 2
    over = [*line, "--client-column", "id", "--report", "clinic.db", "--force"]
    assert "never overwritten" in fails(monkeypatch, capsys, *over)
    said = call(*line, "--client-column", "id").output
    assert NO_CLIENT["refuse"] in " ".join(said.split())
