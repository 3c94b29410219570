"""The metrics of a series, from the table that writes them."""

from fedprikl.monitoring.metrics_text import METRICS, PREFIX


def metrics() -> str:
    """A table of names and meanings."""
    rows = (f"| `{PREFIX}{name}` | {says} |" for name, says in METRICS.items())
    return "\n".join(["| metric | says |", "| --- | --- |", *rows])
