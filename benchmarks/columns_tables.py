"""The bars that `columns.py` must hold, and their tables in docs/results.md."""

from collections.abc import Callable

from power_tables import (
    Result,
    Rows,
    _at_least,
    _at_most,
    _table,
    bars_table,
)


def bars(result: Result) -> Rows:
    """Every promise: its limit, the worst that was measured, and whether it holds."""
    cases = [row for row in result["cases"] if row["epsilon"] == 1]
    speed = {row["counts"]: row["ms_per_count"] for row in result["speed"]}
    found = []
    for columns, records, nats, least in (
        (20, 40_295, 0.01, 0.95),
        (20, 5_000, 0.05, 0.9),
        (100, 40_295, 0.05, 0.9),
    ):
        here = [
            row
            for row in cases
            if (row["columns"], row["records"], row["drift"]) == (columns, records, nats)
        ]
        name = f"{columns} columns, N = {records:,}, {nats:g} nats"
        kinds = [row[f"recall_{kind}"] for row in here for kind in ("smooth", "rare", "heavy")]
        found.append(_at_least(f"recall, {name}", [row["recall"] for row in here], least))
        found.append(_at_least(f"recall of each kind, {name}", kinds, least))
        if nats == 0.01:
            errors = [row[each] for row in here for each in ("kl_error", "kl_error_no_drift")]
            found.append(_at_most(f"error of a column's KL, {name}", errors, 0.002))
    everywhere = result["cases"]
    rates = [row[f"false_alarms{more}"] for row in everywhere for more in ("", "_beside_drift")]
    asked = [row for row in cases if (row["columns"], row["records"]) == (20, 40_295)]
    return [
        *found,
        _at_most(
            "family-wise false alarms, 20 columns, N = 40,295, ε 1",
            [row["false_alarms"] for row in asked],
            0.01,
        ),
        _at_most("the same, upper limit", [row["upper"] for row in asked], 0.02),
        _at_most("family-wise false alarms, all cases", rates, 0.01),
        _at_most("the same, upper limit, all cases", [row["upper"] for row in everywhere], 0.02),
        _at_most(
            "false discovery rate of cells", [row["measured"] for row in result["cells"]], 0.12
        ),
        _at_most(
            "time for each of 1,200 counts / of 250",
            [speed[1200] / speed[250]] if {250, 1200} <= speed.keys() else [],
            2.0,
        ),
    ]


def cases_table(result: Result) -> str:
    """Recall, false alarms and errors of sizes."""
    rows = [
        (
            f"{r['columns']}, {r['world']}",
            f"{r['records']:,}",
            f"{r['epsilon']:g}",
            r["trust"],
            f"{r['drift']:g}",
            " / ".join(f"{r[f'recall_{kind}']:.3g}" for kind in ("smooth", "rare", "heavy")),
            f"{r['false_alarms']:.2%}",
            f"{r['upper']:.2%}",
            f"{r['kl_error_no_drift']:.2g} / {r['kl_error']:.2g}",
        )
        for r in result["cases"]
    ]
    head = ("columns", "records", "ε", "trust", "drift", "recall: smooth / rare / heavy")
    tail = ("false alarms", "upper 99% limit", "KL error: none / drifted")
    return _table((*head, *tail), rows)


def cells_table(result: Result) -> str:
    """False discovery rates of cells."""
    rows = [
        (
            f"{r['world']}, ε = {r['epsilon']:g}",
            r["trust"],
            f"{r['drift']:g}",
            f"{r['stated']:.0%}",
            f"{r['measured']:.1%}",
            f"{r['recall']:.1%}",
        )
        for r in result["cells"]
    ]
    return _table(("columns", "trust", "drift", "stated", "measured", "shifted cells found"), rows)


def evidently_table(result: Result) -> str:
    """Ours beside verdicts on raw data: a column for each size of drift."""
    drifts = list(dict.fromkeys(row["drift"] for row in result["evidently"]))
    found: dict[str, dict[float, str]] = {}
    for row in result["evidently"]:
        for name, ours in ((f"fedprikl, ε = {row['epsilon']:g}", "our_"), (row["method"], "")):
            cells = found.setdefault(f"{row['world']}: {name}", {})
            cells[row["drift"]] = f"{row[f'{ours}recall']:.0%} / {row[f'{ours}false_alarms']:.0%}"
            if not ours:
                cells[row["drift"]] += f" ({row['agreement']:.0%})"
    rows = [(name, *(cells.get(drift, "") for drift in drifts)) for name, cells in found.items()]
    return _table(("columns: method", *(f"{drift:g} nats" for drift in drifts)), rows)


def speed_table(result: Result) -> str:
    """CPU time of plan, count and secure sum."""
    rows = [
        (
            f"{r['columns']} columns, {r['counts']:,} counts",
            *(f"{r[name]:.2f} s" for name in ("plan", "count", "sum")),
            f"{r['ms_per_count']:.2g} ms",
        )
        for r in result["speed"]
    ]
    head = ("table", "plan", "count 2,000 rows", "secure sum of 50 clients", "all, per count")
    return _table(head, rows)


TABLES: dict[str, Callable[[Result], str]] = {
    "bars of columns": bars_table,
    "verdicts on columns": cases_table,
    "shifted cells": cells_table,
    "columns on raw data": evidently_table,
    "speed of columns": speed_table,
}
