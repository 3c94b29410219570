"""docs/results.md, from results/*.json and the words of about.md; and what other pages quote.

In about.md, `<!-- power: bars -->` stands for a table of results/power.json. A page quotes a number
as `24<!-- secure_sum.flower_speedup -->`: `make results` writes it anew, and a test compares it.
"""

import json
import math
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
# As in `series.py`: the weeks in which a drift of so many nats is found, and in how many years.
SERIES_WEEKS = {0.005: (4, 0.90), 0.05: (1, 0.95)}
SERIES_ERRORS = {0.0: 0.006, 0.5: 0.014}
BARS_TABLES = ("bars", "bars of columns")
# Rows without their repetitions in a column: where in the result they are, and their name.
DRAWN = {
    ("columns", "verdicts on columns"): ("cases", {"repetitions": "populations per row"}),
    ("columns", "shifted cells"): ("cells", {"repetitions": "populations per row"}),
    ("columns", "columns on raw data"): (
        "evidently",
        {"drifted_columns": "drifted columns and", "calm_columns": "without drift per entry"},
    ),
    ("power", "false alarms"): ("alarms", {"references": "references per row"}),
}
# Bars on a confidence limit: the rows and the rate that it is a limit of.
LIMITS_OF = {
    ("power", "false alarms at 1%, a release, upper limit"): ("alarms", "rate"),
    ("power", "false alarms at 1%, a year, upper limit"): ("series", "false_alarm_per_year"),
    ("power", "coverage, lower limit"): ("coverage", "rate"),
    ("clients", "false alarms, upper limit"): ("sizes", "rate"),
    ("columns", "the same, upper limit"): ("cases", "false_alarms"),
    ("columns", "the same, upper limit, all cases"): ("cases", "false_alarms"),
    ("series", "false alarms per year, upper 99% limit, at most 2%"): (
        "alarms",
        "false_alarm_per_year",
    ),
}
NAMES = {  # of bars whose own name needs the one before
    "the same, upper limit": "family-wise false alarms, 20 columns, N = 40,295, ε 1, upper limit",
    "the same, upper limit, all cases": "family-wise false alarms, all cases, upper limit",
}
FEW = 4  # numbers that fit into one place of a table
STATES = ("no", "not decided", "yes")
NOTHING, BLANK = "-", re.compile(r"\| +(?=\|)")  # a cell for which there is nothing
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


