"""The reference file: versioned JSON, one cell per line, with a fingerprint of its content."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedprikl.checks import Floats
from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Domain, Encoder, Indices, Table, all_codes
from fedprikl.reference.file_parts import (
    encoder_dict,
    parse_code,
    parse_correlation,
    parse_encoder,
    parse_number,
    plain_number,
)
from fedprikl.reference.view_cells import check_views, view_of
from fedprikl.reference.views import View

__all__ = ["dumps", "fingerprint", "loads", "read", "write"]

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
Content = tuple[Domain, Floats, Correlation | None, tuple[View, ...]]


def dumps(
    domain: Domain,
    mass: Floats,
    correlation: Correlation | None = None,
    views: Sequence[View] = (),
) -> str:
    """The file's text. Cells of mass 0 are left out where the domain implies them."""
    content = _content(domain, mass, correlation, views)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "about": ABOUT,
        "fingerprint": _digest(content),
        "records": content["records"],
        "other": content["other"],
    }
    if correlation is not None:
        head[CORRELATION] = content[CORRELATION]
    opened = json.dumps(head, indent=2, ensure_ascii=False).removesuffix("\n}")
    lists = [_lines(name, content[name]) for name in ("views", "cells") if name in content]
    return ",\n".join([opened, *lists]) + "\n}\n"


def fingerprint(
    domain: Domain,
    mass: Floats,
    correlation: Correlation | None = None,
    views: Sequence[View] = (),
) -> str:
    """SHA-256 (hex) of the canonical content; does not depend on layout or comments."""
    return _digest(_content(domain, mass, correlation, views))


def write(
    path: str | Path,
    domain: Domain,
    mass: Floats,
    correlation: Correlation | None = None,
    views: Sequence[View] = (),
) -> None:
    """Write a reference file."""
    try:
        Path(path).write_text(dumps(domain, mass, correlation, views), encoding="utf-8")
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot write the reference {path}: {error.strerror}. Check the path."
        ) from None
    except UnicodeEncodeError:
        raise ReferenceFileError(
            "A category holds characters that are not valid text. Clean the column first."
        ) from None


def read(path: str | Path) -> Content:
    """Domain, masses, correlation (where known) and views of a reference file."""
    try:
        return loads(Path(path).read_bytes())
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot read the reference {path}: {error.strerror}. Check the path."
        ) from None
    except ReferenceFileError as error:
        raise ReferenceFileError(f"{path}: {error}") from None


def loads(text: str | bytes) -> Content:
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
        domain, mass = _parse(document)
        correlation = parse_correlation(document.get(CORRELATION))
        views = _parse_views(domain.encoder, document.get("views", []))
        check_views(domain.encoder, mass, views)
    except (InvalidInputError, KeyError, TypeError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, InvalidInputError) else "a field is malformed."
        raise ReferenceFileError(f"The reference is damaged: {detail} Build it again.") from None
    if document.get("fingerprint") != fingerprint(domain, mass, correlation, views):
        raise ReferenceFileError(
            "The reference's content does not match its fingerprint: it was changed after it was "
            "written. Build it again."
        )
    return domain, mass, correlation, views


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _digest(content: dict[str, Any]) -> str:
    return digest([FORMAT, VERSION, content])


def _lines(name: str, entries: list[Any]) -> str:
    lines = ",\n".join("    " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f'  "{name}": [\n{lines}\n  ]'


def _content(
    domain: Domain, mass: Floats, correlation: Correlation | None, views: Sequence[View]
) -> dict[str, Any]:
    encoder = domain.encoder
    content = {"records": encoder_dict(encoder)} | _masses(domain, mass, correlation)
    if isinstance(encoder, Table) and views:
        content["views"] = [_view(encoder, view) for view in views]
    return content


def _view(table: Table, view: View) -> dict[str, Any]:
    domain = Domain(table.part(view.columns), view.codes)
    return {"columns": list(view.columns)} | _masses(domain, view.mass, view.correlation)


def _masses(domain: Domain, mass: Floats, correlation: Correlation | None) -> dict[str, Any]:
    encoder = domain.encoder
    implied = isinstance(encoder, Indices)
    masses = mass.tolist()
    cells = [
        [encoder.levels(code) if isinstance(encoder, Table) else code, plain_number(m)]
        for code, m in zip(domain.codes.tolist(), masses, strict=False)
        if m > 0 or not implied
    ]
    content = {"cells": cells, "other": plain_number(masses[-1])}
    # Left out where unknown, so that references without client ids keep their fingerprint.
    return content if correlation is None else content | {CORRELATION: asdict(correlation)}


def _parse(document: dict[str, Any]) -> tuple[Domain, Floats]:
    encoder = parse_encoder(document["records"])
    codes, masses = [], []
    for where, mass in document["cells"]:
        codes.append(parse_code(encoder, where))
        masses.append(parse_number(mass))
    order = np.argsort(np.array(codes, dtype=np.int64), kind="stable")
    known = np.array(codes, dtype=np.int64)[order]
    mass_of_known = np.array(masses, dtype=np.float64)[order]
    other = parse_number(document["other"])
    if isinstance(encoder, Indices):
        Domain(encoder, known)  # distinct and in range
        dense = np.zeros(encoder.size)
        dense[known] = mass_of_known
        known, mass_of_known = all_codes(encoder.size), dense
    total = math.fsum(mass_of_known.tolist()) + other
    if not (math.isfinite(total) and total > 0 and mass_of_known.min(initial=0) >= 0 <= other):
        raise InvalidInputError("the masses must not be negative, and some must be above 0.")
    return Domain(encoder, known), np.append(mass_of_known, other)


def _parse_views(encoder: Encoder, views: Any) -> tuple[View, ...]:
    if not isinstance(encoder, Table) or not isinstance(views, list):
        if views == []:
            return ()
        raise InvalidInputError("it has views, but not of columns.")
    return tuple(_parse_view(encoder, view) for view in views)


def _parse_view(table: Table, fields: Any) -> View:
    match fields:
        case {"columns": list(columns), "cells": list(cells), "other": other, **rest} if set(
            columns
        ) <= set(table.names) and set(rest) <= {CORRELATION}:
            part = table.part(columns)
            codes = np.array([parse_code(part, where) for where, _ in cells], dtype=np.int64)
            mass = np.array([*(parse_number(held) for _, held in cells), parse_number(other)])
            return view_of(table, columns, codes, mass, parse_correlation(rest.get(CORRELATION)))
    raise InvalidInputError("a view is not one of its columns.")
