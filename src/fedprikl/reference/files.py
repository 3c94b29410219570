"""The reference file: versioned JSON, one cell per line, with a fingerprint of its content."""

import itertools
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedprikl.checks import Floats, check_positive_int
from fedprikl.documents import digest
from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.reference.columns import Bins, Categories, Column, Times
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Domain, Encoder, Indices, Table, all_codes
from fedprikl.reference.factors import Factors
from fedprikl.reference.images import BlockCode
from fedprikl.reference.values import instant, time_text

__all__ = ["dumps", "fingerprint", "loads", "read", "write"]

FORMAT = "fedprikl reference"
VERSION = 3  # 3: how clients differ cell by cell; 2: texts for gaps, columns of times
CORRELATION = "resemblance"  # its name in a file
ABOUT = (
    "A public distribution Pi. 'records' says how a record becomes a cell; each line of 'cells' is "
    "a cell (one level per column, counted from 0, the last level being 'missing'; or a code) and "
    "its mass. Pi is mass divided by the sum of all masses. 'other' is the mass of records that "
    "have no cell."
)


def dumps(domain: Domain, mass: Floats, correlation: Correlation | None = None) -> str:
    """The file's text. Cells of mass 0 are left out where the domain implies them."""
    content = _content(domain, mass, correlation)
    cells = ",\n".join("    " + json.dumps(cell) for cell in content["cells"])
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
    return f'{opened},\n  "cells": [\n{cells}\n  ]\n}}\n'


def fingerprint(domain: Domain, mass: Floats, correlation: Correlation | None = None) -> str:
    """SHA-256 (hex) of the canonical content; does not depend on layout or comments."""
    return _digest(_content(domain, mass, correlation))


def write(
    path: str | Path, domain: Domain, mass: Floats, correlation: Correlation | None = None
) -> None:
    """Write a reference file."""
    try:
        Path(path).write_text(dumps(domain, mass, correlation), encoding="utf-8")
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot write the reference {path}: {error.strerror}. Check the path."
        ) from None
    except UnicodeEncodeError:
        raise ReferenceFileError(
            "A category holds characters that are not valid text. Clean the column first."
        ) from None


def read(path: str | Path) -> tuple[Domain, Floats, Correlation | None]:
    """Domain, masses and, where known, correlation of a reference file."""
    try:
        return loads(Path(path).read_bytes())
    except OSError as error:
        raise ReferenceFileError(
            f"Cannot read the reference {path}: {error.strerror}. Check the path."
        ) from None
    except ReferenceFileError as error:
        raise ReferenceFileError(f"{path}: {error}") from None


def loads(text: str | bytes) -> tuple[Domain, Floats, Correlation | None]:
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
        correlation = _parse_correlation(document.get(CORRELATION))
    except (InvalidInputError, KeyError, TypeError, ValueError, OverflowError) as error:
        detail = str(error) if isinstance(error, InvalidInputError) else "a field is malformed."
        raise ReferenceFileError(f"The reference is damaged: {detail} Build it again.") from None
    if document.get("fingerprint") != fingerprint(domain, mass, correlation):
        raise ReferenceFileError(
            "The reference's content does not match its fingerprint: it was changed after it was "
            "written. Build it again."
        )
    return domain, mass, correlation


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _digest(content: dict[str, Any]) -> str:
    return digest([FORMAT, VERSION, content])


def _content(domain: Domain, mass: Floats, correlation: Correlation | None) -> dict[str, Any]:
    encoder = domain.encoder
    implied = isinstance(encoder, Indices)
    masses = mass.tolist()
    cells = [
        [encoder.levels(code) if isinstance(encoder, Table) else code, _number(m)]
        for code, m in zip(domain.codes.tolist(), masses, strict=False)
        if m > 0 or not implied
    ]
    content = {"records": _encoder_dict(encoder), "cells": cells, "other": _number(masses[-1])}
    # Left out where unknown, so that references without client ids keep their fingerprint.
    return content if correlation is None else content | {CORRELATION: asdict(correlation)}


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _encoder_dict(encoder: Encoder) -> dict[str, Any]:
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


def _parse(document: dict[str, Any]) -> tuple[Domain, Floats]:
    encoder = _parse_encoder(document["records"])
    codes, masses = [], []
    for where, mass in document["cells"]:
        codes.append(_parse_code(encoder, where))
        masses.append(_parse_number(mass))
    order = np.argsort(np.array(codes, dtype=np.int64), kind="stable")
    known = np.array(codes, dtype=np.int64)[order]
    mass_of_known = np.array(masses, dtype=np.float64)[order]
    other = _parse_number(document["other"])
    if isinstance(encoder, Indices):
        Domain(encoder, known)  # distinct and in range
        dense = np.zeros(encoder.size)
        dense[known] = mass_of_known
        known, mass_of_known = all_codes(encoder.size), dense
    total = math.fsum(mass_of_known.tolist()) + other
    if not (math.isfinite(total) and total > 0 and mass_of_known.min(initial=0) >= 0 <= other):
        raise InvalidInputError("the masses must not be negative, and some must be above 0.")
    return Domain(encoder, known), np.append(mass_of_known, other)


def _parse_correlation(fields: Any) -> Correlation | None:
    match fields:
        case None:
            return None
        case {
            "icc": icc,
            "size_variation": variation,
            "clients": clients,
            "discount": discount,
            "factors": factors,
            **rest,
        } if not rest:
            return Correlation(
                icc=_parse_number(icc),
                size_variation=_parse_number(variation),
                clients=_parse_whole(clients),
                discount=_parse_number(discount),
                factors=_parse_factors(factors),
            )
    raise InvalidInputError("it does not say how correlated the clients' records are.")


def _parse_factors(fields: Any) -> Factors | None:
    match fields:
        case None:
            return None
        case {"cells": list(cells), "own": list(own), "common": list(common), **rest} if not rest:
            return Factors(
                cells=tuple(map(_parse_whole, cells)),
                own=tuple(map(_parse_number, own)),
                common=tuple(tuple(map(_parse_number, row)) for row in common),
            )
    raise InvalidInputError("it does not say how the clients differ.")


def _parse_encoder(records: dict[str, Any]) -> Encoder:
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
            numbers = tuple(float(_parse_number(edge)) for edge in edges)
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


def _parse_code(encoder: Encoder, where: Any) -> int:
    if isinstance(encoder, Table):
        levels = [_parse_whole(level) for level in where]
        if any(level >= column.size for level, column in zip(levels, encoder.columns, strict=True)):
            raise InvalidInputError("a cell names a level its column does not have.")
        return encoder.code(levels)
    return _parse_whole(where)


def _parse_whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInputError(f"expected a whole number, found {value!r:.40}.")
    return value


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInputError(f"expected a number, found {value!r:.40}.")
    return float(value)