def bars_of(name: str, record: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold: its name, what was measured, the limit, and its state, worst first."""
    found = []
    for bar in _raw_bars(name, record.get("result", {})):
        value, limit = bar["value"], bar["limit"]
        numbers = isinstance(value, float) and isinstance(limit, int | float)
        equal = numbers and math.isclose(value, limit)
        holds = bar["holds"] or equal  # but for the last digit of a float
        state = "yes" if holds else "no"
        if not holds and record["quick"] and _only_few(name, bar, record["result"]):
            state = "not decided"
        shown = {"bar": NAMES.get(bar["bar"], bar["bar"]), "measured": _beside(value, limit)}
        shown |= {"limit": _word(limit), "holds": state}
        if "measured" in bar:
            held = bar["measured"] if equal else bar["held"]  # the worst of them is at the limit
            shown["cases that hold"] = f"{held} of {bar['measured']}"
        found.append(shown)
    return sorted(found, key=lambda bar: STATES.index(bar["holds"]))


def _raw_bars(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    told = result.get("bars", ())
    for each in told if isinstance(told, list) else ():
        value = next((each[k] for k in ("worst", "mae", "value") if k in each), None)
        holds = each["holds"] if "holds" in each else each["held"]
        cases = {k: each[k] for k in ("held", "measured") if "measured" in each}
        yield {"bar": each["bar"], "value": value, "limit": each["limit"], "holds": holds} | cases
    limits = list(BARS.get(name, ()))
    for bar, each in told.items() if isinstance(told, dict) else ():
        if isinstance(each, bool):
            value, limit = _of_series(bar, result) if name == "series" else (None, "as named")
            yield {"bar": bar, "value": value, "limit": limit, "holds": each}
        else:  # the limit of a number
            limits.append((bar, "at most", each))
    for where, side, limit in limits:
        if (value := result.get(where)) is not None:
            holds = value <= limit if side == "at most" else value >= limit
            bar = f"{where.replace('_', ' ')}, {side}"
            yield {"bar": bar, "value": value, "limit": limit, "holds": holds}


def _of_series(bar: str, result: dict[str, Any]) -> tuple[float | None, Any]:
    """The number behind a bar of `series.py`, which keeps only whether it holds; and its limit."""
    if bar.startswith("false alarms"):
        return result.get("upper"), 0.02
    found = re.search(r"[\d.]+", bar)
    nats = float(found[0]) if found else math.nan
    if "found in time" in bar and nats in SERIES_WEEKS:
        weeks, least = SERIES_WEEKS[nats]
        rows = result.get("delay_weeks", ())
        shares = [r[f"within_{weeks}"] for r in rows if r["nats"] == nats and r["possible"]]
        return min(shares, default=None), f"{least:.0%} within {weeks} weeks"
    errors = [row["mean"] for row in result.get("error_by_week", ()) if row["nats"] == nats]
    return max(errors, default=None), SERIES_ERRORS.get(nats, "as named")


def _only_few(name: str, bar: dict[str, Any], result: dict[str, Any]) -> bool:
    """Whether the estimate is within the bar, and its confidence limit alone is not."""
    if (name, bar["bar"]) not in LIMITS_OF:
        return False
    where, rate = LIMITS_OF[name, bar["bar"]]
    rates = [row[rate] for row in result.get(where, ())]
    if "lower" in bar["bar"]:
        return bool(rates) and min(rates) >= bar["limit"]
    return bool(rates) and max(rates) <= bar["limit"]


def _beside(value: Any, limit: Any) -> str:
    """A number with as many digits as tell it from its limit."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "not found"
    if not isinstance(value, float) or not isinstance(limit, int | float):
        return _word(value)
    text = _word(value)
    for digits in range(4, 16):
        if value == limit or text != _word(float(limit)):
            break
        text = f"{value:,.{digits}g}"
    return text


def page(results: dict[str, dict[str, Any]]) -> str:
    """All of docs/results.md."""
    words = ABOUT.read_text()

    def table(mark: re.Match[str]) -> str:
        name, what = mark.groups()
        if name == "all":
            return {"bars": _summary, "runs": _runs}[what](results)
        record = results.get(name)
        if record is None or "result" not in record:
            return f"*Not measured: {record['failed'] if record else 'no run yet.'}*"
        return _table_of(name, what, record)

    return MARK.sub(lambda mark: BLANK.sub(f"| {NOTHING} ", table(mark).rstrip("\n")), words)


def _table_of(name: str, what: str, record: dict[str, Any]) -> str:
    result, special = record["result"], SPECIAL.get(name, {})
    part = ", a part of it (`--quick`)" if record["quick"] else ""
    seed = f"seed {record['seed']}" if record["seed"] is not None else "times"
    caption = f"*{seed.capitalize()}{part}{_drawn(name, what, result)}:*\n\n"
    if what in BARS_TABLES:
        return caption + _rows_table(bars_of(name, record))
    if what in special:
        return caption + special[what](result)
    if what == "numbers":
        plain = [(k, v) for k, v in result.items() if isinstance(v, int | float) and k != "seed"]
        return caption + _rows_table([{"number": k.replace("_", " "), "is": v} for k, v in plain])
    return caption + _rows_table(result.get(what, []))


def _drawn(name: str, what: str, result: dict[str, Any]) -> str:
    """How often a table without a column of it was repeated: ", 100 to 200 populations"."""
    if (name, what) not in DRAWN:
        return ""
    where, keys = DRAWN[name, what]
    words = []
    for key, word in keys.items():
        if counts := sorted({row[key] for row in result.get(where, ()) if key in row}):
            ends = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
            words.append(f"{ends} {word}")
    return "".join(f", {each}" for each in words).replace("and, ", "and ")


def _summary(results: dict[str, dict[str, Any]]) -> str:
    """All bars that do not hold, or are not decided; then how many of each benchmark hold."""
    counted, missed = [], []
    for name, record in results.items():
        if bars := bars_of(name, record):
            states = [bar["holds"] for bar in bars]
            run = {"benchmark": name, "run": "a part" if record["quick"] else "whole"}
            kinds = {"hold": "yes", "do not hold": "no", "not decided": "not decided"}
            counted.append(run | {kind: states.count(state) for kind, state in kinds.items()})
        missed += [run | bar for bar in bars if bar["holds"] != "yes"]
    texts = []
    for words, state in (("These do not hold:", "no"), ("These are not decided:", "not decided")):
        if rows := [bar for bar in missed if bar["holds"] == state]:
            keys = ("benchmark", "run", "bar", "measured", "limit")
            texts.append(words + "\n\n" + _rows_table([{k: bar[k] for k in keys} for bar in rows]))
    if not missed:
        texts.append("All bars that were measured hold.\n")
    texts.append("How many bars of each benchmark hold:\n\n" + _rows_table(counted))
    named = dict.fromkeys(mark[1] for mark in MARK.finditer(ABOUT.read_text()) if mark[1] != "all")
    if left := [name for name in named if "result" not in results.get(name, {})]:
        texts.append(f"Not measured: {', '.join(left)}.\n")
    return "\n".join(texts)


def _runs(results: dict[str, dict[str, Any]]) -> str:
    """Commits are in results/ only: those that a history no longer has tell a reader nothing.

    A run of several parts says in a `note` which.
    """
    table = _rows_table(
        [
            {
                "command": f"`{record['command']}`" if "command" in record else f"`{name}`",
                "seconds": record.get("seconds", "stopped"),
                "day": record.get("at", "unknown")[:10],
                "code": "with changes that are in no commit"
                if record["commit"].endswith("+")
                else "as in a commit",
                "Python, NumPy": f"{record['versions']['python']}, {record['versions']['numpy']}",
                "processor": record["processor"],
                "outcome": f"failed: {record['failed']}" if "failed" in record else "measured",
            }
            for name, record in results.items()
        ]
    )
    noted = {name: record["note"] for name, record in results.items() if "note" in record}
    return table + "".join(f"\n`{name}`: {note}\n" for name, note in noted.items())


def _rows_table(rows: list[dict[str, Any]]) -> str:
    """Rows of plain values in Markdown, a few numbers as "1 / 2"; other lists are left out."""
    names = list(dict.fromkeys(k for row in rows for k, v in row.items() if not _is_nested(v)))
    if not names:
        return "*Nothing.*\n"
    lines = [_line(name.replace("_", " ") for name in names), _line("---" for _ in names)]
    return (
        "\n".join([*lines, *(_line(_word(row.get(name)) for name in names) for row in rows)]) + "\n"
    )


def _is_nested(value: Any) -> bool:
    numbers = isinstance(value, list) and all(isinstance(each, float) for each in value)
    return isinstance(value, list | dict) and not (numbers and len(value) <= FEW)


def _line(words: Iterable[str]) -> str:
    return "| " + " | ".join(words) + " |"


def _word(value: Any) -> str:
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float() if math.isinf(value):
            return "not found"
        case float():
            return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        case list():
            return " / ".join(map(_word, value))
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
