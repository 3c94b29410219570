"""A table or view of a database file (SQLite or DuckDB): read only, never a free query.

One SELECT reads it, so that a count sees one state of the table, whoever writes meanwhile. Rows are
fetched some at a time, and each value is handed out as it is.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedprikl.errors import FedPriKLError, InvalidInputError, RecordsError
from fedprikl.libraries import duckdb, pyarrow
from fedprikl.records.files import ROWS
from fedprikl.reference.rows import Chunk, FrameSource, Source
from fedprikl.reference.values import Odd

KINDS = ("sqlite", "duckdb")


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table or view, like `DatabaseTable("sqlite:clinic.db", "visits")`.

    `table` may name its schema, like `main.visits`. It is a name, never a query: a query can make
    one record many.
    """

    url: str
    table: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not self.path.name:  # it may hold a password: it is not shown
            raise InvalidInputError(
                "The data are sqlite:PATH or duckdb:PATH, like sqlite:clinic.db. From another "
                "database, write the table to a Parquet file."
            )
        if not all(self.names) or "\0" in self.table:
            raise InvalidInputError("Name a table or view of the database (--table), like visits.")

    @property
    def kind(self) -> str:
        """Which database it is."""
        return self.url.partition(":")[0]

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.url.partition(":")[2])

    @property
    def names(self) -> list[str]:
        """The schema, if it is named, and the table."""
        return self.table.split(".", maxsplit=1)

    @property
    def place(self) -> str:
        """By which a ledger knows the table. Names of tables have no case in these databases."""
        name = self.table.casefold().removeprefix("main.")
        return f"{self.path.resolve()}: {name}"

    def open(self) -> Source:
        """The table with its columns; reads no rows."""
        if not self.path.is_file():
            raise RecordsError(f"There is no file {self.path}. Check --data.")
        return SqliteSource(self) if self.kind == "sqlite" else DuckDBSource(self)

    def select(self, columns: Sequence[str] | None) -> str:
        """The only query: some columns of all rows, or the names of all columns."""
        what = "*" if columns is None else ", ".join(map(quoted, columns))
        return f"SELECT {what} FROM {'.'.join(map(quoted, self.names))}"  # noqa: S608  all are quoted


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
        self.table, self.where = table, f"The table {table.table} of {table.path}"
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
            uri = f"{self.table.path.resolve().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.text_factory = _text
                yield connection.execute(self.table.select(columns))


def _text(value: bytes) -> Any:
    """What is no text must not stop the other records."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Odd.VALUE


class DuckDBSource(Source):
    """Columns of DuckDB have types, and are read as those of a Parquet file are."""

    def __init__(self, table: DatabaseTable) -> None:
        """Reads the names and types of columns only."""
        self.table, self.where = table, f"The table {table.table} of {table.path}"
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
            _errors(self.table, (duckdb.Error, pyarrow.ArrowException)),
            duckdb.connect(str(self.table.path), read_only=True) as connection,
        ):
            yield connection.sql(query).to_arrow_reader(ROWS)


@contextmanager
def _errors(table: DatabaseTable, kinds: Any) -> Iterator[None]:
    """What goes wrong becomes our error, as that of the database may quote records."""
    try:
        yield
    except FedPriKLError:
        raise
    except kinds:
        raise RecordsError(
            f"The table {table.table} of {table.path} cannot be read. Check that the file is a "
            f"{table.kind} database with this table or view, and that nobody holds it locked."
        ) from None
