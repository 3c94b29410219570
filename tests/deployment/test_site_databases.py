"""Sites whose records are in databases, or in CSV files of another kind, take part like others."""

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from fedprikl.deployment.flower.parties import check_carried
from fedprikl.deployment.settings import data_settings
from fedprikl.records import CsvFormat, DatabaseTable
from tests.deployment.fake_grid import FakeFederation
from tests.deployment.in_process import in_process_value
from tests.postgres import ingest
from tests.protocol.worlds import InsecureNoNoise


def test_a_round_of_files_and_tables(
    federation: FakeFederation, server: str, tmp_path: Path
) -> None:
    expected = in_process_value(federation.home, federation.files, {})
    grid = federation.grid()
    frame = pl.read_csv(federation.files[0])
    ingest(server, "site", frame.to_arrow())
    grid.contexts[1].node_config |= data_settings(DatabaseTable(server, "site"))
    with sqlite3.connect(tmp_path / "site.db") as file:
        frame = pl.read_csv(federation.files[1])
        file.execute(f"CREATE TABLE site ({', '.join(frame.columns)})")
        marks = ", ".join("?" * frame.width)
        file.executemany(f"INSERT INTO site VALUES ({marks})", frame.rows())  # noqa: S608
    file.close()
    place = DatabaseTable(f"sqlite:{tmp_path / 'site.db'}", "site")
    grid.contexts[2].node_config |= data_settings(place)
    release, _ = federation.run(grid, source=InsecureNoNoise())
    assert release.value == pytest.approx(expected)
    assert release.cohorts[0].clients == len(federation.files)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_round_with_a_csv_file_of_another_separator(
    federation: FakeFederation, tmp_path: Path, separator: str
) -> None:
    expected, grid = in_process_value(federation.home, federation.files, {}), federation.grid()
    own = tmp_path / "own.csv"
    own.write_text(federation.files[0].read_text().replace(",", separator), encoding="cp1252")
    config = data_settings(own, CsvFormat(separator, "cp1252"))
    check_carried(config)
    grid.contexts[1].node_config |= config
    release, _ = federation.run(grid, source=InsecureNoNoise())
    assert release.value == pytest.approx(expected)
