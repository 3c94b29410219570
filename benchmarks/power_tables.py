"""The bars that must hold, and their tables in benchmarks/RESULTS.md."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
Result = dict[str, Any]
RESULTS = Path(__file__).parent / "RESULTS.md"
KINDS = ("smooth", "rare", "heavy")
BEGIN, END = "<!-- {}: written by `benchmarks/power.py --write-docs` -->\n", "<!-- end of {} -->"


def bars(result: Result) -> Rows:
    """Every promise: its limit, the worst that was measured, and whether it holds."""
    errors = result["errors"]
    return [
        *_power_bars(result["power"]),
        _at_most("error of ask kl / textbook, worst", _ratios(errors, "ask_kl", "textbook"), 1.1),
        _at_most(
            "error of ask kl / textbook, geometric mean",
            _geometric_mean(_ratios(errors, "ask_kl", "textbook")),
            0.7,
        ),
        _at_most("error of default / textbook, worst", _ratios(errors, "default", "textbook"), 1.5),
        *(
            _at_least(
                f"previous error / {method}, N >= 5,000, K <= 62, drift <= 0.05, worst",
                _ratios(filter(_small_drift, errors), "previous", method),
                4.0,
            )
            for method in ("ask_kl", "default")
        ),
        *_forecast_bars(errors),
        _at_most("false alarms at 1%, upper limit", [r["upper"] for r in result["alarms"]], 0.02),
        _at_least("coverage, lower limit", [r["lower"] for r in result["coverage"]], 0.93),
        *(
            _at_most(
                f"seconds of a release of {row['cells']:,} cells",
                [row["seconds"]],
                0.05 if row["cells"] <= 250 else 1.0,
            )
            for row in result["speed"]
        ),
    ]


def _power_bars(rows: Rows) -> Rows:
    limits = {
        (1.0, 5_000): (1.5, 2.0, 3.0),
        (0.1, 40_000): (2.0, 3.0, 5.0),
    }
    found = []
    for (epsilon, least), each in limits.items():
        for kind, limit in zip(KINDS, each, strict=True):
            here = [
                row["ratio"] if row["ratio"] is not None else math.inf
                for row in rows
                if row["epsilon"] == epsilon
                and row["records"] >= least
                and row["kind"] == kind
                and row["chi2"] is not None
            ]
            name = f"smallest drift / chi-square, epsilon {epsilon:g}, N >= {least:,}, {kind}"
            found.append(_at_most(name, here, limit))
    small = [
        row["ratio"] if row["ratio"] is not None else math.inf
        for row in rows
        if row["epsilon"] == 1.0
        and row["records"] == 720
        and row["kind"] == "smooth"
        and row["chi2"] is not None
    ]
    return [*found, _at_most("smallest drift / chi-square, epsilon 1, N = 720, smooth", small, 2.0)]


def _forecast_bars(errors: Rows) -> Rows:
    found = []
    for method in ("default", "ask_kl", "trust_none"):
        name = "predicted" if method == "default" else f"predicted_{method}"
        ratios = _ratios(errors, name, method)
        found.append(_at_most(f"predicted / measured, {method}, largest", ratios, 1.5))
        found.append(_at_least(f"predicted / measured, {method}, smallest", ratios, 0.67))
    return found


def _small_drift(row: dict[str, Any]) -> bool:
    return (
        row["records"] >= 5_000 and row["cells"] <= 62 and row["drift"] in ("none", "0.01", "0.05")
    )


def _ratios(rows: Iterable[dict[str, Any]], above: str, below: str) -> list[float]:
    return [row[above] / row[below] for row in rows]


def _geometric_mean(values: list[float]) -> list[float]:
    return [math.exp(sum(map(math.log, values)) / len(values))] if values else []


def _at_most(name: str, values: list[float], limit: float) -> dict[str, Any]:
    return _bar(name, values, limit, max, lambda worst: worst <= limit)


def _at_least(name: str, values: list[float], limit: float) -> dict[str, Any]:
    return _bar(name, values, limit, min, lambda worst: worst >= limit)


def _bar(
    name: str,
    values: list[float],
    limit: float,
    pick: Callable[[list[float]], float],
    holds: Callable[[float], bool],
) -> dict[str, Any]:
    """Nothing measured holds nothing; a drift that is never found has no finite ratio."""
    worst = pick(values) if values else None
    return {
        "bar": name,
        "worst": worst if worst is not None and math.isfinite(worst) else None,
        "limit": limit,
        "holds": worst is not None and holds(worst),
        "measured": len(values),
        "held": sum(map(holds, values)),
    }


def bars_table(result: Result) -> str:
    """Bars as Markdown."""
    rows = [
        (
            bar["bar"],
            _number(bar["worst"]),
            f"{bar['limit']:g}",
            "yes" if bar["holds"] else "no",
            f"{bar['held']} of {bar['measured']}",
        )
        for bar in result["bars"]
    ]
    return _table(("bar", "worst", "limit", "holds", "cases in which it does"), rows)


def power_table(result: Result) -> str:
    """Per kind: the smallest drift of chi-square in the first domain, and ratios in each domain."""
    rows = []
    for key, here in _grouped(result["power"], ("cells", "records", "epsilon")):
        kinds = {kind: [row for row in here if row["kind"] == kind] for kind in KINDS}
        cells = [
            f"{_number(each[0]['chi2'])}: {' / '.join(_number(row['ratio']) for row in each)}"
            for each in kinds.values()
        ]
        rows.append((f"{key[0]:,}", f"{key[1]:,}", f"{key[2]:g}", *cells))
    return _table(("cells", "records", "ε", *KINDS), rows)


def errors_table(result: Result) -> str:
    """Errors over those of the textbook histogram: the worst domain, `--ask kl` and default."""
    drifts = list(dict.fromkeys(row["drift"] for row in result["errors"]))
    rows = []
    for key, here in _grouped(result["errors"], ("cells", "records", "epsilon")):
        cells = []
        for drift in drifts:
            seen = [row for row in here if row["drift"] == drift]
            worst = [max(_ratios(seen, each, "textbook")) for each in ("ask_kl", "default") if seen]
            cells.append(" / ".join(f"{each:.2f}" for each in worst))
        rows.append((f"{key[0]:,}", f"{key[1]:,}", f"{key[2]:g}", *cells))
    return _table(("cells", "records", "ε", *drifts), rows)


def alarms_table(result: Result) -> str:
    """False alarms at a stated 1%."""
    rows = [
        (r["world"], r["trust"], f"{r['rate']:.2%}", f"{r['upper']:.2%}", f"{r['populations']:,}")
        for r in result["alarms"]
    ]
    return _table(("world", "trust", "false alarms", "upper 99% limit", "populations"), rows)


def coverage_table(result: Result) -> str:
    """Coverage of the printed 95% intervals."""
    rows = [
        (r["case"], r["trust"], f"{r['rate']:.1%}", f"{r['lower']:.1%}", f"{r['releases']:,}")
        for r in result["coverage"]
    ]
    return _table(("case", "trust", "coverage", "lower 99% limit", "releases"), rows)


TABLES: dict[str, Callable[[Result], str]] = {
    "bars": bars_table,
    "errors over the textbook histogram": errors_table,
    "coverage of intervals": coverage_table,
    "smallest drifts": power_table,
    "false alarms": alarms_table,
}


def write_docs(result: Result, path: Path = RESULTS) -> None:
    """Replaces the tables between their marks."""
    write_tables(result, TABLES, BEGIN, path)


def write_tables(
    result: Result, tables: dict[str, Callable[[Result], str]], mark: str, path: Path
) -> None:
    """Replaces each table between its marks, in one page."""
    text = path.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = mark.format(name), END.format(name)
        start = text.index(begin) + len(begin)
        text = text[:start] + _caption(result) + table(result) + text[text.index(end, start) :]
    path.write_text(text, encoding="utf-8")


def _caption(result: Result) -> str:
    """Which run a table is from; below a quick one, limits of rates are wide."""
    return f"Seed {result['seed']}{', `--quick`' if result['quick'] else ''}:\n\n"


def _grouped(rows: Rows, keys: tuple[str, ...]) -> list[tuple[tuple[Any, ...], Rows]]:
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.items())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2g}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
