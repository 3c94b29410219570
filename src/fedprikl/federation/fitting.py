"""Pi from a public CSV or Parquet file, without a data-frame library."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import duckdb
import numpy as np

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError, RecordsError
from fedprikl.federation.counting import code_counts, is_number, number, raw_value
from fedprikl.federation.data_files import (
    DataFile,
    data_files,
    is_csv,
    quoted_names,
    reading,
    session,
)
from fedprikl.reference import Bins, Categories, Domain, Reference, Resemblance, Table
from fedprikl.reference.columns import Column
from fedprikl.reference.reference import client_texts, compared_columns

__all__ = ["fit_reference"]

LEADING_ZERO = "^[+-]?0[0-9]"  # 007 is a name that looks like a number


def fit_reference(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    bins: int = 10,
    categorical: Iterable[str] = (),
    clients: str | None = None,
) -> Reference:
    """Pi of a public CSV or Parquet file; the same as `Reference.fit` of its rows.

    A CSV has no types: a column is one of numbers if every present value is a number and none has
    a leading zero. Clients read the same file by the same rules, so levels agree: a category keeps
    its text, 007 included.
    """
    check_positive_int(bins, "bins")
    files = data_files(Path(path))
    if Path(path).is_dir():
        raise InvalidInputError(f"{path} is a folder. Give one public .csv or .parquet file.")
    with session() as connection:
        file = DataFile.open(files[0], connection)
        names = compared_columns(file.names, columns, clients)
        forced = set(categorical)
        for name in (*names, *sorted(forced), *([] if clients is None else [clients])):
            file.index(name)
        stray = sorted(forced - set(names))
        if stray:
            raise InvalidInputError(
                f"Categorical {quoted_names(stray)} is not among the columns {quoted_names(names)}."
            )
        table = Table(
            tuple(
                _fit_column(file, name, bins, connection, categorical=name in forced)
                for name in names
            )
        )
        return _fit_mass(file, table, connection, clients)


def _fit_column(
    file: DataFile,
    name: str,
    bins: int,
    connection: duckdb.DuckDBPyConnection,
    *,
    categorical: bool,
) -> Column:
    at = file.index(name)
    column, kind = f"c{at}", file.types[at]
    value = number(column, kind)
    with reading(file.path, len(file.names)):
        if not categorical and _holds_numbers(file, column, kind, connection):
            distinct = connection.execute(
                f"SELECT count(DISTINCT {value}) + CAST(count(*) > count({value}) AS INTEGER) "  # noqa: S608  aliases only
                f"FROM {file.table}",
                file.parameters,
            ).fetchall()[0][0]
            if distinct > bins:
                numbers = connection.execute(
                    f"SELECT {value} AS d FROM {file.table} WHERE d IS NOT NULL",  # noqa: S608  aliases only
                    file.parameters,
                ).fetchnumpy()["d"]
                return Bins.from_numbers(name, np.asarray(numbers, dtype=np.float64), bins)
        if not (is_number(kind) or kind in ("VARCHAR", "BOOLEAN") or kind.startswith("ENUM")):
            raise InvalidInputError(
                f"Column {name!r} holds {kind}, which has no natural cells. Turn it into a number "
                "or a text first, or leave it out with `columns`."
            )
        raw, convert = raw_value(column, kind)
        tally = connection.execute(
            f"SELECT {raw} AS v, count(*) FROM {file.table} GROUP BY v",  # noqa: S608  aliases only
            file.parameters,
        ).fetchall()
    return Categories.from_tally(
        name, ((convert(raw) if convert else raw, rows) for raw, rows in tally)
    )


def _holds_numbers(
    file: DataFile, column: str, kind: str, connection: duckdb.DuckDBPyConnection
) -> bool:
    """Whether a column is one of numbers: by its type, or in a CSV by all of its values."""
    if not is_csv(file.path):
        return is_number(kind)
    value = number(column, kind)
    present, numbers = connection.execute(
        f"SELECT count({column}), count_if({value} IS NOT NULL AND NOT isnan({value}) "  # noqa: S608  aliases only
        f"AND NOT regexp_matches({column}, '{LEADING_ZERO}')) FROM {file.table}",
        file.parameters,
    ).fetchall()[0]
    return bool(0 < present == numbers)


def _fit_mass(
    file: DataFile, table: Table, connection: duckdb.DuckDBPyConnection, clients: str | None
) -> Reference:
    groups = list(code_counts(file, table, connection, by=clients))
    if not groups:
        raise RecordsError(f"{file.path} has no rows. Give at least one public record.")
    codes, place = np.unique(np.concatenate([group.codes for group in groups]), return_inverse=True)
    rows = np.concatenate([group.rows for group in groups])
    mass = np.append(np.bincount(place, weights=rows), 0.0)
    resemblance = None
    if clients is not None:
        texts = client_texts((client for group in groups for client in group.by), clients)
        resemblance = Resemblance.estimate(texts, place, rows)
    return Reference(Domain(table, codes), mass, resemblance)
