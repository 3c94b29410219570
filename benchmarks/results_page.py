"""docs/results.md, from results/*.json and the words of about.md; and what other pages quote.

In about.md, `<!-- power: bars -->` stands for a table of results/power.json. A page quotes a number
as `24<!-- secure_sum.flower_speedup -->`: `make results` writes it anew, and a test compares it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from columns_tables import TABLES as COLUMNS
from power_tables import TABLES as POWER

ROOT = Path(__file__).parents[1]
RESULTS, ABOUT, PAGE = ROOT / "results", Path(__file__).with_name("about.md"), "docs/results.md"
MARK = re.compile(r"<!-- (\w+): ([\w ]+) -->")
QUOTE = re.compile(r"(?<![\w.])([\d.,]*\d%?)<!-- (\w+(?:\.\w+)+) -->")
Tables = dict[str, Callable[[dict[str, Any]], str]]
SPECIAL: dict[str, Tables] = {"power": POWER, "columns": COLUMNS}
# Of benchmarks that state no bars themselves: (where, least or most, limit).
BARS: dict[str, tuple[tuple[str, str, float], ...]] = {
    "secure_sum": (
        ("floor_ratio", "at most", 3),
        ("floor_ratio_dropouts", "at most", 4),
        ("flower_speedup", "at least", 20),
        ("growth", "at most", 1.5),
    ),
    "servers_accuracy": (
        ("power_ratio", "at most", 1.3),
        ("kl_ratio", "at most", 1.6),
        ("tv_ratio", "at most", 1.6),
        ("mean_ratio", "at most", 1.25),
        ("worst_none", "at most", 1),
    ),
}


def read_results() -> dict[str, dict[str, Any]]:
    """All results that there are, by the name of their benchmark."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    return {name: record for name, record in found.items() if "commit" in record}


def bars_of(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What must hold: its name, what was measured, the limit, and whether it does."""
    told = result.get("bars", ())
    for each in told if isinstance(told, list) else ():
        value = next((each[k] for k in ("worst", "mae", "value") if k in each), None)
        holds = each["holds"] if "holds" in each else each["held"]
        yield {"bar": each["bar"], "value": value, "limit": each["limit"], "holds": holds}
    limits = list(BARS.get(name, ()))
    for bar, each in told.items() if isinstance(told, dict) else ():
        if isinstance(each, bool):
            yield {"bar": bar, "value": None, "limit": None, "holds": each}
        else:  # the limit of a number
            limits.append((bar, "at most", each))
    for where, side, limit in limits:
        if (value := result.get(where)) is not None:
            holds = value <= limit if side == "at most" else value >= limit
            bar = f"{where.replace('_', ' ')}, {side}"
            yield {"bar": bar, "value": value, "limit": limit, "holds": holds}


def page(results: dict[str, dict[str, Any]]) -> str:
    """All of docs/results.md."""
    words = ABOUT.read_text()

    def table(mark: re.Match[str]) -> str:
        name, what = mark.groups()
        if name == "all":
            return {"bars": _summary, "runs": _runs}[what](results)
        record = results.get(name)
        if record is None or "result" not in record:
            return f"*Not measured: {record['failed'] if record else 'no run yet.'}*\n"
        return _table_of(name, what, record)

    return MARK.sub(table, words)


def _table_of(name: str, what: str, record: dict[str, Any]) -> str:
    result, special = record["result"], SPECIAL.get(name, {})
    part = ", a part of it (`--quick`)" if record["quick"] else ""
    seed = f"seed {record['seed']}" if record["seed"] is not None else "times"
    caption = f"*{seed.capitalize()}{part}:*\n\n"
    if what in special:
        return caption + special[what](result)
    if what == "bars":
        return caption + _bars_table(bars_of(name, result))
    if what == "numbers":
        plain = [(k, v) for k, v in result.items() if isinstance(v, int | float) and k != "seed"]
        return caption + _rows_table([{"number": k.replace("_", " "), "is": v} for k, v in plain])
    return caption + _rows_table(result.get(what, []))


def _summary(results: dict[str, dict[str, Any]]) -> str:
    """How many bars of each benchmark hold, and all that do not."""
    counted, missed = [], []
    for name, record in results.items():
        bars = list(bars_of(name, record.get("result", {})))
        if bars:
            held = sum(bool(bar["holds"]) for bar in bars)
            part = "a part" if record["quick"] else "whole"
            counted.append(
                {"benchmark": name, "run": part, "bars that hold": f"{held} of {len(bars)}"}
            )
        missed += [{"benchmark": name} | bar for bar in bars if not bar["holds"]]
    text = _rows_table(counted)
    named = dict.fromkeys(mark[1] for mark in MARK.finditer(ABOUT.read_text()) if mark[1] != "all")
    if left := [name for name in named if "result" not in results.get(name, {})]:
        text += f"\nNot measured: {', '.join(left)}.\n"
    if not missed:
        return text + "\nAll bars that were measured hold.\n"
    for bar in missed:
        bar.pop("holds")
    return text + "\nThese do not hold:\n\n" + _rows_table(missed)


def _runs(results: dict[str, dict[str, Any]]) -> str:
    return _rows_table(
        [
            {
                "command": f"`{record['command']}`" if "command" in record else f"`{name}`",
                "seconds": record.get("seconds"),
                "commit": record["commit"][:10] + record["commit"][40:],
                "Python, NumPy": f"{record['versions']['python']}, {record['versions']['numpy']}",
                "processor": record["processor"],
                "": f"failed: {record['failed']}" if "failed" in record else "",
            }
            for name, record in results.items()
        ]
    )


def _bars_table(bars: Iterable[dict[str, Any]]) -> str:
    return _rows_table(
        [
            {
                "bar": bar["bar"],
                "measured": bar["value"],
                "limit": bar["limit"],
                "holds": "yes" if bar["holds"] else "**no**",
            }
            for bar in bars
        ]
    )


def _rows_table(rows: list[dict[str, Any]]) -> str:
    """Rows of plain values in Markdown; lists and objects inside are left out."""
    names = list(dict.fromkeys(k for row in rows for k, v in row.items() if not _is_nested(v)))
    if not names:
        return "*Nothing.*\n"
    lines = [_line(name.replace("_", " ") for name in names), _line("---" for _ in names)]
    return (
        "\n".join([*lines, *(_line(_word(row.get(name)) for name in names) for row in rows)]) + "\n"
    )


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | dict)


def _line(words: Iterable[str]) -> str:
    return "| " + " | ".join(words) + " |"


def _word(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|")


def quoted(path: str, results: dict[str, dict[str, Any]], like: str) -> str:
    """A number of a result, written like another: a percentage, or two digits."""
    name, *places = path.split(".")
    value: Any = results[name]["result"]
    for place in places:
        value = value[int(place)] if isinstance(value, list) else value[place]
    return f"{100 * value:.2g}%" if like.endswith("%") else _short(value)


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def requoted(text: str, results: dict[str, dict[str, Any]]) -> str:
    """A page with its quotes as the results are now."""

    def new(found: re.Match[str]) -> str:
        like, path = found.groups()
        known = "result" in results.get(path.partition(".")[0], {})
        return f"{quoted(path, results, like) if known else like}<!-- {path} -->"

    return QUOTE.sub(new, text)


def pages_that_quote() -> list[Path]:
    """Of the documentation and the README."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [each for each in pages if "_build" not in each.parts and QUOTE.search(each.read_text())]


def write_page() -> None:
    """The page, and the quotes of all others."""
    results = read_results()
    (ROOT / PAGE).write_text(page(results))
    for each in pages_that_quote():
        each.write_text(requoted(each.read_text(), results))
