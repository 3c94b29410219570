"""Parts of a reference file: how records become cells, correlations, numbers."""

import itertools
import math
from typing import Any

from fedprikl.checks import check_positive_int
from fedprikl.errors import InvalidInputError
from fedprikl.reference.columns import Bins, Categories, Column, Times
from fedprikl.reference.correlation import Correlation
from fedprikl.reference.domain import Encoder, Indices, Table
from fedprikl.reference.factors import Factors
from fedprikl.reference.images import BlockCode
from fedprikl.reference.values import instant, time_text

__all__ = [
    "encoder_dict",
    "parse_code",
    "parse_correlation",
    "parse_encoder",
    "parse_number",
    "plain_number",
]


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


def parse_code(encoder: Encoder, where: Any) -> int:
    """The code of a cell: of its levels in a table, or itself."""
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


def parse_number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInputError(f"expected a number, found {value!r:.40}.")
    return float(value)
