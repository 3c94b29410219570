"""The bars that must hold, and their tables in docs/results.md."""

import math
from collections.abc import Callable, Iterable
from typing import Any

Rows = list[dict[str, Any]]
Result = dict[str, Any]
KINDS = ("smooth", "rare", "heavy", "fading", "growing", "contamination", "ordinal")
NAMES = ("power", "printed", "outside", "errors", "alarms", "series", "coverage", "ranges", "speed")
LIMITS = {  # of the smallest drift over that of chi-square: epsilon, least records, kinds
    (1.0, 5_000): {"smooth": 1.3, "rare": 1.6, "heavy": 2.2, "fading": 2.0, "growing": 5.0},
    (0.1, 30_000): {"smooth": 2.0, "rare": 3.5, "heavy": 4.5, "fading": 5.0, "growing": 12.0},
}


def bars(result: Result) -> Rows:
    """Every promise: its limit, the worst that was measured, and whether it holds.

    Only what was measured: a part of the benchmark tells about its own promises.
    """
    errors = result["errors"]
    found = [
        *_power_bars(result["power"]),
        *_error_bars(errors),
        *_forecast_bars(errors),
        *(
            _at_most(f"false alarms at 1%, {what}, upper limit", [r["upper"] for r in rows], 0.02)
            for what, rows in (("a release", result["alarms"]), ("a year", result["series"]))
        ),
        _at_least("coverage, lower limit", [r["lower"] for r in result["coverage"]], 0.93),
        _at_least("power at the printed drift, least", _column(result["printed"], "power"), 0.93),
        _at_most("power at the printed drift, most", _column(result["printed"], "power"), 0.97),
        _at_least(
            "power where 0.3% or more are out of the domain, N >= 30,000, epsilon 1",
            _column(filter(_outside, result["outside"]), "power"),
            0.95,
        ),
        _at_most("impossible numbers printed", _column(result["ranges"], "impossible"), 0),
        _at_most("cannot tell, and could", _column(result["ranges"], "could_tell"), 0),
        *(
            _at_most(
                f"seconds of a release of {row['cells']:,} cells",
                [row["seconds"]],
                0.05 if row["cells"] <= 250 else 1.0,
            )
            for row in result["speed"]
        ),
    ]
    return [bar for bar in found if bar["measured"]]


def _power_bars(rows: Rows) -> Rows:
    return [
        _at_most(
            f"smallest drift / chi-square, epsilon {epsilon:g}, N >= {least:,}, {kind}",
            [
                row["ratio"] if row["ratio"] is not None else math.inf
                for row in rows
                if row["epsilon"] == epsilon
                and row["records"] >= least
                and row["kind"] == kind
                and row["chi2"] is not None
            ],
            limit,
        )
        for (epsilon, least), limits in LIMITS.items()
        for kind, limit in limits.items()
    ]


def _error_bars(errors: Rows) -> Rows:
    found = [
        _at_most("error of ask kl / textbook, worst", _ratios(errors, "ask_kl", "textbook"), 1.1)
    ]
    for name in dict.fromkeys(row["statistic"] for row in errors):
        ratios = _ratios((r for r in errors if r["statistic"] == name), "default", "textbook")
        found.append(_at_most(f"error of {name} / textbook, worst", ratios, 1.5))
        mean = _geometric_mean(ratios)
        found.append(_at_most(f"error of {name} / textbook, geometric mean", mean, 0.7))
    return found


def _forecast_bars(errors: Rows) -> Rows:
    found = []
    for method in ("default", "ask_kl", "trust_none"):
        name = "predicted" if method == "default" else f"predicted_{method}"
        ratios = _ratios(errors, name, method)
        found.append(_at_most(f"predicted / measured, {method}, largest", ratios, 1.5))
        found.append(_at_least(f"predicted / measured, {method}, smallest", ratios, 0.67))
    return found


def _outside(row: dict[str, Any]) -> bool:
    return bool(row["epsilon"] == 1 and row["records"] >= 30_000 and row["share"] >= 0.003)


