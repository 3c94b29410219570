"""Counting a file's records in one streaming GROUP BY.

Numbers are binned in SQL. Categories come back as raw values and get their level in Python, by
the same rule as a data frame's (`level_text`); texts the reference cannot know are merged first,
so the number of groups depends on the reference and not on how many values a client has.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from fedprikl.checks import Ints
from fedprikl.errors import RecordsError
from fedprikl.federation.data_files import DataFile, quoted_names, reading
from fedprikl.reference import Bins, Categories, Domain, Indices, Table
from fedprikl.reference.columns import UNSEEN, level_text

__all__ = ["CodeCounts", "code_counts", "count_file", "is_number", "number", "raw_value"]

FETCH = 20_000
NUMBER_TYPES = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)")
# Texts that `level_text` turns into another one, besides cutting off a final ".000".
OTHER_SPELLINGS = {
    "-0": "0",
    "true": "True",
    "TRUE": "True",
    "false": "False",
    "FALSE": "False",
}
FRACTION_TYPES = re.compile(r"FLOAT|DOUBLE|DECIMAL\(.*\)")


@dataclass(frozen=True, slots=True)
class CodeCounts:
    """Some groups of rows: the code of each, its number of rows, and rows unknown by column."""

    codes: Ints
    rows: Ints
    unknown: dict[str, int]
    by: tuple[Any, ...] = ()  # of each group: its value in the column it was split by, if any


def count_file(
    file: DataFile, domain: Domain, connection: duckdb.DuckDBPyConnection
) -> tuple[Ints, dict[str, int]]:
    """h(x) per cell, "other" last, and how many rows each column made unreadable."""
    counts = np.zeros(domain.size, dtype=np.int64)
    unknown: dict[str, int] = {}
    match domain.encoder:
        case Table() as table:
            groups = code_counts(file, table, connection)
        case Indices() as indices:
            groups = _index_counts(file, indices, connection)
        case _:
            raise RecordsError(
                f"The reference is of images, and {file.path} is a table. Pass the images as an "
                "array, or use a reference built from a table."
            )
    for group in groups:
        np.add.at(counts, domain.cells_of(group.codes), group.rows)
        for name, rows in group.unknown.items():
            unknown[name] = unknown.get(name, 0) + rows
    return counts, unknown


def code_counts(
    file: DataFile,
    table: Table,
    connection: duckdb.DuckDBPyConnection,
    *,
    by: str | None = None,
) -> Iterator[CodeCounts]:
    """Codes of a table's rows with their counts, a batch of groups at a time.

    A code is a sum of level * place over the columns: SQL adds up the binned columns (`binned`),
    Python the others. Rows that differ in the column `by` are not added up.
    """
    query = _GroupQuery.of(file, table, by)
    with reading(file.path, len(file.names)):
        cursor = connection.execute(query.sql, query.parameters)
        while batch := cursor.fetchmany(FETCH):
            yield query.decode(batch)


def number(expression: str, kind: str) -> str:
    """SQL for a value as DOUBLE: NULL where it is missing or no number."""
    if is_number(kind) or kind == "BOOLEAN":
        return f"CAST({expression} AS DOUBLE)"
    return f"TRY_CAST(CAST({expression} AS VARCHAR) AS DOUBLE)"


def raw_value(expression: str, kind: str) -> tuple[str, Callable[[Any], Any] | None]:
    """SQL for a category's raw value, NULL where missing, and what to make of it in Python.

    Fractions come back as numbers, since duckdb writes 1e+20 and 0.10 in its own way; all else
    as text.
    """
    if not FRACTION_TYPES.fullmatch(kind):
        return f"CAST({expression} AS VARCHAR)", None
    if kind.startswith("DECIMAL"):
        return expression, None
    present = f"CASE WHEN NOT isnan({expression}) THEN {expression} END"
    return present, (_single if kind == "FLOAT" else None)


def is_number(kind: str) -> bool:
    """Whether a duckdb type is one of numbers."""
    return NUMBER_TYPES.fullmatch(kind) is not None


def _single(value: float | None) -> Any:
    return None if value is None else np.float32(value)  # 0.1 as text, not 0.10000000149


@dataclass(frozen=True, slots=True)
class _Category:
    """A column that Python decodes: its name, the weight of its level, and its look-up."""

    name: str
    place: int
    level: Callable[[Any], int]
    convert: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class _GroupQuery:
    """The GROUP BY for one file, and how to read its rows: binned, categories, rows, unknown,
    and the value in the column it is split by.
    """

    sql: str
    parameters: dict[str, Any]
    categories: list[_Category]
    binned: list[str]
    by: Callable[[Any], Any] | None

    @classmethod
    def of(cls, file: DataFile, table: Table, by: str | None) -> "_GroupQuery":
        parameters: dict[str, Any] = dict(file.parameters)
        categories, binned, inner, keys, levels, terms = [], [], [], [], [], ["CAST(0 AS BIGINT)"]
        place = table.size
        for i, column in enumerate(table.columns):
            at = file.index(column.name)
            place //= column.size
            if isinstance(column, Bins):
                inner.append(f"{_bin_level(column, f'c{at}', file.types[at])} AS v{i}")
                levels.append(f"v{i}")
                terms.append(f"v{i} * CAST({place} AS BIGINT)")
                binned.append(column.name)
                continue
            raw, convert = raw_value(f"c{at}", file.types[at])
            if not file.types[at].startswith("DECIMAL"):
                is_text = FRACTION_TYPES.fullmatch(file.types[at]) is None
                merge, possible = (
                    (_merge_unknown_texts, _possible_texts)
                    if is_text
                    else (_merge_unknown_numbers, _possible_numbers)
                )
                parameters[f"known{i}"] = possible(column)
                raw = merge(raw, column, f"$known{i}")
            inner.append(f"{raw} AS v{i}")
            keys.append(f"v{i}")
            categories.append(_Category(column.name, place, column.level_of(), convert))
        unknown = " OR ".join(f"{level} = {UNSEEN}" for level in levels) or "false"
        outer = [
            f"CASE WHEN {unknown} THEN {UNSEEN} ELSE {' + '.join(terms)} END AS binned",
            *keys,
            "count(*)",
            *(f"count_if({level} = {UNSEEN})" for level in levels),
        ]
        split, read = _split(file, by)
        inner.extend(split)
        outer.extend("part" for _ in split)
        keys.extend("part" for _ in split)
        sql = (
            f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {file.table}) "  # noqa: S608  aliases, parameters and numbers only
            f"GROUP BY {', '.join(['binned', *keys])}"
        )
        return cls(sql, parameters, categories, binned, read)

    def decode(self, batch: list[Any]) -> CodeCounts:
        values = list(zip(*batch, strict=True))
        after = 1 + len(self.categories)
        codes = np.array(values[0], dtype=np.int64)
        rows = np.array(values[after], dtype=np.int64)
        unseen = codes == UNSEEN
        unknown = {
            name: sum(of_column)
            for name, of_column in zip(
                self.binned, values[after + 1 : after + 1 + len(self.binned)], strict=True
            )
        }
        for column, raw in zip(self.categories, values[1:after], strict=True):
            known = raw if column.convert is None else map(column.convert, raw)
            levels = np.fromiter(map(column.level, known), np.int64, len(batch))
            unknown[column.name] = int(rows[levels == UNSEEN].sum())
            unseen |= levels == UNSEEN
            codes += levels * column.place
        codes[unseen] = UNSEEN
        return CodeCounts(codes, rows, unknown, tuple(map(self.by, values[-1])) if self.by else ())


def _split(file: DataFile, by: str | None) -> tuple[list[str], Callable[[Any], Any] | None]:
    """SQL for the column to split by, if any, and what to make of its values."""
    if by is None:
        return [], None
    at = file.index(by)
    raw, convert = raw_value(f"c{at}", file.types[at])
    return [f"{raw} AS part"], convert or _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _bin_level(column: Bins, expression: str, kind: str) -> str:
    """SQL for the level of a number: bins (e_i, e_{i+1}], then missing, and `UNSEEN`."""
    value = number(expression, kind)
    # A nan in a column of numbers is a gap; the text "nan" is a text that is no number.
    not_a_number = column.size - 1 if is_number(kind) else UNSEEN
    steps = "".join(
        f" WHEN {value} <= CAST('{edge!r}' AS DOUBLE) THEN {level}"
        for level, edge in enumerate(column.edges)
    )
    return (
        f"CASE WHEN {expression} IS NULL THEN {column.size - 1} "
        f"WHEN {value} IS NULL OR isnan({value}) THEN {not_a_number}{steps} "
        f"ELSE {len(column.edges)} END"
    )


def _possible_texts(column: Categories) -> list[str]:
    """Every text a known value may have once a final ".000" is cut off; a superset is enough."""
    texts = set(column.values)
    texts |= {re.sub(r"\.0*\Z", "", text) for text in texts}
    texts |= {text for text, level in OTHER_SPELLINGS.items() if level in texts}
    return sorted(texts)


def _merge_unknown_texts(text: str, column: Categories, known: str) -> str:
    """SQL that leaves possible texts and NULL as they are and makes one text of all others."""
    unknown = "?"
    while unknown in column.values:
        unknown += "?"
    shortened = (
        f"CASE WHEN contains({text}, '.') THEN regexp_replace({text}, '\\.0*$', '') ELSE {text} END"
    )
    return (
        f"CASE WHEN {text} IS NULL OR {shortened} IN (SELECT unnest({known}::VARCHAR[])) "
        f"THEN {text} ELSE '{unknown}' END"
    )


def _possible_numbers(column: Categories) -> list[float]:
    """Every number whose text may be a known value, in double and in single precision."""
    numbers = set()
    for text in column.values:
        try:
            number = float(text)
        except ValueError:
            continue
        with np.errstate(over="ignore"):
            numbers |= {number, float(np.float32(number))}
    return sorted(numbers)


def _merge_unknown_numbers(value: str, column: Categories, known: str) -> str:
    """SQL that leaves possible numbers and NULL as they are and makes one number of all others."""
    unknown = next(n for n in itertools.count(0.5) if level_text(n) not in column.values)
    return (
        f"CASE WHEN {value} IS NULL OR CAST({value} AS DOUBLE) "
        f"IN (SELECT unnest({known}::DOUBLE[]))"
        f" THEN {value} ELSE CAST('{unknown!r}' AS DOUBLE) END"
    )


def _index_counts(
    file: DataFile, indices: Indices, connection: duckdb.DuckDBPyConnection
) -> Iterator[CodeCounts]:
    """Cell numbers from the only column, or the one called "cell"; 1.0 and "1" are 1."""
    if "cell" not in file.names and len(file.names) != 1:
        raise RecordsError(
            f"Records of this reference are cell numbers, but {file.path} has no column 'cell' "
            f"among {quoted_names(file.names)}. Name the column with the numbers 'cell'."
        )
    at = file.names.index("cell") if "cell" in file.names else 0
    value = number(f"c{at}", file.types[at])
    sql = (
        f"SELECT CASE WHEN d >= 0 AND d < {indices.size} AND d = floor(d) "  # noqa: S608  no text from outside
        f"THEN CAST(d AS BIGINT) ELSE {UNSEEN} END AS code, count(*) "
        f"FROM (SELECT {value} AS d FROM {file.table}) GROUP BY code"
    )
    with reading(file.path, len(file.names)):
        cursor = connection.execute(sql, file.parameters)
        while batch := cursor.fetchmany(FETCH):
            codes, rows = np.array(batch, dtype=np.int64).T
            unknown = {file.names[at]: int(rows[codes == UNSEEN].sum())}
            yield CodeCounts(codes, rows, unknown)
