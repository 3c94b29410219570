"""docs/results.md is made of results/, and what other pages quote is what was measured."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
RECORD = {
    "quick": True,
    "seed": 7,
    "commit": "0" * 40,
    "processor": "p",
    "versions": {"python": "3", "numpy": "2"},
    "command": "python benchmarks/x.py",
    "seconds": 1.0,
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    """The runner and the page: scripts beside the benchmarks."""
    names = ("everything", "results_page", "columns_tables", "power_tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        modules = {name: importlib.import_module(name) for name in names}
        yield type("Bench", (), modules)
        for name in names:
            del sys.modules[name]


def test_the_page_is_made_of_the_results(bench: Any) -> None:
    page = bench.results_page
    made = page.page(page.read_results())
    assert (ROOT / page.PAGE).read_text() == made, "run `python benchmarks/everything.py --page`"


def test_quotes_are_what_was_measured(bench: Any) -> None:
    page = bench.results_page
    results = page.read_results()
    for each in page.pages_that_quote():
        assert page.requoted(each.read_text(), results) == each.read_text(), each.name


def test_a_quote_that_is_out_of_date_is_written_anew(bench: Any) -> None:
    results = {
        "x": RECORD | {"result": {"ratio": 2.345, "rows": [{"rate": 0.0123}], "big": 1234.5}}
    }
    text = "3.1<!-- x.ratio --> and 9%<!-- x.rows.0.rate -->, 7<!-- x.big -->, 5<!-- none.yet -->"
    wanted = text.replace("3.1", "2.3").replace("9%", "1.2%").replace("7<", "1,234<")
    assert bench.results_page.requoted(text, results) == wanted


def test_every_benchmark_is_run_and_has_a_place_on_the_page(bench: Any) -> None:
    scripts = {path.stem for path in BENCHMARKS.glob("*.py") if '"--json"' in path.read_text()} - {
        "everything"
    }
    assert scripts == set(bench.everything.RUNS)
    marks = {
        mark[1] for mark in bench.results_page.MARK.finditer((BENCHMARKS / "about.md").read_text())
    }
    assert marks - {"all"} == set(bench.everything.RUNS)


def test_commands_have_the_options_that_are_passed(bench: Any) -> None:
    for name, run in bench.everything.RUNS.items():
        known = set(re.findall(r'"(--[a-z-]+)"', (BENCHMARKS / f"{name}.py").read_text()))
        for quick in (True, False):
            words = bench.everything.command_of(
                name, quick=quick, seed=1, data=Path("digits"), out="out.json"
            )
            assert {word for word in words if word.startswith("--")} <= known, name
            assert ("--seed" in words) is run.seeded


def test_bars_that_do_not_hold_are_on_the_page(bench: Any) -> None:
    found = {
        "secure_sum": RECORD | {"result": {"floor_ratio": 9.0, "flower_speedup": 30.0}},
        "columns": RECORD | {"failed": "It stopped."},
        "report_cost": RECORD | {"result": {"client_ms": 3.0, "bars": {"client_ms": 1.0}}},
        "series": RECORD | {"result": {"bars": {"found in time": False}}},
    }
    text = bench.results_page.page(found)
    assert "| secure_sum | a part | 1 | 1 | 0 |" in text
    assert "| secure_sum | a part | floor ratio, at most | 9 | 3 |" in text
    assert "| report_cost | a part | client ms, at most | 3 | 1 |" in text
    assert "| series | a part | found in time | not found | as named |" in text
    assert text.index("These do not hold:") < text.index("How many bars of each benchmark hold:")
    assert re.search(r"^Not measured: .*columns", text, re.MULTILINE)
    assert "*Not measured: It stopped.*" in text
    assert "*Not measured: no run yet.*" in text


def bars_of(bench: Any, name: str, result: dict[str, Any], *, quick: bool = True) -> Any:
    return bench.results_page.bars_of(name, RECORD | {"quick": quick, "result": result})


def test_a_limit_that_few_populations_cannot_reach_is_not_decided(bench: Any) -> None:
    name = "false alarms at 1%, a release, upper limit"
    bar = {"bar": name, "worst": 0.107, "limit": 0.02, "holds": False, "measured": 2, "held": 0}
    for rate, quick, state in (
        (0.017, True, "not decided"),
        (0.017, False, "no"),
        (0.05, True, "no"),
    ):
        result = {"bars": [bar], "alarms": [{"rate": 0.0}, {"rate": rate}]}
        (found,) = bars_of(bench, "power", result, quick=quick)
        assert (found["bar"], found["holds"]) == (name, state)
    low = bar | {"bar": "coverage, lower limit", "worst": 0.89, "limit": 0.93}
    for rate, state in ((0.95, "not decided"), (0.92, "no")):
        result = {"bars": [low], "coverage": [{"rate": 1.0}, {"rate": rate}]}
        (found,) = bars_of(bench, "power", result)
        assert found["holds"] == state


def test_what_is_measured_can_be_told_from_its_limit(bench: Any) -> None:
    def shown(value: Any, limit: Any) -> Any:
        bar = {"bar": "a", "value": value, "limit": limit, "holds": False}
        (found,) = bars_of(bench, "clients", {"bars": [bar]})
        return found["measured"], found["limit"], found["holds"]

    assert shown(1.5002, 1.5) == ("1.5002", "1.5", "no")
    assert shown(1.51, 1.5) == ("1.51", "1.5", "no")
    assert shown(1.5 * (1 + 1e-15), 1.5) == ("1.5", "1.5", "yes")
    assert shown(float("inf"), 1.3) == ("not found", "1.3", "no")
    assert shown(None, 1.3) == ("not found", "1.3", "no")


def test_bars_of_series_show_their_numbers(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = bench.results_page
    result = {
        "upper": 0.216,
        "alarms": [{"false_alarm_per_year": 0.01}],
        "delay_weeks": [
            {"nats": 0.005, "possible": True, "within_4": 0.95},
            {"nats": 0.005, "possible": False},
        ],
        "error_by_week": [{"nats": 0.0, "mean": 0.002}, {"nats": 0.0, "mean": 0.003}],
        "bars": {
            "a drift of 0.005 found in time": True,
            "mean error at 0.0 nats": True,
            "false alarms per year, upper 99% limit, at most 2%": False,
        },
    }
    found = bars_of(bench, "series", result)
    assert [tuple(bar.values())[1:] for bar in found] == [
        ("0.216", "0.02", "not decided"),
        ("0.95", "90% within 4 weeks", "yes"),
        ("0.003", "0.006", "yes"),
    ]
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bars = importlib.import_module("series").BARS
    assert {n: bars[n] for n in page.SERIES_WEEKS} == page.SERIES_WEEKS
    assert {n: bars[n] for n in page.SERIES_ERRORS} == page.SERIES_ERRORS


def test_no_cell_is_blank_and_no_commit_is_named(bench: Any) -> None:
    page = bench.results_page
    text = (ROOT / page.PAGE).read_text()
    assert not re.search(r"\| +\|", text)
    for record in page.read_results().values():
        assert record["commit"][:10] not in text
    found = {"files": RECORD | {"result": {"cases": []}, "at": "2030-01-02T03:04:05"}}
    assert "| 1 | 2030-01-02 | as in a commit | 3, 2 | p | measured |" in page.page(found)


def test_captions_say_how_often_a_table_was_repeated(bench: Any) -> None:
    told = bench.results_page._drawn
    rows = [{"repetitions": 100}, {"repetitions": 2000}]
    assert told("columns", "verdicts on columns", {"cases": rows}) == (
        ", 100 to 2,000 populations per row"
    )
    both = [{"drifted_columns": 30, "calm_columns": 10}]
    assert told("columns", "columns on raw data", {"evidently": both}) == (
        ", 30 drifted columns and 10 without drift per entry"
    )
    assert told("series", "alarms", {"alarms": [{"years": 7}]}) == ""


def test_a_benchmark_leaves_what_is_needed_to_run_it_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.everything.Run("", "--files 2 --rows 3", seeded=False)
    monkeypatch.setitem(bench.everything.RUNS, "files", run)
    record = bench.everything.measure("files", quick=True, seed=5, data=None)
    assert record["result"]["files"] == 2
    assert record["command"] == "python benchmarks/files.py --json --files 2 --rows 3"
    assert re.fullmatch(r"[0-9a-f]{40}( \+)?", record["commit"])
    assert {"python", "numpy", "fedprikl"} <= record["versions"].keys()
    assert "cores" in record["processor"]
    json.dumps(record)
    monkeypatch.setitem(bench.everything.RUNS, "files", bench.everything.Run("--nonsense"))
    assert (
        "--nonsense" in bench.everything.measure("files", quick=False, seed=5, data=None)["failed"]
    )
    needs = bench.everything.measure("ablation", quick=True, seed=5, data=None)
    assert "needs the digits" in needs["failed"]
