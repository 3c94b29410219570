"""The reference file: versioned JSON, one cell per line, with a fingerprint of its content."""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedprikl.checks import Ints, check_positive_int
from fedprikl.documents import Format, digest, is_same, parse_document, read_fields, to_plain
from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.reference.client_counts import ClientCounts
from fedprikl.reference.columns import Bins, Categories, Column, Times
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import (
    BlockCode,
    Domain,
    Encoder,
    Indices,
    Table,
    ViewKind,
    all_codes,
)
from fedprikl.reference.values import instant, time_text
from fedprikl.reference.views import View, check_views
from fedprikl.store import replace_file

FORMAT = Format("reference", advice="It needs a new plan too.")
CORRELATION = "correlation"
MOST_CELLS = 2**28  # whose numbers a file may imply
ABOUT = (
    "A public distribution Pi. 'records' says how a record becomes a cell; each line of 'cells' is "
    "a cell (one level per column, counted from 0, the last level being 'missing'; or a code) and "
    "its mass. Pi is mass divided by the sum of all masses. 'other' is the mass of records that "
    "have no cell. Each line of 'views' is the distribution of one column, or of a pair: its cells "
    "are levels of these columns alone. Without 'cells' only the views can be compared. 'held' are "
    "records per client, without names: cells (counted from 0) with counts, clients apart by ';'. "
    "Populations without drift are drawn from them, to find thresholds. 'periods' are records per "
    "period of the reference in the same form: how much periods differ is ordinary."
)
Views = tuple[View, tuple[View, ...]]  # of a reference: the whole, and more
Edge = TypeVar("Edge", int, float)


def write(path: str | Path, whole: View, views: Sequence[View] = ()) -> None:
    """Write a reference file."""
    try:
        replace_file(Path(path), dumps(whole, views).encode())
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot write the reference {path}: {error.strerror}. Check the path."
        ) from None
    except UnicodeEncodeError:
        raise ReferenceFileError(
            "A category holds characters that are not valid text. Clean the column first."
        ) from None


def read(path: str | Path) -> Views:
    """The views of a reference file."""
    try:
        return loads(Path(path).read_bytes())
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot read the reference {path}: {error.strerror}. Check the path."
        ) from None
    except ReferenceFileError as error:
        raise ReferenceFileError(f"{path}: {error}") from None


def fingerprint(whole: View, views: Sequence[View] = ()) -> str:
    """SHA-256 (hex) of the canonical content; does not depend on layout or comments.

    Nor on the version: plans name it for years. What a later version adds is left out where a
    reference does not have it.
    """
    return digest(["fedprikl-reference", _content(whole, views)])


def dumps(whole: View, views: Sequence[View] = ()) -> str:
    """The file's text. Cells of mass 0 are left out where the domain implies them."""
    document = _document(whole, views)
    lists = [_lines(name, document.pop(name)) for name in ("views", "cells") if name in document]
    opened = json.dumps(document, indent=2, ensure_ascii=False).removesuffix("\n}")
    return ",\n".join([opened, *lists]) + "\n}\n"


def loads(text: str | bytes) -> Views:
    """What a file's text holds; anything else gives a `ReferenceFileError`."""
    try:
        document = FORMAT.current(parse_document(text, "reference"))
        encoder = _parse_encoder(document["records"])
        whole = _parse_view(encoder, document)
        views = tuple(_parse_part(encoder, fields) for fields in document.get("views", ()))
        check_views(whole, views)
    except InvalidInputError as error:
        raise ReferenceFileError(
            f"{error} Build the reference again from public data, with `fedprikl reference` or "
            "`Reference.fit(...).save(path)`."
        ) from None
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ReferenceFileError(
            "The reference is damaged: a field is malformed. Build it again."
        ) from None
    if not is_same(document | {"about": ABOUT}, _document(whole, views)):
        raise ReferenceFileError(
            "The reference's content does not match its fingerprint: it was changed after it was "
            "written. Build it again."
        )
    return whole, views


