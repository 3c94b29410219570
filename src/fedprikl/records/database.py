"""A table or view of a database (SQLite, DuckDB, PostgreSQL): read only, never a free query.

A count sees one state of the table, whoever writes meanwhile. Rows are fetched some at a time, and
each value is handed out as it is.
"""

import re
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fedprikl.errors import FedPriKLError, InvalidInputError, RecordsError
from fedprikl.libraries import duckdb, postgresql, pyarrow
from fedprikl.records.files import ROWS
from fedprikl.reference.rows import Chunk, FrameSource, Source
from fedprikl.reference.values import Odd

KINDS = {
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "postgresql": "postgresql",
    "postgres": "postgresql",
}
DATABASE = re.compile(r"(?:sqlite|duckdb):|[A-Za-z][A-Za-z0-9+.-]*://")
HOLDS_PASSWORD = re.compile(r"//.*:.*@")
# What libpq takes (password, sslpassword, oauth_client_secret, scram_client_key, scram_server_key),
# and what later versions may call a secret. Names of files with one (passfile, sslkey) are none.
SECRET = re.compile(r"password|secret|token|scram_.*_key", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or view, like `DatabaseTable("sqlite:clinic.db", "visits")`.

    `table` may name its schema, like `public.visits`. It is a name, never a query: a query can make
    one record many. The address of a PostgreSQL server is one of libpq, without a password.
    """

    url: str
    table: str

    def __post_init__(self) -> None:
        kind, rest = self.kind, self.url.partition(":")[2]
        if not kind or not rest.strip("/") or rest.startswith("//") != (kind == "postgresql"):
            raise InvalidInputError(  # it may hold a password: it is not shown
                "The data are sqlite:PATH, duckdb:PATH or postgresql://HOST/DATABASE, like "
                "sqlite:clinic.db. From another database, write the table to a Parquet file."
            )
        given = {name for name, _ in parse_qsl(rest.partition("?")[2], keep_blank_values=True)}
        if kind == "postgresql" and (HOLDS_PASSWORD.match(rest) or any(map(SECRET.search, given))):
            raise InvalidInputError(
                "The address of the database holds a password or another secret, and an address is "
                "seen by others: in lists of processes and in logs. Leave it out, and change it if "
                "others can have seen it. Write a password into ~/.pgpass or the file that "
                "PGPASSFILE names, or name a service of ~/.pg_service.conf: "
                "postgresql:///?service=clinic."
            )
        if not all(self.names) or "\0" in self.table:
            raise InvalidInputError("Name a table or view of the database (--table), like visits.")

    @property
    def kind(self) -> str:
        """Which database it is; empty if it is of no known kind."""
        return KINDS.get(self.url.partition(":")[0].lower(), "")

    @property
    def file(self) -> Path | None:
        """Where the database is, if it is a file."""
        return None if self.kind == "postgresql" else Path(self.url.partition(":")[2])

    @property
    def names(self) -> list[str]:
        """The schema, if it is named, and the table."""
        return self.table.split(".", maxsplit=1)

    @property
    def places(self) -> tuple[str, ...]:
        """By which a ledger knows the table, its name first; asks the server, if it has one.

        Names of tables have no case in SQLite and DuckDB.
        """
        if self.file is None:
            return PostgresSource(self).places
        return (f"{self.file.resolve()}: {self.table.casefold().removeprefix('main.')}",)

    def open(self) -> Source:
        """The table with its columns; reads no rows."""
        if self.file is None:
            return PostgresSource(self)
        if not self.file.is_file():
            raise RecordsError(f"There is no file {self.file}. Check --data.")
        return SqliteSource(self) if self.kind == "sqlite" else DuckDBSource(self)

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return ".".join(map(quoted, self.names))

    def select(self, columns: Sequence[str] | None) -> str:
        """The only query: some columns of all rows, or the names of all columns."""
        what = "*" if columns is None else ", ".join(map(quoted, columns))
        return f"SELECT {what} FROM {self.quoted}"  # noqa: S608  all are quoted

    def __str__(self) -> str:
        return f"The table {self.table} of {self.file or self.url}"


Place = Path | DatabaseTable  # where records are


def place_of(data: str, table: str = "") -> Place:
    """A file or folder, or a table of a database.

    >>> place_of("sqlite:clinic.db", "visits")
    DatabaseTable(url='sqlite:clinic.db', table='visits')
    """
    if DATABASE.match(data):
        return DatabaseTable(data, table)
    if table:
        raise InvalidInputError(
            "--table names a table of a database, and --data is a file or folder. Leave --table "
            "out, or write --data as sqlite:PATH, duckdb:PATH or postgresql://HOST/DATABASE."
        )
    return Path(data)


def quoted(name: str) -> str:
    """A name of SQL, whatever stands in it.

    >>> print(quoted('a "b"; DROP'))
    "a ""b""; DROP"
    """
    return '"' + name.replace('"', '""') + '"'


class SqliteSource(Source):
    """A value of SQLite has a type of its own, whatever its column says."""

    def __init__(self, table: DatabaseTable) -> None:
        """Reads the names of columns only."""
        self.table, self.where = table, str(table)
        with self._rows(None) as cursor:
            self.names = tuple(each[0] for each in cursor.description)

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        """All rows, some at a time."""
        with self._rows(columns) as cursor:
            while rows := cursor.fetchmany(ROWS):
                yield Chunk(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))

    @contextmanager
    def _rows(self, columns: Sequence[str] | None) -> Iterator[Any]:
        with _errors(self.table, sqlite3.Error):
            uri = f"{Path(self.table.file or '').resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.text_factory = _text
                yield connection.execute(self.table.select(columns))


def _text(value: bytes) -> Any:
    """What is no text must not stop the other records."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Odd.VALUE


# Only what the file itself holds, by one name: DuckDB also takes a file or another catalog for one.
DUCKDB_TABLE = """
SELECT 1 FROM (SELECT schema_name, table_name AS name, database_name FROM duckdb_tables()
UNION ALL SELECT schema_name, view_name, database_name FROM duckdb_views())
WHERE lower(name) = lower(?) AND lower(schema_name) = lower(?)
AND database_name = current_database()"""


class DuckDBSource(Source):
    """Columns of DuckDB have types, and are read as those of a Parquet file are."""

    def __init__(self, table: DatabaseTable) -> None:
        """Reads the names and types of columns only."""
        self.table, self.where = table, str(table)
        with self._batches(None) as reader:
            fields = list(reader.schema)
        self.names = tuple(each.name for each in fields)
        self._aware = {each.name for each in fields if getattr(each.type, "tz", None) is not None}

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        return column in self._aware

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        """All rows, some at a time."""
        with self._batches(columns) as reader:
            for batch in reader:
                yield from FrameSource(pyarrow.Table.from_batches([batch])).chunks(columns)

    @contextmanager
    def _batches(self, columns: Sequence[str] | None) -> Iterator[Any]:
        query = self.table.select(columns) + (" LIMIT 0" if columns is None else "")
        with (
            _errors(self.table, (duckdb.Error, pyarrow.ArrowException, OSError)),
            duckdb.connect(
                str(self.table.file), read_only=True, config={"enable_external_access": "false"}
            ) as connection,
        ):
            *schema, name = self.table.names
            if not connection.execute(DUCKDB_TABLE, [name, *(schema or ["main"])]).fetchall():
                raise RecordsError(
                    f"{self.table.file} has no table or view {self.table.table}. Name one of its "
                    "own, like visits, or clinic.visits in a schema."
                )
            yield connection.sql(query).to_arrow_reader(ROWS)


class PostgresSource(Source):
    """A table of a server: one transaction for as long as the source lives, which only reads.

    So names, rows, and rows that are read once more are of one state of the table.
    """

    def __init__(self, table: DatabaseTable) -> None:
        """Connects; reads the names and types of columns only."""
        self.table, self.where = table, str(table)
        with self._errors(opening=True):
            self._connection = postgresql.connect(table.url)
            weakref.finalize(self, self._connection.close)
            self._run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self.places = self._places()
        # Of a view, the server may compute something of rows before it reads any.
        with self._errors(), self._batches(table.select(None) + " LIMIT 0") as reader:
            fields = list(reader.schema)
        self.names = tuple(each.name for each in fields)
        self._aware = {each.name for each in fields if getattr(each.type, "tz", None) is not None}
        self._kinds = {each.name: _kind(each) for each in fields}

    def is_aware(self, column: str) -> bool:
        """Whether times of the column are instants, and not what some clock showed."""
        return column in self._aware

    def chunks(self, columns: Sequence[str], *, times: str | None = None) -> Iterator[Chunk]:  # noqa: ARG002
        """All rows, some at a time."""
        what = ", ".join(
            CASTS.get(self._kinds[name], "{}").format(quoted(name)) for name in columns
        )
        query = f"SELECT {what} FROM {self.table.quoted}"  # noqa: S608  all are quoted
        numbers = [name for name in columns if self._kinds[name] in ("numeric", "money")]
        with self._errors(), self._batches(query) as reader:
            for batch in reader:
                frame = pyarrow.Table.from_batches([batch]).rename_columns(list(columns))
                (chunk,) = FrameSource(frame.drop_columns(numbers)).chunks(
                    [name for name in columns if name not in numbers]
                )
                decimals = {name: _decimals(frame[name].to_pylist()) for name in numbers}
                yield Chunk({name: (chunk.columns | decimals)[name] for name in columns})

    def _places(self) -> tuple[str, ...]:
        """The table by its name and by its number, which stays if it is renamed."""
        (allowed,), *_ = self._run(
            "SELECT has_function_privilege('pg_control_system()', 'execute')"
        )
        asked = "(SELECT system_identifier FROM pg_control_system())" if allowed else "NULL"
        name = self.table.quoted.replace("'", "''")
        found = self._run(
            f"SELECT coalesce({asked}::text, inet_server_addr() || ':' || inet_server_port(), "  # noqa: S608
            "'local'), current_database()::text, d.oid::text, n.nspname::text, c.relname::text, "
            "c.oid::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_database d ON d.datname = current_database() "
            f"WHERE c.oid = to_regclass('{name}')"
        )
        if not found:
            raise RecordsError(
                f"{self.where} is not there: the database has no such table or view."
            )
        server, database, number, schema, own, own_number = found[0]
        server = f"postgresql {server}"
        return f"{server}/{database}: {schema}.{own}", f"{server}/{number}: {own_number}"

    def _run(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return [] if query.startswith("SET") else list(cursor.fetchall())

    @contextmanager
    def _batches(self, query: str) -> Iterator[Any]:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{BATCH_BYTES: str(2**20)})
            cursor.execute(query)
            with cursor.fetch_record_batch() as reader:
                yield reader

    @contextmanager
    def _errors(self, *, opening: bool = False) -> Iterator[None]:
        """What goes wrong becomes our error; the server's words are shown while no row is near."""
        try:
            yield
        except FedPriKLError:
            raise
        except (postgresql.Error, pyarrow.ArrowException, OSError) as error:
            said = f" It says: {' '.join(str(error).split())[:300]}" if opening else ""
            raise RecordsError(
                f"{self.where} cannot be read. Check the address, and that this user may read the "
                f"table.{said}"
            ) from None


BATCH_BYTES = "adbc.postgresql.batch_size_hint_bytes"
CASTS = {  # where the driver has no other reading than bytes, or cents: as the server writes it
    "money": "{}::numeric",
    "other": "nullif(format('%s', {}), '')",
}


def _kind(field: Any) -> str:
    """What a column needs: a cast where its type has no other reading, decimals as numbers."""
    known = str((field.metadata or {}).get(b"POSTGRESQL:type", b""), "ascii")
    if known in ("numeric", "money"):
        return known
    return "other" if getattr(field.type, "extension_name", "") == "arrow.opaque" else "plain"


def _decimals(texts: Sequence[str | None]) -> list[Decimal | None]:
    """The driver hands out numbers of any length as texts."""
    return [None if text is None else Decimal(text) for text in texts]


@contextmanager
def _errors(table: DatabaseTable, kinds: Any) -> Iterator[None]:
    """What goes wrong becomes our error, as that of the database may quote records."""
    try:
        yield
    except FedPriKLError:
        raise
    except kinds:
        raise RecordsError(
            f"{table} cannot be read. Check that the file is a {table.kind} database with this "
            "table or view, and that nobody holds it locked."
        ) from None
