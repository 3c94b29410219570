"""What to expect of the columns of a plan."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ColumnForecast"]


@dataclass(frozen=True, slots=True)
class ColumnForecast:
    """What to expect of the column with the median number of cells. A prediction; public."""

    views: int  # columns and pairs that are asked
    counts: int  # each client reports, for all of them
    column: str  # the one with the median number of cells
    smallest_drift: float | None  # of it, in nats: smooth, found with 95% power; None: none is
    error: float  # of its kl, in nats, without drift
    error_drifted: float | None  # the same at a smooth drift of 0.05 nats

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