def _lines(name: str, entries: list[Any]) -> str:
    lines = ",\n".join("    " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f'  "{name}": [\n{lines}\n  ]'


def _document(whole: View, views: Sequence[View]) -> dict[str, Any]:
    head = FORMAT.head | {"about": ABOUT}
    return head | {"fingerprint": fingerprint(whole, views)} | _content(whole, views)


def _content(whole: View, views: Sequence[View]) -> dict[str, Any]:
    content = {"records": _encoder(whole.domain.encoder)} | _masses(whole)
    return content | {"views": [_part(view) for view in views]} if views else content


def _part(view: View) -> dict[str, Any]:
    """A view that is not the whole."""
    content, encoder = {"columns": list(view.columns)} | _masses(view), view.domain.encoder
    if isinstance(encoder, ViewKind):
        content["of"] = {"kind": encoder.kind} | encoder.to_dict()
    return content


def _parse_part(table: Encoder, fields: dict[str, Any]) -> View:
    if not isinstance(table, Table):
        raise InvalidInputError("It has views, but not of columns.")
    match fields:
        case {"columns": list(columns), "of": {"kind": str(kind)}}:
            encoder = ViewKind.named(kind).from_dict(table, fields["of"])
            return _parse_view(encoder, fields, tuple(columns))
        case {"columns": list(columns)} if set(columns) <= set(table.names):
            return _parse_view(table.part(columns), fields, tuple(columns))
    raise InvalidInputError("A view is not one of its columns.")


def _masses(view: View) -> dict[str, Any]:
    encoder, places = view.domain.encoder, view.domain.codes.tolist()
    if isinstance(encoder, Table):
        levels = encoder.levels(view.domain.codes)
        places = np.column_stack([levels[name] for name in encoder.names]).tolist()
    *masses, other = (int(m) if m.is_integer() else m for m in view.mass.tolist())
    cells = [
        [place, mass]
        for place, mass in zip(places, masses, strict=True)
        if mass or not isinstance(encoder, Indices)
    ]
    content = {"other": other, "cells": cells}
    # Left out where unknown, so that references without client ids keep their fingerprint.
    kind = view.correlation
    if view.periods:
        content["periods"] = view.periods
    return content if kind is None else content | {CORRELATION: to_plain(kind)}


def _parse_view(encoder: Encoder, fields: dict[str, Any], columns: tuple[str, ...] = ()) -> View:
    """The inverse of `_masses`."""
    codes = _parse_codes(encoder, [place for place, _ in fields["cells"]])
    mass = np.array([_number(mass) for _, mass in fields["cells"]])
    if isinstance(encoder, Indices):
        Domain(encoder, codes)  # distinct and in range
        dense = np.zeros(encoder.size)
        dense[codes] = mass
        codes, mass = all_codes(encoder.size), dense
    kind = fields.get(CORRELATION)
    correlation = None if kind is None else read_fields(Correlation, kind)
    mass = np.append(mass, _number(fields["other"]))
    periods = fields.get("periods", "")
    if periods != "":
        ClientCounts.read(periods)
    return View(Domain(encoder, codes), mass, correlation, columns, periods)


def _parse_codes(encoder: Encoder, places: Sequence[Any]) -> Ints:
    """The codes of cells: of their levels in a table, or themselves."""
    if not isinstance(encoder, Table) or not places:
        return np.array([_whole(place) for place in places], dtype=np.int64)
    levels = np.array([[_whole(level) for level in place] for place in places], dtype=np.int64)
    if np.any(levels >= [column.size for column in encoder.columns]):
        raise InvalidInputError("A cell names a level its column does not have.")
    return encoder.codes(dict(zip(encoder.names, levels.T, strict=True)))


def _encoder(encoder: Encoder) -> dict[str, Any]:
    """How records become cells."""
    match encoder:
        case Indices(number=size):
            return {"kind": "cell numbers", "size": size}
        case BlockCode():
            return {"kind": "images"} | asdict(encoder)
        case Table(columns=columns, missing=missing):
            listed = [{"name": column.name, column.kind: _levels(column)} for column in columns]
            return {"kind": "table", "missing": sorted(missing), "columns": listed}
    raise TypeError(encoder)  # pragma: no cover  a new encoder must be named here


def _levels(column: Column) -> list[Any]:
    match column:
        case Categories(values=values):
            return list(values)
        case Times(edges=moments):
            return [time_text(moment) for moment in moments]
        case Bins(edges=edges):
            return list(edges)


def _parse_encoder(records: dict[str, Any]) -> Encoder:
    match records:
        case {"kind": "cell numbers", "size": int(size)} if size <= MOST_CELLS:
            return Indices(check_positive_int(size, "size"))
        case {"kind": "images", **settings}:
            return BlockCode(**settings)
        case {"kind": "table", "missing": list(missing), "columns": list(columns)} if all(
            isinstance(text, str) for text in missing
        ):
            return Table(tuple(_parse_column(column) for column in columns), tuple(missing))
    raise InvalidInputError("It does not say how records become cells.")


def _parse_column(column: dict[str, Any]) -> Column:
    match column:
        case {"name": str(name), "categories": list(values)}:
            if len(set(values)) < len(values) or not all(isinstance(v, str) for v in values):
                raise InvalidInputError(f"Column {name!r} must list distinct texts.")
            return Categories(name, tuple(values))
        case {"name": str(name), "bins": list(edges)}:
            return Bins(name, _increasing(name, map(_number, edges)))
        case {"name": str(name), "times": list(texts)}:
            return Times(name, _increasing(name, (instant(text) for text in texts)))
    raise InvalidInputError("A column is neither categories nor bins nor times.")


def _increasing(name: str, edges: Iterable[Edge | None]) -> tuple[Edge, ...]:
    given = tuple(edges)
    known = tuple(edge for edge in given if edge is not None)
    if len(known) < len(given) or any(b <= a for a, b in itertools.pairwise(known)):
        raise InvalidInputError(f"The bins or times of column {name!r} must increase.")
    return known


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInputError(f"Expected a whole number, found {value!r:.40}.")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInputError(f"Expected a number, found {value!r:.40}.")
    return float(value)
