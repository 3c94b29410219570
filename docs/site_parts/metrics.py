"""The metrics of a series and of an aggregator, from the tables that write them."""

from fedprikl.deployment import round_metrics as aggregator
from fedprikl.monitoring.metrics import METRICS, PREFIX


def series_metrics() -> str:
    """A table of names and meanings."""
    return _table({f"{PREFIX}{name}": says for name, says in METRICS.items()})


def aggregator_metrics() -> str:
    """Another, of the file that an aggregator writes."""
    return _table({name: f"{says} ({kind})" for name, (kind, says) in aggregator.METRICS.items()})


def _table(found: dict[str, str]) -> str:
    rows = (f"| `{name}` | {says} |" for name, says in found.items())
    return "\n".join(["| metric | says |", "| --- | --- |", *rows])
