"""The same records in a file and in a database give the same counts."""

import sqlite3
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records import DatabaseTable, count_by_client, database, open_table
from fedprikl.reference import Reference

NOON = datetime(2027, 1, 4, 12, tzinfo=UTC)
ROWS: list[
    tuple[Any, ...]
] = [  # id, a number, a text, a day, an instant, a truth value, a whole one
    ("a", 1.5, "Zürich", date(2027, 1, 4), NOON, True, 2**53 + 1),
    ("a", None, "", None, None, None, None),
    ("b", float("nan"), 'it\'s "quoted"', date(1, 1, 1), NOON, False, -(2**63)),
    ("b", float("inf"), "007", date(2027, 1, 5), NOON.replace(microsecond=5), True, 7),
    ("c", -1e300, "x" * 70_000, date(9999, 12, 31), NOON, True, 2**63 - 1),
    ("c", 3.0, "7", date(2027, 1, 4), NOON, False, 0),
    (None, 1.5, "Zürich", date(2027, 1, 4), NOON, True, 1),
]
NAMES = ("id", "size", 'the "text"', "day", "at", "new", "whole")
TYPES = ("VARCHAR", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMPTZ", "BOOLEAN", "BIGINT")
KINDS = ("csv", "parquet", "sqlite", "duckdb")


def frame() -> pl.DataFrame:
    return pl.DataFrame(ROWS, schema=NAMES, orient="row")


REFERENCE = Reference.fit(frame().drop("id")[:4], bins=3)


def stored(kind: str, folder: Path) -> Any:
    if kind == "csv":
        frame().write_csv(folder / "rows.csv")
        return folder / "rows.csv"
    if kind == "parquet":
        frame().write_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    path, names = folder / f"rows.{kind}", ", ".join(map(database.quoted, NAMES))
    insert = f"INSERT INTO visits VALUES ({', '.join('?' * len(NAMES))})"  # noqa: S608
    if kind == "sqlite":
        with sqlite3.connect(path) as file:
            file.execute(f"CREATE TABLE visits ({names})")
            file.executemany(insert, map(_plain, ROWS))
        file.close()
    else:
        columns = ", ".join(f"{database.quoted(n)} {t}" for n, t in zip(NAMES, TYPES, strict=True))
        with duckdb.connect(str(path)) as made:
            made.execute(f"CREATE TABLE visits ({columns})")
            made.executemany(insert, ROWS)
    return DatabaseTable(f"{kind}:{path}", "visits")


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite has no times and no truth values: they are stored as texts."""
    return tuple(str(v) if isinstance(v, bool | date) else v for v in row)


def counts(table: Any) -> list[Any]:
    found = count_by_client(open_table(table), REFERENCE, "id", no_client="drop").values()
    return sorted([v.tolist() for v in (each.counts, *each.views)] for each in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_has_its_cell_wherever_it_lies(kind: str, tmp_path: Path) -> None:
    own = counts(frame())
    assert len(own) == 3
    assert counts(stored(kind, tmp_path)) == own


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_names_are_names_and_never_queries(kind: str, tmp_path: Path) -> None:
    there = stored(kind, tmp_path)
    assert counts(DatabaseTable(there.url, "main.visits")) == counts(there)
    assert DatabaseTable(there.url, "main.Visits").place == there.place
    for name in ("nothing", "(SELECT * FROM visits)", 'visits" UNION SELECT * FROM "visits'):
        with pytest.raises(RecordsError, match="cannot be read"):
            counts(DatabaseTable(there.url, name))
    with pytest.raises(RecordsError, match="no column 'tail'"):
        count_by_client(open_table(there), REFERENCE, "tail")
    (tmp_path / "text.db").write_text("no database, of more than some bytes" * 50)
    with pytest.raises(RecordsError, match="cannot be read"):
        DatabaseTable(f"{kind}:{tmp_path / 'text.db'}", "visits").open()


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(InvalidInputError, match="sqlite:PATH or duckdb:PATH") as refused:
        DatabaseTable("postgresql://me:hunter2@host/db", "visits")
    assert "hunter2" not in str(refused.value)


def test_a_text_that_is_none_stops_no_other_record(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("CREATE TABLE t (id, cell)")
        file.execute("INSERT INTO t VALUES ('a', CAST(x'ff' AS TEXT)), ('a', 1)")
    file.close()
    table = DatabaseTable(f"sqlite:{tmp_path / 'a.db'}", "t")
    (found,) = count_by_client(open_table(table), Reference.from_counts([1, 1]), "id").values()
    assert found.counts.tolist() == [0, 1, 1]


def test_a_ledger_knows_a_table_by_its_place(tmp_path: Path) -> None:
    reference = fk.Reference.from_counts([1, 1])
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("CREATE TABLE t (id, cell)")
        file.executemany("INSERT INTO t VALUES (?, ?)", [(n % 5, n % 2) for n in range(60)])
        file.commit()
        table = DatabaseTable(f"sqlite:{tmp_path / 'a.db'}", "t")
        plans = [
            fk.plan(reference, clients=5, records=60, epsilon=1, population=name)
            for name in ("one", "other")
        ]
        ledger = tmp_path / "ledger.db"
        found = fk.compare(reference, table, plans[0], client="id", ledger=ledger)
        assert found.release.records == 60
        file.execute("INSERT INTO t VALUES (9, 1)")  # another content, in the same place
    file.close()
    with pytest.raises(InvalidInputError, match="'one'"):
        fk.compare(reference, table, plans[1], client="id", ledger=ledger)
