"""The same records in a file and in a database give the same counts."""

import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import fedprikl as fk
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.records import (
    DatabaseTable,
    count_by_client,
    database,
    open_records,
    open_table,
    place_of,
)
from fedprikl.records.database import PostgresSource
from fedprikl.reference import Reference
from fedprikl.reference.values import level_text
from tests.postgres import PASSWORD, execute, ingest

HUGE = Decimal("123456789012345678901234567890.5")

NOON = datetime(2027, 1, 4, 12, tzinfo=UTC)
ROWS: list[tuple[Any, ...]] = [
    ("a", 1.5, "Zürich", date(2027, 1, 4), NOON, True, 2**53 + 1, b"abc", Decimal("1.25")),
    ("a", None, "", None, None, None, None, None, None),
    ("b", float("nan"), 'it\'s "x"', date(1, 1, 1), NOON, False, -(2**63), b"", Decimal("-0.75")),
    ("b", float("inf"), "007", date(2027, 1, 5), NOON.replace(microsecond=5), True, 7, b"1", None),
    ("c", -1e300, "x" * 70_000, date(9999, 12, 31), NOON, True, 2**63 - 1, "ü".encode(), HUGE),
    ("c", 3.0, "7", date(2027, 1, 4), NOON, False, 0, b"abc", Decimal("1.25")),
    (None, 1.5, "Zürich", date(2027, 1, 4), NOON, True, 1, b"abc", Decimal("1.25")),
]
COLUMNS = {
    "id": "VARCHAR",
    "size": "DOUBLE",
    'the "text"': "VARCHAR",
    "day": "DATE",
    "at": "TIMESTAMPTZ",
    "new": "BOOLEAN",
    "whole": "BIGINT",
    "raw": "BLOB",
    "amount": "DECIMAL(38, 2)",
}
NAMES = tuple(COLUMNS)
KINDS = ("csv", "parquet", "sqlite", "duckdb", "postgresql")


def frame(rows: list[tuple[Any, ...]] = ROWS) -> pl.DataFrame:
    types = {name: pl.Decimal(38, 2) if name == "amount" else None for name in NAMES}
    return pl.DataFrame(rows, schema=types, orient="row")


REFERENCE = Reference.fit(frame().drop("id")[:4], bins=3)


