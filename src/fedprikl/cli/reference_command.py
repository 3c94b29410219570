"""`fedprikl reference`: Pi from a public CSV or Parquet file."""

import csv
import io
import re
import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedprikl.cli.console import notes, print_json, say, show, show_table, shown
from fedprikl.cli.options import (
    DATABASE,
    CsvOptions,
    Force,
    Json,
    TableName,
    check_outputs,
    file_of,
    grouped,
    one_place,
)
from fedprikl.errors import InvalidInputError
from fedprikl.records import CsvFormat, Place, fit_reference
from fedprikl.records.sources import open_source
from fedprikl.reference import ClientCounts, Reference, Table
from fedprikl.reference.columns import Categories, Column, Times
from fedprikl.reference.rows import quoted_names
from fedprikl.reference.values import MISSING_TEXTS

SHOWN = 10
DATE = re.compile(r"'?\d{1,2}[./-]\d{1,2}[./-](\d\d)?\d\d'?")  # the year last
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d[\d.' ]*,\d+\s*")
CROWDED = 0.1  # cells per record
UNIQUE = 0.5  # values per record
# Rules of thumb for hints: what a column of ids looks like, or is called.
MANY, FEW_EACH = 100, 20  # categories, and records of each
CATEGORIES = 200  # more are many for a column that is no id
ID = re.compile("(?i:(^|.*[ _.-])(id|uuid|guid))|.*[a-z](Id|ID)")
ALWAYS_MISSING = ("", "NaN", "nan")  # how data frames write a gap


@grouped
def reference_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the reference.")],
    csv_options: CsvOptions,
    file: Annotated[
        Path | None, typer.Argument(help="A public .csv, .csv.gz or .parquet file.")
    ] = None,
    data: Annotated[str | None, typer.Option(help=f"In place of FILE, {DATABASE}.")] = None,
    table: TableName = "",
    columns: Annotated[
        str | None, typer.Option(help="The columns to compare, like city,age. Default: all.")
    ] = None,
    bins: Annotated[int, typer.Option(min=1, help="Bins of a column of numbers.")] = 10,
    categorical: Annotated[
        str | None, typer.Option(help="Columns of numbers to take as categories, like ward.")
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="The column with the client ids, like user_id.")
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="The column with the times of the records, like visited_at.")
    ] = None,
    reference_periods: Annotated[
        str,
        typer.Option(help="With --time-column: compare a day, week, month or quarter as ordinary."),
    ] = "week",
    pair: Annotated[
        list[str] | None,
        typer.Option(help="Two columns to compare together, like city,age. May be repeated."),
    ] = None,
    columns_only: Annotated[
        bool,
        typer.Option("--columns-only", help="Each column by itself, without combinations of all."),
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(help="Texts that stand for a gap, like NA,?. Default: those of pandas."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Builds the public distribution Pi that clients are compared with, and writes it to a file.

    Everything in the file is public: give it public data only. Columns of numbers, dates or times
    with more than BINS distinct values are cut at their quantiles; all others are categories. A CSV
    column holds numbers if all of its values are numbers without leading zeros, or gaps. The texts
    in MISSING are gaps here and at every client, and so are empty fields and NaN. CLIENT_COLUMN is
    not compared: it shows how correlated the records of one client are, which a verdict on drift
    needs. TIME_COLUMN is not compared either, unless it is in COLUMNS: it shows how much the
    REFERENCE_PERIODS of the public data differ from each other, and a series does not count such
    differences as drift.

    The cells are combinations of all columns; each column and each PAIR is compared by itself too.
    Where the columns have too many combinations, only columns and pairs are compared.

    Example: `fedprikl reference census.csv -o ref.json --columns city,age --bins 8`

    Example: `fedprikl reference wide.parquet -o ref.json --pair city,age --pair city,plan`

    Example: `fedprikl reference --data sqlite:public.db --table visits -o ref.json`
    """
    place = one_place(file, data, table, "a public file")
    inputs = [found] if (found := file_of(place)) and found.is_file() else []
    check_outputs(output, force=force, inputs=inputs)
    remarks: list[str] = []
    with notes.status(f"reading {shown(str(file or table))}"):
        reference = fit_reference(
            place,
            columns=None if columns is None else _names(columns),
            bins=bins,
            categorical=_names(categorical or ""),
            client=client_column,
            missing=MISSING_TEXTS if missing is None else [*ALWAYS_MISSING, *_names(missing)],
            pairs=[_pair(text) for text in pair or ()],
            joint=False if columns_only else None,
            times=time_column,
            periods=reference_periods,
            format=csv_options.format,
            note=remarks.append,
        )
        if missing is None:
            remarks.extend(_gaps(place, reference, csv_options.format))
        reference.save(output)
    remarks.extend([*_format_hints(reference), *_cautions(reference, client_column)])
    remarks.extend(_column_hints(reference, client_column, time_column))
    for remark in remarks:
        notes.print(f"[yellow]note:[/yellow] {shown(remark)}")
    document = _document(reference, output) | {"notes": remarks}
    if json:
        print_json(document)
    else:
        _print_tables(document)


def _names(text: str) -> list[str]:
    """Names from a list with commas; a name with a comma in it is put in double quotes."""
    return next(csv.reader([text], skipinitialspace=True), [])


def _pair(text: str) -> tuple[str, str]:
    match _names(text):
        case [one, two]:
            return one, two
    raise InvalidInputError(f"--pair takes two columns, like city,age; got {text!r:.60}.")


def _columns(reference: Reference) -> tuple[Column, ...]:
    encoder = reference.domain.encoder
    assert isinstance(encoder, Table)  # noqa: S101  as `fit_reference` makes it
    return tuple(encoder.columns)


def _gaps(data: Place, reference: Reference, form: CsvFormat) -> list[str]:
    """The texts that were taken for gaps without being asked: NA may be Namibia."""
    names = [column.name for column in _columns(reference)]
    texts = set(MISSING_TEXTS) - set(ALWAYS_MISSING)
    found: dict[str, set[str]] = {}
    for chunk in open_source(data, form).chunks(names):
        for name, values in chunk.columns.items():
            if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
                seen = {value for value in values if isinstance(value, str)} & texts
                found.setdefault(name, set()).update(seen)
    return [
        f"Column {name!r}: {quoted_names(sorted(seen))} is taken as missing. If it is a value, say "
        "which texts are gaps with --missing."
        for name, seen in found.items()
        if seen
    ]


def _format_hints(reference: Reference) -> list[str]:
    """What the file seems to be, where it was read as something else."""
    columns = _columns(reference)
    if len(columns) == 1 and (found := re.search("[;\t|]", columns[0].name)):
        mark = "tab" if found[0] == "\t" else found[0]
        return [f"The fields of the file seem to be separated by {mark}: --separator {mark!r}."]
    commas = [
        f"Column {column.name!r} holds {column.size - 1:,} categories that look like numbers with "
        "decimal commas. Write them with a point, here and at every client, to have them read as "
        "numbers."
        for column in columns
        if _has_decimal_commas(column)
    ]
    return commas + [
        f"Column {column.name!r} holds {column.size - 1:,} categories that look like dates. Write "
        "them as 2023-11-13, here and at every client, to have them read as dates."
        for column in columns
        if column.size > 2 and all(DATE.fullmatch(column.label(i)) for i in range(column.size - 1))
    ]


def _has_decimal_commas(column: Column) -> bool:
    """Whether most of its categories are such numbers; the rest are whole numbers, maybe."""
    if not isinstance(column, Categories):
        return False
    found = sum(DECIMAL_COMMA.fullmatch(value) is not None for value in column.values)
    return found > 1 and found > len(column.values) / 2


def _column_hints(
    reference: Reference, client_column: str | None, time_column: str | None
) -> list[str]:
    """Columns that seem to say whose a record is, or when it was made: neither is compared."""
    records, columns = int(reference.whole.mass.sum()), _columns(reference)
    hints = []
    for column in columns:
        levels, name = column.size - 1, column.name
        if levels > UNIQUE * records or _has_decimal_commas(column):  # it has a note of its own
            continue
        many = _has_many(column, records)
        if client_column is None and (many or ID.fullmatch(name)):
            hints.append(
                f"Column {name!r} looks like ids and is compared. If it says which client a record "
                f"belongs to, name it with --client-column {shlex.quote(name)}; if not, but it is "
                "no property of a record, leave it out with --columns. In a federation a client is "
                "a site, so ids of patients are left out."
            )
        elif many and levels > CATEGORIES:
            hints.append(
                f"Column {name!r} has {levels:,} categories, with {records / levels:.0f} records "
                "each on average: little is found in so few. Group them, or leave the column out "
                "with --columns."
            )
        elif time_column is None and isinstance(column, Times):
            hints.append(
                f"Column {name!r} holds times and is compared: later records lie outside of it. If "
                f"it says when a record was made, name it with --time-column {shlex.quote(name)}."
            )
    return hints


def _has_many(column: Column, records: int) -> bool:
    """Whether it has as many categories as a column of ids."""
    return isinstance(column, Categories) and column.size - 1 >= max(MANY, records / FEW_EACH)


def _cautions(reference: Reference, client_column: str | None) -> list[str]:
    """What makes a reference useless, though it can be built: too few records in each cell."""
    records, cells = int(reference.whole.mass.sum()), reference.whole.size
    levels = {column.name: column.size - 1 for column in _columns(reference)}
    unique = [name for name, size in levels.items() if size > UNIQUE * records]
    if unique:
        ids = [
            column.name
            for column in _columns(reference)
            if client_column is None and (_has_many(column, records) or ID.fullmatch(column.name))
        ]
        rest = [name for name in levels if name not in (*unique, *ids)]
        advice = f"leave it out with {_columns_option(rest)}" if rest else "compare another column"
        which = "Column" if len(unique) == 1 else "Each of the columns"
        return [
            f"{which} {quoted_names(unique)} has almost as many values as there are records, so "
            f"nothing can be compared by it: {advice}."
        ]
    if not reference.joint:
        return []
    if cells > CROWDED * records:
        largest = sorted(levels, key=lambda name: -levels[name])
        sizes = ", ".join(f"{name!r} ({levels[name]:,} levels)" for name in largest[:SHOWN])
        return [
            f"There are {cells:,} cells for {records:,} records, so most cells hold too few of "
            f"them. The cells combine {sizes}: compare fewer columns with --columns, or use "
            "fewer --bins. Or compare each column by itself (--columns-only)."
        ]
    return []


def _columns_option(names: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return f"--columns {shlex.quote(line.getvalue())}"


def _document(reference: Reference, output: Path) -> dict[str, Any]:
    pi, kind = reference.probabilities, reference.whole.correlation
    heaviest = np.argsort(-pi, kind="stable")[: min(SHOWN, len(pi) - 1)]
    return {
        "reference": str(output),
        "fingerprint": reference.fingerprint,
        "records": int(reference.whole.mass.sum()),
        "joint": reference.joint,
        "periods": len(ClientCounts.read(found)) if (found := _timed(reference)) else None,
        "cells": reference.whole.size,
        "correlation": kind
        and {
            "icc": kind.icc,
            "size_variation": kind.size_variation,
            "clients": kind.clients,
            "kept": len(ClientCounts.read(kind.held)),
        },
        "columns": [
            {
                "name": column.name,
                "kind": column.kind,
                "levels": column.size - 1,
                "first_levels": [column.label(i) for i in range(min(column.size - 1, SHOWN))],
            }
            for column in _columns(reference)
        ],
        "views": [
            {
                "columns": list(view.columns),
                "cells": view.size,
                "icc": view.correlation and view.correlation.icc,
            }
            for view in reference.views
        ],
        "heaviest": [
            {"cell": reference.domain.label(int(cell)), "probability": float(pi[cell])}
            for cell in heaviest
        ],
    }


def _timed(reference: Reference) -> str:
    """What its periods hold, where the public data has times."""
    return next((view.periods for view in (reference.whole, *reference.views) if view.periods), "")


def _print_tables(document: dict[str, Any]) -> None:
    rows = []
    for column in document["columns"]:
        like = ", ".join([*column["first_levels"][:3], *(["..."] if column["levels"] > 3 else [])])
        rows.append((shown(column["name"]), column["kind"], f"{column['levels']:,}", shown(like)))
    show_table(("column", "kind", "levels", "like"), rows, right=[2], lines=True)
    _print_cells(document)
    pairs = [" and ".join(view["columns"]) for view in document["views"] if view["columns"][1:]]
    if pairs:
        show(shown(f"pairs: {', '.join(pairs)}"))
    if (found := document["correlation"]) is not None:
        show(
            shown(
                f"{found['clients']:,} clients; the correlation of one client's records is "
                f"{_correlations(document)}. Thresholds come from the records of "
                f"{found['kept']:,} of them"
            )
        )
    if document["periods"] is not None:
        number = f"{document['periods']:,} periods"
        show(f"{number}: where a series is planned, as much as they differ counts as no drift")
    say(f"reference: {document['reference']}")


def _correlations(document: dict[str, Any]) -> str:
    """That of the cells that combine all columns, and the largest of a column."""
    parts = [f"{document['correlation']['icc']:.3f} in the cells"] if document["joint"] else []
    views = [
        each for each in document["views"] if each["icc"] is not None and not each["columns"][1:]
    ]
    if views:
        most = max(views, key=lambda each: float(each["icc"]))
        parts.append(f"largest in column {most['columns'][0]!r}: {most['icc']:.3f}")
    return ", and ".join(parts) or f"{document['correlation']['icc']:.3f}"


def _print_cells(document: dict[str, Any]) -> None:
    if not document["joint"]:
        show(
            f"{document['records']:,} records, compared by {len(document['columns']):,} columns, "
            "each by itself; there are no cells that combine all of them"
        )
        return
    rows = [(shown(cell["cell"]), f"{cell['probability']:.2%}") for cell in document["heaviest"]]
    show_table(("heaviest cells", "Pi"), rows, right=[1], lines=True)
    show(f"{document['records']:,} records in {document['cells']:,} cells, and 'other'")
