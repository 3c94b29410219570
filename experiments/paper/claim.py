"""A judged sentence of the paper, and how results are looked up."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of the paper and its judgement."""

    sentence: str
    paper: str
    ours: str
    rule: str
    holds: bool
    why: str
    source: str  # the result it was read from


def rows_of(results: Results, name: str, **where: Any) -> list[Row]:
    """The rows of a result with these values."""
    rows: list[Row] = results[name]["rows"]
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def row_of(results: Results, name: str, **where: Any) -> Row:
    """The one row of a result with these values."""
    (row,) = rows_of(results, name, **where)
    return row


def best_of(rows: list[Row]) -> Row:
    """The row of the smallest error."""
    return min(rows, key=lambda row: float(row["error"]))


def listed(values: Iterable[float]) -> str:
    """Numbers for people."""
    return ", ".join(f"{value:.3g}" for value in values)
