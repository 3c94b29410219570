"""The reference file: versioned JSON, one cell per line, with a fingerprint of its content."""

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedprikl.checks import Ints, check_positive_int
from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.reference.columns import Bins, Categories, Column, Times
from fedprikl.reference.correlation import Correlation, Factors
from fedprikl.reference.domain import Domain, Encoder, Indices, Table, all_codes
from fedprikl.reference.images import BlockCode
from fedprikl.reference.values import instant, time_text
from fedprikl.reference.views import View, check_views
from fedprikl.store import replace_file

FORMAT = "fedprikl reference"
VERSION = 5  # 5: what was missed; 4: views of columns; 3: how clients differ; 2: gaps, times
CORRELATION = "resemblance"  # its name in a file
ABOUT = (
    "A public distribution Pi. 'records' says how a record becomes a cell; each line of 'cells' is "
    "a cell (one level per column, counted from 0, the last level being 'missing'; or a code) and "
    "its mass. Pi is mass divided by the sum of all masses. 'other' is the mass of records that "
    "have no cell. Each line of 'views' is the distribution of one column, or of a pair: its cells "
    "are levels of these columns alone. Without 'cells' only the views can be compared."
)


def plain_number(value: float) -> int | float:
    """A whole number without a point."""
    return int(value) if value.is_integer() else value


def encoder_dict(encoder: Encoder) -> dict[str, Any]:
    """How records become cells."""
    match encoder:
        case Indices(size=size):
            return {"kind": "cell numbers", "size": size}
        case BlockCode():
            return {
                "kind": "images",
                "side": encoder.side,
                "blocks": encoder.blocks,
                "white": encoder.white,
                "threshold": encoder.threshold,
            }
        case Table(columns=columns, missing=missing):
            return {
                "kind": "table",
                "missing": sorted(missing),
                "columns": [_column_dict(column) for column in columns],
            }
    raise TypeError(encoder)  # pragma: no cover  a new encoder must be named here


def _column_dict(column: Column) -> dict[str, Any]:
    content: list[Any]
    match column:
        case Categories():
            content = list(column.values)
        case Bins():
            content = list(column.edges)
        case Times():
            content = [time_text(edge) for edge in column.edges]
    return {"name": column.name, column.kind: content}


def parse_correlation(fields: Any) -> Correlation | None:
    """None where the file has none."""
    match fields:
        case None:
            return None
        case {
            "icc": icc,
            "size_variation": variation,
            "clients": clients,
            "discount": discount,
            "factors": factors,
            "missed": missed,
            "missed_error": error,
            **rest,
        } if not rest:
            return Correlation(
                icc=parse_number(icc),
                size_variation=parse_number(variation),
                clients=_parse_whole(clients),
                discount=parse_number(discount),
                factors=_parse_factors(factors),
                missed=parse_number(missed),
                missed_error=parse_number(error),
            )
    raise InvalidInputError("it does not say how correlated the clients' records are.")


def _parse_factors(fields: Any) -> Factors | None:
    match fields:
        case None:
            return None
        case {
            "cells": list(cells),
            "own": list(own),
            "common": list(common),
            "unlike": unlike,
            **rest,
        } if not rest:
            return Factors(
                cells=tuple(map(_parse_whole, cells)),
                own=tuple(map(parse_number, own)),
                common=tuple(tuple(map(parse_number, row)) for row in common),
                unlike=parse_number(unlike),
            )
    raise InvalidInputError("it does not say how the clients differ.")


def parse_encoder(records: dict[str, Any]) -> Encoder:
    """The inverse of `encoder_dict`."""
    match records:
        case {"kind": "cell numbers", "size": int(size), **rest} if not rest and size <= 2**28:
            return Indices(check_positive_int(size, "size"))
        case {"kind": "images", **settings}:
            return BlockCode(**settings)
        case {"kind": "table", "missing": list(missing), "columns": list(columns), **rest} if (
            not rest and all(isinstance(text, str) for text in missing)
        ):
            return Table(tuple(_parse_column(column) for column in columns), tuple(missing))
    raise InvalidInputError("it does not say how records become cells.")


def _parse_column(column: dict[str, Any]) -> Column:
    match column:
        case {"name": str(name), "categories": list(values), **rest} if not rest:
            if len(set(values)) < len(values) or not all(isinstance(v, str) for v in values):
                raise InvalidInputError(f"column {name!r} must list distinct texts.")
            return Categories(name, tuple(values))
        case {"name": str(name), "bins": list(edges), **rest} if not rest:
            numbers = tuple(float(parse_number(edge)) for edge in edges)
            if any(b <= a for a, b in itertools.pairwise(numbers)):
                raise InvalidInputError(f"the bins of column {name!r} must increase.")
            return Bins(name, numbers)
        case {"name": str(name), "times": list(texts), **rest} if not rest:
            moments = [instant(text) if isinstance(text, str) else None for text in texts]
            known = tuple(moment for moment in moments if moment is not None)
            if None in moments or any(b <= a for a, b in itertools.pairwise(known)):
                raise InvalidInputError(f"the times of column {name!r} must increase.")
            return Times(name, known)
    raise InvalidInputError("a column is neither categories nor bins nor times.")