def _column(rows: Iterable[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _ratios(rows: Iterable[dict[str, Any]], above: str, below: str) -> list[float]:
    return [row[above] / row[below] for row in rows if above in row]


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
    """Per kind: the smallest drift of chi-square, and how many times larger the default's is."""
    rows = []
    for key, here in _grouped(result["power"], ("world", "split", "cells", "records", "epsilon")):
        found = {row["kind"]: row for row in here}
        cells = [
            f"{_number(found[kind]['chi2'])}: {_number(found[kind]['ratio'])}"
            if kind in found
            else ""
            for kind in KINDS
        ]
        rows.append((*_place(key), *cells))
    return _table((*PLACE, *KINDS), rows)


def printed_table(result: Result) -> str:
    """The power at the smallest drift that a plan prints, of each kind."""
    kinds = list(dict.fromkeys(row["kind"] for row in result["printed"]))
    rows = []
    for key, here in _grouped(result["printed"], ("world", "split", "cells", "records", "epsilon")):
        found = {row["kind"]: f"{row['size']:.2g}: {row['power']:.2f}" for row in here}
        rows.append((*_place(key), *(found.get(kind, "") for kind in kinds)))
    return _table((*PLACE, *kinds), rows)


def outside_table(result: Result) -> str:
    """How often shares of records out of the domain are found."""
    shares = list(dict.fromkeys(row["share"] for row in result["outside"]))
    keys = ("world", "split", "cells", "records", "epsilon", "trust")
    rows = []
    for key, here in _grouped(result["outside"], keys):
        rows.append((*_place(key[:5]), key[5], *(f"{row['power']:.2f}" for row in here)))
    return _table((*PLACE, "trust", *(f"{share:.1%}" for share in shares)), rows)


def errors_table(result: Result) -> str:
    """Errors over those of the textbook histogram, by the worst drift and on average.

    Of KL: `--ask kl`, then the default; of others the default.
    """
    rows = []
    for key, here in _grouped(result["errors"], ("world", "split", "cells", "records", "epsilon")):
        cells = []
        for name, method in (("kl", "ask_kl"), *((s, "default") for s in ("kl", "tv", "js"))):
            seen = [row for row in here if row["statistic"] == name and method in row]
            ratios = _ratios(seen, method, "textbook")
            if not ratios:
                cells.append("")
                continue
            worst = max(seen, key=lambda row: row[method] / row["textbook"])["drift"]
            cells.append(f"{_geometric_mean(ratios)[0]:.2f}, {max(ratios):.2f} ({worst})")
        rows.append((*_place(key), *cells))
    return _table((*PLACE, "kl, `--ask kl`", "kl", "tv", "js"), rows)


def alarms_table(result: Result) -> str:
    """False alarms at a stated 1%, of a release and of a year."""
    rows = [
        (
            r["world"],
            r["split"],
            r["trust"],
            r["unit"],
            f"{r['rate']:.2%}",
            f"{r['upper']:.2%}",
            f"{r['populations']:,}",
        )
        for r in result["alarms"]
    ]
    rows += [
        (
            r["world"],
            r["split"],
            r["trust"],
            "a year",
            f"{r['false_alarm_per_year']:.2%}",
            f"{r['upper']:.2%}",
            f"{r['years']:,}",
        )
        for r in result["series"]
    ]
    head = ("world", "split", "trust", "unit", "false alarms", "upper 99% limit", "populations")
    return _table(head, rows)


def coverage_table(result: Result) -> str:
    """Coverage of the printed 95% intervals, and its lower 99% limit."""
    rows = []
    for key, here in _grouped(result["coverage"], ("case", "trust")):
        found = {row["statistic"]: f"{row['rate']:.1%} ({row['lower']:.1%})" for row in here}
        each = (found.get(name, "") for name in ("kl", "tv", "js"))
        rows.append((*key, *each, f"{here[0]['releases']:,}"))
    return _table(("case", "trust", "kl", "tv", "js", "releases"), rows)


def ranges_table(result: Result) -> str:
    """Random small releases."""
    names = ("releases", "impossible", "cannot_tell", "could_tell")
    total = [f"{sum(_column(result['ranges'], name)):,}" for name in names]
    head = ("releases", "print what cannot be", "cannot tell", "of these, could")
    return _table(head, [total] if result["ranges"] else [])


PLACE = ("world", "split", "cells", "records", "ε")


def _place(key: tuple[Any, ...]) -> tuple[str, ...]:
    world, split, cells, records, epsilon = key
    return world, split, f"{cells:,}", f"{records:,}", f"{epsilon:g}"


TABLES: dict[str, Callable[[Result], str]] = {
    "bars": bars_table,
    "errors over the textbook histogram": errors_table,
    "coverage of intervals": coverage_table,
    "smallest drifts": power_table,
    "power at the printed drifts": printed_table,
    "records out of the domain": outside_table,
    "false alarms": alarms_table,
    "random small releases": ranges_table,
}


def is_empty(table: str) -> bool:
    """Whether there are no rows below its head."""
    return table.count("\n") <= 2


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
