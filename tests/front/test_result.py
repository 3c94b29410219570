"""What a comparison shows, and how it is handed on."""

import json
import math
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedprikl import (
    Comparison,
    InsecureSeededNoise,
    InvalidInputError,
    PlannedRound,
    Reference,
    SigningKey,
    compare,
    libraries,
    verify,
)
from fedprikl import plan as make_plan
from fedprikl.errors import MissingExtraError
from fedprikl.front.result import OF_WHOLE, library_of
from tests.front.conftest import Population

pytestmark = pytest.mark.slow

NASTY = "<script>alert('people')</script>"


@pytest.fixture(scope="module")
def found(people: Population) -> Comparison:
    result: Comparison = people.compare()
    return result


class Page(HTMLParser):
    """Every tag, and every address outside of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            inside = (value or "").startswith("#") or name.startswith("xmlns")
            if name in ("src", "href", "xlink:href", "action", "data") and not inside:
                self.addresses.append(str(value))
            assert not name.startswith("on"), name

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()


def test_the_answer(found: Comparison) -> None:
    low, high = found.interval or (0.0, 0.0)
    assert low < found.value < high
    assert found.drifted is True
    assert found.verdict is not None
    assert found.verdict.exceeding == tuple(
        each.name for each in found.verdict.statistics if each.value > each.threshold
    )
    asked = [question.divergence for question in found.plan.about_whole]
    assert asked == [answer.divergence for answer in found.release.answers] == ["kl", "tv", "js"]
    assert found.privacy.insecure
    assert found.privacy.claimed_epsilon == found.plan.budget.epsilon
    assert str(found.privacy) in str(found)
    assert found.target == "D(Pi || 0.01 Pi + 0.99 P)"


def test_words(found: Comparison) -> None:
    assert repr(found).startswith("<Comparison of 'people': drift, ")
    first, _, *rest = str(found).splitlines()
    assert first.startswith("The 6 clients of people differ from the reference. ")
    assert any(line.startswith("All columns together: drift found: ") for line in rest)
    said = "The records of people differ from the reference by "
    assert sum(line.startswith(said) for line in rest) == 3


def test_columns_can_be_looked_into(found: Comparison) -> None:
    assert [column.name for column in found.columns] == ["age", "plan"]
    assert found.columns["age"].columns == ("age",)
    assert set(found.columns.drifted) == {each.name for each in found.columns if each.drifted}
    assert found.to_dict()["drifted_columns"] == list(found.columns.drifted)
    with pytest.raises(InvalidInputError, match="no answer about 'city'; it has 'age', 'plan'"):
        found.columns["city"]
    rows = found.columns.to_frame("polars").to_dicts()
    assert [row["column"] for row in rows] == ["age", "plan"]
    for row, column in zip(rows, found.columns, strict=True):
        size = column.answer("tv")
        assert size is not None
        assert (row["tv"], row["tv_low"], row["tv_high"]) == (size.value, *(size.interval or ()))
    cells = found.columns.cells("polars").to_dicts()
    assert len(cells) == sum(len(column.cells) + 1 for column in found.columns)  # and new values
    assert {cell["shifted"] for cell in cells} <= {"up", "down", ""}


def test_a_whole_that_was_not_asked_about_leads_to_the_columns(found: Comparison) -> None:
    release = replace(found.release, answers=(), verdict=None, noisy_counts=None)
    only_columns = replace(found, release=release)
    with pytest.raises(InvalidInputError, match=r"columns only.*result\.columns\.to_frame\(\)"):
        _ = only_columns.value
    assert only_columns.interval is None
    empty: Any = only_columns.to_frame("polars")
    assert (len(empty), empty.columns) == (0, list(OF_WHOLE))
    assert only_columns.columns.drifted == found.columns.drifted


@pytest.mark.parametrize(
    ("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_a_row_for_every_library(found: Comparison, library: Any, kind: type[Any]) -> None:
    frame: Any = found.to_frame(library)
    assert isinstance(frame, kind)
    row = pa.table(frame).to_pylist()[0] if library != "pandas" else frame.iloc[0].to_dict()
    assert (row["value"], row["drifted"], row["included"]) == (found.value, True, 6)
    assert (row["low"], row["high"]) == found.interval


def test_a_row_states_its_privacy(people: Population) -> None:
    """Whole epsilons are floats too, so that frames of many rounds fit together."""
    whole = make_plan(people.reference, clients=6, records=360, epsilon=1)
    result = people.compare(plan=whole)
    frame = result.to_frame("polars")
    assert frame.columns == list(OF_WHOLE)
    assert frame.schema["epsilon"] == frame.schema["delta"] == pl.Float64
    row = frame.to_dicts()[0]
    assert (row["epsilon"], row["delta"]) == (1.0, result.privacy.delta)
    assert row["delta"] != whole.plan.budget.delta  # the noise is pure, whatever the plan allows
    assert (row["unit"], row["trust"]) == ("nats", "aggregator")


def test_the_usual_library_is_one_that_is_there(
    found: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_files = replace(found, library=None)
    assert type(of_files.to_frame()) is pd.DataFrame
    monkeypatch.delitem(sys.modules, "pandas")
    assert type(of_files.to_frame()) is pl.DataFrame
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="not installed"):
        of_files.to_frame()
    with pytest.raises(InvalidInputError, match="pandas, polars or pyarrow"):
        found.to_frame("modin")  # type: ignore[arg-type]


def test_a_saved_release_is_genuine(found: Comparison, tmp_path: Path) -> None:
    found.save(tmp_path / "release.json")
    assert verify(tmp_path / "release.json", key=found.release.signer).value == found.value
    assert json.loads(json.dumps(found.to_dict()))["signature"] == found.release.signature


def test_pages_are_whole_and_have_nothing_from_outside(found: Comparison, tmp_path: Path) -> None:
    found.save_html(tmp_path / "report.html")
    for text in ((tmp_path / "report.html").read_text(encoding="utf-8"), found._repr_html_()):
        page = Page(text)
        assert page.open == []
        assert page.addresses == []
        assert "svg" in page.tags
        assert not {"script", "link", "iframe", "img", "object", "embed"} & set(page.tags)
        assert "url(http" not in text
        assert "drift found: " in text
        assert "<strong><p>" not in text


def test_the_report_has_a_row_for_each_field(found: Comparison, tmp_path: Path) -> None:
    found.save_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<th scope="row">questions 1: divergence</th><td>kl</td>' in text
    assert '<th scope="row">questions 4: views</th><td>age, plan</td>' in text
    assert "{" not in text.split("Parameters of the plan</summary>")[1]


def test_names_are_escaped(people: Population, tmp_path: Path) -> None:
    planned = make_plan(
        people.reference, clients=6, records=360, epsilon=1.0, population=NASTY, most_records=59
    )
    short = [{name: rows[name][:50] for name in rows} for rows in people.rows[:5]]
    clients = {f"{NASTY} {n}": pl.DataFrame(rows) for n, rows in enumerate(short)}
    result = people.compare(clients | {NASTY: pl.DataFrame(people.rows[5])}, plan=planned)
    assert list(result.refusals) == [NASTY]
    result.save_html(tmp_path / "report.html")
    for text in ((tmp_path / "report.html").read_text(encoding="utf-8"), result._repr_html_()):
        assert "script" not in Page(text).tags
        assert "&lt;script&gt;" in text
        assert "1 took no part: the plan has no room" in text


def test_verify_raises_what_is_not_genuine(
    people: Population, found: Comparison, tmp_path: Path
) -> None:
    release = found.release
    assert verify(release) is verify(release, key=f" {release.signer.upper()}\n") is release
    assert verify(release, plan=people.planned) is release
    with pytest.raises(InvalidInputError, match="NOT genuine"):
        verify(release, key=SigningKey.generate().public)
    with pytest.raises(InvalidInputError, match="malformed"):
        verify(release, key="abc")
    with pytest.raises(InvalidInputError, match="no release"):
        verify(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"Give result\.release"):
        verify(found)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="another plan than the one given"):
        verify(release, plan=other_plan(people.reference))
    document = found.to_dict()
    changed = {name: document[name] for name in ("release", "signer", "signature")}
    changed["release"] = changed["release"] | {"payload": 7}
    (tmp_path / "release.json").write_text(json.dumps(changed))
    with pytest.raises(InvalidInputError, match=r"release\.json is NOT genuine"):
        verify(tmp_path / "release.json")


def other_plan(reference: Reference) -> PlannedRound:
    return make_plan(reference, clients=6, records=360, epsilon=0.5)


@pytest.mark.parametrize(
    "library", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"]
)
def test_frames_are_of_the_library_that_was_given(people: Population, library: Any) -> None:
    result = people.compare(people.frames(library))
    kind = type(library({"a": [1]}))
    for frame in (result.to_frame(), result.columns.to_frame(), result.columns.quality()):
        assert type(frame) is kind
    named = dict(enumerate(people.frames(library)))
    assert library_of(named) == library_of([library({"a": [1]})])
    assert library_of("clients") is library_of([np.zeros(3)]) is library_of([]) is None


def test_the_median_is_beside_the_other_numbers(found: Comparison) -> None:
    rows = {row["column"]: row for row in found.columns.to_frame("polars").to_dicts()}
    age = rows["age"]
    assert 35 < age["reference_median"] < 45
    assert age["median_low"] <= age["median"] <= age["median_high"]
    assert age["median"] > 45  # 55 in truth
    assert math.isnan(rows["plan"]["median"])
    assert "age: median " in str(found)


def test_the_figure_shows_every_column(found: Comparison) -> None:
    figure = found.plot()
    first, *others = figure.axes
    names = [label.get_text() for label in first.get_yticklabels()]
    assert sorted(names) == ["age", "plan"]
    assert [axes.get_title(loc="left") for axes in others] == list(found.columns.drifted)


def test_new_values_are_in_cells_and_figure_as_in_the_quality(found: Comparison) -> None:
    quality = {row["column"]: row for row in _rows(found.columns.quality("polars"), "values")}
    rows = {row["column"]: row for row in _rows(found.columns.cells("polars"), "cell")}
    assert rows.keys() == quality.keys() == {"age", "plan"}
    for name, row in rows.items():
        told = ("reference", "share", "low", "high")
        assert [row[each] for each in told] == [quality[name][each] for each in told]
        assert row["noisy_count"] == found.columns[name].counts.out_of_domain[0]
    for axes in found.plot().axes[1:]:  # there are none
        assert not axes.get_yticklabels()[-1].get_text().startswith("new: ")


def test_new_values_that_are_no_noise_are_drawn_and_called_more() -> None:
    columns = "abcd"
    old = pl.DataFrame(dict.fromkeys(columns, ["x", "y"] * 1000))
    later = dict.fromkeys(columns, ["x", "y", "y", "z"] * 100)
    clients = [pl.DataFrame(later) for _ in range(6)]
    reference = Reference.fit(old, joint=False)
    planned = make_plan(reference, clients=6, records=2400, epsilon=2.0)
    noise = InsecureSeededNoise(1)
    found = compare(reference, clients, planned, ledger=None, source=noise)
    for row in found.columns.to_frame("polars").to_dicts():
        assert row["up"] == "new: not in the reference, or missing"
        assert row["down"] == "x"
    figure = found.plot()
    assert len(figure.axes) == 1 + 3
    for axes in figure.axes[1:]:
        assert axes.get_yticklabels()[-1].get_text().startswith("new: ")
    (left,) = {*columns} - {axes.get_title(loc="left") for axes in figure.axes[1:]}
    assert figure.get_supxlabel() == f"Also drifted, without a chart: {left}"


def _rows(frame: Any, named: str) -> list[dict[str, Any]]:
    return [row for row in frame.to_dicts() if row[named].startswith("new: ")]


def test_medians_of_times_are_texts() -> None:
    days = pl.Series([datetime(2026, 1, 1) + timedelta(days=n % 90) for n in range(3000)])
    table = pl.DataFrame({"day": days, "kind": ["a", "b"] * 1500})
    reference = Reference.fit(table)
    planned = make_plan(reference, clients=6, records=3000, epsilon=2.0)
    later = table.with_columns(pl.col("day") + timedelta(days=20))
    clients = [later[i::6] for i in range(6)]
    noise = InsecureSeededNoise(1)
    found = compare(reference, clients, planned, ledger=None, source=noise)
    rows = {row["column"]: row for row in found.columns.to_frame("polars").to_dicts()}
    day = rows["day"]
    assert math.isnan(day["median"])
    assert day["reference_median_time"].startswith("2026-02-1")
    assert day["median_low_time"] <= day["median_time"]
    assert "2026-02-25" < day["median_time"] < "2026-03-20"
    assert rows["kind"]["median_time"] == ""


def test_a_figure_needs_the_extra(found: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> NoReturn:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(libraries, "import_module", absent)
    libraries.matplotlib_pyplot.cache_clear()
    with pytest.raises(MissingExtraError, match=r"fedprikl\[report\]"):
        found.plot()
    libraries.matplotlib_pyplot.cache_clear()


def test_what_is_shown_in_a_shell_is_short(found: Comparison, people: Population) -> None:
    things = (found, found.plan, found.release, found.columns, people.planned, people.reference)
    for thing in things:
        assert len(repr(thing)) < 120
        assert "\n" not in repr(thing)