def _parse_codes(encoder: Encoder, places: Iterable[Any]) -> Ints:
    """The codes of cells: of their levels in a table, or themselves."""
    if not isinstance(encoder, Table):
        return np.array([_parse_whole(place) for place in places], dtype=np.int64)
    rows = [[_parse_whole(level) for level in place] for place in places]
    if not rows:
        return np.zeros(0, dtype=np.int64)
    levels = np.array(rows, dtype=np.int64).reshape(len(rows), len(encoder.columns))
    if np.any(levels >= [column.size for column in encoder.columns]):
        raise InvalidInputError("a cell names a level its column does not have.")
    return encoder.codes(dict(zip(encoder.names, levels.T, strict=True)))


def _parse_whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInputError(f"expected a whole number, found {value!r:.40}.")
    return value


def parse_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInputError(f"expected a number, found {value!r:.40}.")
    return float(value)


Views = tuple[View, tuple[View, ...]]  # of a reference: the whole, and more


def dumps(whole: View, views: Sequence[View] = ()) -> str:
    """The file's text. Cells of mass 0 are left out where the domain implies them."""
    content = _content(whole, views)
    lists = [_lines(name, content.pop(name)) for name in ("views", "cells") if name in content]
    head = {
        "format": FORMAT,
        "version": VERSION,
        "about": ABOUT,
        "fingerprint": fingerprint(whole, views),
        **content,
    }
    opened = json.dumps(head, indent=2, ensure_ascii=False).removesuffix("\n}")
    return ",\n".join([opened, *lists]) + "\n}\n"


def fingerprint(whole: View, views: Sequence[View] = ()) -> str:
    """SHA-256 (hex) of the canonical content; does not depend on layout or comments."""
    return digest([FORMAT, VERSION, _content(whole, views)])


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


def loads(text: str | bytes) -> Views:
    """What a file's text holds; anything else gives a `ReferenceFileError`."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ReferenceFileError(
            "This is not a whole JSON document. It may be damaged or cut off; build it again."
        ) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReferenceFileError(
            "This is not a fedprikl reference. Build one with `Reference.fit(...).save(path)`."
        )
    if document.get("version") != VERSION:
        raise ReferenceFileError(
            f"This reference has version {document.get('version')!r}; this software reads version "
            f"{VERSION}. Build it again from the public data with `fedprikl reference`, and make a "
            "new plan for it; or use the software that wrote it."
        )
    try:
        encoder = parse_encoder(document["records"])
        whole = _parse_view(encoder, document)
        views = _parse_views(encoder, document.get("views", []))
        check_views(whole, views)
    except (InvalidInputError, KeyError, TypeError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, InvalidInputError) else "a field is malformed."
        raise ReferenceFileError(f"The reference is damaged: {detail} Build it again.") from None
    if document.get("fingerprint") != fingerprint(whole, views):
        raise ReferenceFileError(
            "The reference's content does not match its fingerprint: it was changed after it was "
            "written. Build it again."
        )
    return whole, views


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _lines(name: str, entries: list[Any]) -> str:
    lines = ",\n".join("    " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f'  "{name}": [\n{lines}\n  ]'


def _content(whole: View, views: Sequence[View]) -> dict[str, Any]:
    content = {"records": encoder_dict(whole.domain.encoder)} | _masses(whole)
    if views:
        content["views"] = [{"columns": list(view.columns)} | _masses(view) for view in views]
    return content


def _masses(view: View) -> dict[str, Any]:
    encoder, codes = view.domain.encoder, view.domain.codes
    places = codes.tolist()
    if isinstance(encoder, Table):
        levels = encoder.levels(codes)
        places = np.column_stack([levels[name] for name in encoder.names]).tolist()
    cells = [
        [place, plain_number(held)]
        for place, held in zip(places, view.mass.tolist(), strict=False)
        if held > 0 or not isinstance(encoder, Indices)
    ]
    content: dict[str, Any] = {"other": plain_number(float(view.mass[-1])), "cells": cells}
    if view.correlation is not None:
        content[CORRELATION] = asdict(view.correlation)
    return content


def _parse_view(encoder: Encoder, fields: dict[str, Any], columns: Sequence[str] = ()) -> View:
    """The inverse of `_masses`."""
    codes = _parse_codes(encoder, (place for place, _ in fields["cells"]))
    mass = np.array([parse_number(held) for _, held in fields["cells"]])
    if isinstance(encoder, Indices):
        Domain(encoder, codes)  # distinct and in range
        dense = np.zeros(encoder.size)
        dense[codes] = mass
        codes, mass = all_codes(encoder.size), dense
    mass = np.append(mass, parse_number(fields["other"]))
    correlation = parse_correlation(fields.get(CORRELATION))
    return View(Domain(encoder, codes), mass, correlation, tuple(columns))


def _parse_views(encoder: Encoder, views: Any) -> tuple[View, ...]:
    if views == []:
        return ()
    if not isinstance(encoder, Table) or not isinstance(views, list):
        raise InvalidInputError("it has views, but not of columns.")
    found = []
    for fields in views:
        match fields:
            case {"columns": list(columns), **rest} if set(columns) <= set(encoder.names) and (
                set(rest) <= {"cells", "other", CORRELATION}
            ):
                found.append(_parse_view(encoder.part(columns), fields, columns))
            case _:
                raise InvalidInputError("a view is not one of its columns.")
    return tuple(found)