def stored(
    kind: str,
    folder: Path,
    request: pytest.FixtureRequest,
    rows: list[tuple[Any, ...]] = ROWS,
) -> Any:
    if kind == "csv":
        frame(rows).with_columns(pl.col("raw").cast(pl.String)).write_csv(folder / "rows.csv")
        return folder / "rows.csv"
    if kind == "parquet":
        frame(rows).write_parquet(folder / "rows.parquet")
        return folder / "rows.parquet"
    if kind == "postgresql":
        url = request.getfixturevalue("server")
        table = frame(rows).with_columns(pl.col("amount").cast(pl.String)).to_arrow()
        ingest(url, "visits", table)
        execute(url, "ALTER TABLE visits ALTER COLUMN amount TYPE numeric USING amount::numeric")
        return DatabaseTable(url, "visits")
    path = folder / f"rows.{kind}"
    insert = f"INSERT INTO visits VALUES ({', '.join('?' * len(NAMES))})"  # noqa: S608
    if kind == "sqlite":
        with sqlite3.connect(path) as file:
            file.execute(f"CREATE TABLE visits ({', '.join(map(database.quoted, NAMES))})")
            file.executemany(insert, map(_plain, rows))
        file.close()
    else:
        columns = ", ".join(f"{database.quoted(n)} {t}" for n, t in COLUMNS.items())
        with duckdb.connect(str(path)) as made:
            made.execute(f"CREATE TABLE visits ({columns})")
            made.executemany(insert, rows)
    return DatabaseTable(f"{kind}:{path}", "visits")


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite has no times, truth values or decimals: they are stored as texts."""
    return tuple(str(v) if isinstance(v, bool | date | Decimal) else v for v in row)


def counts(table: Any) -> list[Any]:
    found = count_by_client(open_table(table), REFERENCE, "id", no_client="drop").values()
    return sorted([v.tolist() for v in (each.counts, *each.views)] for each in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_has_its_cell_wherever_it_lies(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    own = counts(frame())
    assert len(own) == 3
    there = stored(kind, tmp_path, request)
    assert counts(there) == own
    whole = open_records(there).count(REFERENCE)
    assert whole.total == len(ROWS)
    assert whole.counts.tolist() == REFERENCE.count(frame().drop("id")).tolist()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_bytes_that_are_no_text_change_no_other_record(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rows = [(*row[:7], b"\xff\x00" if n == 3 else row[7], row[8]) for n, row in enumerate(ROWS)]
    assert counts(stored(kind, tmp_path, request, rows)) == counts(frame(rows))


@pytest.mark.parametrize("kind", KINDS[2:])
def test_names_are_names_and_never_queries(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    there = stored(kind, tmp_path, request)
    schema = "public" if kind == "postgresql" else "main"
    named = DatabaseTable(there.url, f"{schema}.visits")
    assert counts(named) == counts(there)
    assert named.places == there.places
    for name in ("nothing", "(SELECT * FROM visits)", 'visits" UNION SELECT * FROM "visits', "a'"):
        with pytest.raises(RecordsError, match=r"cannot be read|no such table|has no table"):
            counts(DatabaseTable(there.url, name))
    with pytest.raises(RecordsError, match="no column 'tail'"):
        count_by_client(open_table(there), REFERENCE, "tail")


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_no_database_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, of more than some bytes" * 50)
    with pytest.raises(RecordsError, match="cannot be read"):
        DatabaseTable(f"{kind}:{tmp_path / 'text.db'}", "visits").open()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgres://me:hun/ter2@host/db",
        "postgresql://me:hun?ter2@host/db",
        "postgresql://me@server:hunter2@host/db",
        "postgresql://host/db?user=me&password=hunter2",
        "postgresql://host/db?p%61ssword=hunter2",
        "postgresql://host/db?sslpassword=hunter2",
        "postgresql://host/db?oauth_client_id=me&oauth_client_secret=hunter2",
        "postgresql://host/db?oauth_client_s%65cret=hunter2",
        "postgresql://host/db?scram_client_key=hunter2",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInputError, match="PGPASSFILE") as refused:
        DatabaseTable(url, "visits")
    assert "hunter2" not in str(refused.value)
    assert "ter2" not in str(refused.value)


@pytest.mark.parametrize("option", ["passfile=/p", "sslkey=/k", "service=s", "oauth_client_id=me"])
def test_where_a_secret_is_may_be_said(option: str) -> None:
    assert DatabaseTable(f"postgresql://host/db?{option}", "visits").kind == "postgresql"


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:", "postgresql:db", "sqlite://a.db"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="postgresql://HOST/DATABASE"):
        DatabaseTable(url, "visits")


def test_a_place_is_a_path_or_a_table() -> None:
    assert place_of("records.csv") == Path("records.csv")
    assert place_of("postgresql://host:5432/db", "v") == DatabaseTable(
        "postgresql://host:5432/db", "v"
    )
    with pytest.raises(InvalidInputError, match="--table"):
        place_of("records.csv", "visits")
    with pytest.raises(InvalidInputError, match="Name a table"):
        place_of("sqlite:a.db")


def test_a_password_comes_from_the_users_own_file(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(server, "cells", pl.DataFrame({"cell": [0, 1, 1]}).to_arrow())
    execute(server, "GRANT SELECT ON cells TO reader")
    table = DatabaseTable(server.replace("user=owner", "user=reader"), "cells")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    with pytest.raises(RecordsError, match="no password supplied"):
        table.open()
    (tmp_path / "pass").write_text(f"*:*:*:reader:{PASSWORD}\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    found = open_records(table).count(Reference.from_counts([1, 1]))
    assert found.counts.tolist() == [1, 2, 0]


def test_a_count_sees_one_state_and_changes_nothing(server: str) -> None:
    ingest(server, "cells", pl.DataFrame({"cell": [0, 1, 1]}).to_arrow())
    source = DatabaseTable(server, "cells").open()
    assert isinstance(source, PostgresSource)
    rows = source._run(
        "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
    )
    assert rows == [("repeatable read", "on")]
    execute(server, "INSERT INTO cells VALUES (1)")
    assert sum(chunk.rows for chunk in source.chunks(["cell"])) == 3
    assert sum(chunk.rows for chunk in source.chunks(["cell"])) == 3
    assert sum(chunk.rows for chunk in DatabaseTable(server, "cells").open().chunks(["cell"])) == 4


def test_odd_types_of_a_server(server: str) -> None:
    execute(
        server,
        "DROP TABLE IF EXISTS odd CASCADE",
        "CREATE TABLE odd (n numeric, m money, ip inet, u uuid, day date, at timestamp, l int[])",
        "INSERT INTO odd VALUES (1.50, '2.25', '10.0.0.1', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2027-01-04', '2027-01-04', '{1}')",
        "INSERT INTO odd VALUES ('NaN', NULL, NULL, NULL, 'infinity', '-infinity', NULL)",
        "INSERT INTO odd VALUES ('Infinity', NULL, NULL, NULL, '4713-01-01 BC', '294000-01-01')",
    )
    source = DatabaseTable(server, "odd").open()
    (chunk,) = source.chunks(source.names)
    first = [str(level_text(values[0])) for values in chunk.columns.values()]
    assert first[:4] == ["1.5", "2.25", "10.0.0.1", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]
    assert first[4:] == ["2027-01-04", "2027-01-04", "None"]
    frame = pl.DataFrame({"day": [date(2027, 1, 4)] * 2 + [date(2027, 1, 5)]})
    times = Reference.fit(frame, bins=1)
    execute(server, "CREATE VIEW days AS SELECT day FROM odd")
    found = open_records(DatabaseTable(server, "days")).count(times)
    assert found.total == 3
    assert found.other == 2  # no day of a calendar, and present


def test_a_view_that_says_a_value_before_it_is_read_is_not_quoted(server: str) -> None:
    """PostgreSQL computes functions that it holds for constant as it plans a query."""
    ingest(server, "words", pl.DataFrame({"cell": ["1", "secret"]}).to_arrow())
    execute(
        server,
        "CREATE FUNCTION constant() RETURNS int IMMUTABLE LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN (SELECT max(cell)::int FROM words); END $$",
        "CREATE VIEW constants AS SELECT constant() AS cell FROM words",
    )
    with pytest.raises(RecordsError, match="cannot be read") as refused:
        DatabaseTable(server, "constants").open()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", ["duckdb", "postgresql"])
def test_a_view_that_fails_tells_no_record(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    view = "CREATE VIEW numbers AS SELECT cell::int AS cell FROM cells"
    if kind == "postgresql":
        url = request.getfixturevalue("server")
        ingest(url, "cells", pl.DataFrame({"cell": ["1", "secret"]}).to_arrow())
        execute(url, view)
    else:
        url = f"duckdb:{tmp_path / 'a.db'}"
        with duckdb.connect(str(tmp_path / "a.db")) as made:
            made.execute("CREATE TABLE cells AS SELECT unnest(['1', 'secret']) AS cell")
            made.execute(view)
    records = open_records(DatabaseTable(url, "numbers"))
    with pytest.raises(RecordsError, match="cannot be read") as refused:
        records.count(Reference.from_counts([1, 1]))
    assert "secret" not in str(refused.value)


def test_a_table_is_known_again_when_it_is_renamed(server: str, tmp_path: Path) -> None:
    reference = fk.Reference.from_counts([1, 1])
    rows = pl.DataFrame({"id": [n % 5 for n in range(60)], "cell": [n % 2 for n in range(60)]})
    ingest(server, "before", rows.to_arrow())
    plans = [
        fk.plan(reference, clients=5, records=60, epsilon=1, population=name)
        for name in ("one", "other")
    ]
    ledger = tmp_path / "ledger.db"
    fk.compare(reference, DatabaseTable(server, "before"), plans[0], client="id", ledger=ledger)
    execute(server, "DROP TABLE IF EXISTS after", "ALTER TABLE before RENAME TO after")
    with pytest.raises(InvalidInputError, match="'one'"):
        fk.compare(reference, DatabaseTable(server, "after"), plans[1], client="id", ledger=ledger)


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


@pytest.mark.parametrize("name", ["x.csv", "x.visits", "nothing"])
def test_a_table_of_duckdb_is_one_of_its_own_by_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """DuckDB itself would read a file of that name, or take its own catalog for a schema."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("a\n1\n")
    with duckdb.connect("x.duckdb") as made:
        made.execute("CREATE TABLE visits (a INTEGER)")
    assert DatabaseTable("duckdb:x.duckdb", "visits").open().names == ("a",)
    with pytest.raises(RecordsError, match="has no table or view"):
        DatabaseTable("duckdb:x.duckdb", name).open()
