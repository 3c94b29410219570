"""The report and the summary: everything that a person needs, and nothing that harms."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fedprikl.documents import LARGEST
from fedprikl.estimation import JudgedStatistic
from fedprikl.protocol import Release, SigningKey
from fedprikl.protocol.release import ColumnAnswer, ReleasedPeriod
from fedprikl.reporting import facts, release_page, release_summary
from fedprikl.reporting.charts import PLOT
from fedprikl.reporting.facts import column_lines
from fedprikl.reporting.release_page import column_story, ranking_chart
from tests.reporting.releases import (
    COLUMNS,
    HOSTILE,
    PLAN,
    SCENES,
    column,
    no_party_trusted,
    release,
    two_of_six,
)


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text; refuses tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words += f"{data}\n"

    def count(self, tag: str) -> int:
        return sum(1 for name, _ in self.tags if name == tag)


def both(shown: Release) -> list[str]:
    return [release_page(shown, PLAN, {}), release_summary(shown, PLAN)]


@pytest.mark.parametrize("scene", SCENES)
def test_pages_are_whole_and_need_nothing_from_outside(scene: str) -> None:
    for text in both(SCENES[scene]):
        page = Page(text)
        names = {name for name, _ in page.tags}
        assert not names & {"script", "link", "iframe", "img", "object", "embed", "form", "input"}
        assert "url(" not in text
        assert "@import" not in text
        for _, attributes in page.tags:
            assert not any(name.startswith("on") or name in ("src", "href") for name in attributes)


@pytest.mark.parametrize("scene", SCENES)
def test_pages_can_be_heard(scene: str) -> None:
    """Language, one first heading, a name and a description on each chart, heads in tables."""
    text = release_page(SCENES[scene], PLAN, {})
    page = Page(text)
    assert dict(page.tags)["html"] == {"lang": "en"}
    assert page.count("h1") == 1
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert charts
    for chart in charts:
        assert chart.startswith('<svg role="img"')
        assert re.search(r"<title>[^<]+</title><desc>[^<]+</desc>", chart)
    assert {attributes.get("scope") for tag, attributes in page.tags if tag == "th"} <= {
        "col",
        "row",
    }
    assert any(tag == "th" for tag, _ in page.tags)


def test_the_report_of_two_drifted_columns() -> None:
    text = release_page(SCENES["two of six"], PLAN, {"bytes sent": "1,024"}, ("2 were late.",))
    headline = (
        "The 400 clients of aircraft differ from the reference. Departure delay and carrier have "
        "drifted; origin, month, distance and engine have not."
    )
    assert f'<h1 class="drift">{headline}</h1>' in text
    page = Page(text)
    for words in (
        "31 January 2030, 12:00 UTC",
        "400 of 412",
        "40,295",
        "2 were late.",
        "1,024",
        "no result on this page would be more than 2.72 times as likely",
        "One process played all parties",
        "All records of one client together are hidden less.",
        "expected without drift, 40,295 records",
        "threshold, which chance rarely exceeds",
        "example: a 50:50 split becomes 60:40",
        "example: 3 records in a hundred",
        "D(Pi || 0.01 Pi + 0.99 P)",
        "Protected: one record.",
    ):
        assert words in page.words, words
    assert page.words.count("▲ more") == 3 + 4 + 7  # in bars, and in what is read aloud
    for label in (*COLUMNS["departure delay"], *COLUMNS["carrier"]):
        assert f">{label}</text>" in text
    assert ">EWR</text>" not in text  # origin has not drifted: in the table only
    assert '<th scope="row">EWR</th>' in text
    before_folds, *_ = text.split("Everything else")
    assert "<details" not in before_folds
    assert "D(Pi" not in before_folds


def test_many_columns_and_many_categories_are_folded() -> None:
    text = release_page(SCENES["forty"], PLAN, {})
    assert "3 of 40 columns have drifted: sensor_03, sensor_17 and sensor_31." in text
    assert "25 more columns</summary>" in text
    assert "The 10 that differ most are shown; 15 more are in the table below." in text
    assert text.count("new: not in the reference</text>") == 1
    many = tuple(column(f"c{n}", ("a", "b", "c", "d"), drift=0.1, seed=n) for n in range(9))
    assert "Charts of 3 more columns</summary>" in release_page(release(many), PLAN, {})


def test_one_more_is_one() -> None:
    eleven = column("c", tuple("abcdefghijk"), drift=0.1, seed=1)
    said = column_story(replace(eleven, cells=eleven.cells[:11]))
    assert said.endswith("The 10 that differ most are shown; 1 more is in the table below.")
    many = tuple(column(f"c{n}", ("a", "b", "c", "d"), drift=0.1, seed=n) for n in range(7))
    assert "Charts of 1 more column</summary>" in release_page(release(many), PLAN, {})


def test_no_drift_says_what_that_means() -> None:
    text = release_page(SCENES["no drift"], PLAN, {})
    assert '<h1 class="calm">No drift found among the 400 clients of aircraft.</h1>' in text
    assert "A drift that is smaller than the thresholds may still be there." in text
    assert "What has drifted" not in text


def test_a_bar_stands_beside_what_no_drift_gives_and_another_beside_its_threshold() -> None:
    """What is judged are other numbers than the tv that is shown: a thin bar of their own."""
    found = SCENES["two of six"]
    order = facts.ranked(found.columns)
    chart = ranking_chart(order)
    for each in order:
        assert f"{each.statistics[0].times}x threshold" in chart
    dashed = re.findall(r'<line x1="([0-9.]+)%"[^>]*stroke-dasharray="4 2"', chart)
    assert dashed == [f"{PLOT / 2:.2f}"] * len(found.columns)
    thin = re.findall(r'x="([0-9.]+)%" y="\d+" width="([0-9.]+)%" height="4"', chart)
    ends = [float(width) for x, width in thin if float(x) == 0]
    assert [end > PLOT / 2 for end in ends] == [each.drifted for each in order]
    ratios = [max(each.ratio for each in column.statistics) for column in order]
    assert len(thin) - len(ends) == sum(ratio > 2 for ratio in ratios) > 0  # behind a gap
    for end, ratio in zip(ends, ratios, strict=True):
        if ratio <= 2:  # as long as it is, beside the threshold in the middle
            assert end == pytest.approx(PLOT * max(ratio, 0.0) / 2, abs=0.31)


def test_a_value_below_its_own_threshold_is_not_in_the_colour_of_drift() -> None:
    found = SCENES["two of six"]
    assert found.verdict is not None
    answer = found.answers[0]
    for times, colour in ((0.5, "drifted"), (2.0, "now")):
        judged = JudgedStatistic(
            name=answer.divergence,
            value=answer.value,
            threshold=times * answer.value,
            unit=answer.unit,
        )
        other = JudgedStatistic(name="of cells", value=9.0, threshold=1.0, unit="")
        verdict = replace(found.verdict, statistics=(judged, other))
        page = release_page(replace(found, verdict=verdict), PLAN, {})
        chart = page[page.index(f"The size of the drift, {answer.divergence}<") :]
        first = re.search(r'<rect [^>]*fill="var\(--(\w+)', chart)
        assert first is not None
        assert first[1] == colour


def test_verdicts_say_which_numbers_they_rest_on() -> None:
    text = release_page(no_party_trusted(), PLAN.changed(aggregator=64 * "a"), {})
    assert "not even sums: every client added noise" in text
    for page in (text, release_page(SCENES["two of six"], PLAN, {})):
        assert "The thin bar is what the verdict rests on" in page
        assert '<li class="chance">expected without drift</li>' in page
        assert '<li class="mark">threshold of the thin bar</li>' in page


def test_hostile_texts_are_shown_and_do_nothing() -> None:
    for text in both(SCENES["hostile"]):
        page = Page(text)
        names = {name for name, _ in page.tags}
        assert not names & {"script", "b", "i"}
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "[red]x[/red]" in text
        assert not {"\x1b", "\u202e"} & set(text)
    assert HOSTILE in {label for each in SCENES["hostile"].columns for label in each.columns}


ODD = (0.0, -0.0, 5e-324, 1e308, -1e308, 1e-12)


@pytest.mark.parametrize("value", ODD)
def test_odd_numbers_are_shown(value: float) -> None:
    """What is signed may still be absurd: it must not break the page."""

    def odd(each: ColumnAnswer) -> ColumnAnswer:
        low, high = sorted((value, 0.5))
        cells = [replace(c, reference=value, share=value) for c in each.cells]
        cells[0] = replace(cells[0], interval=(low, high))
        sizes = [
            replace(a, value=value, interval=(low, high), no_drift=value) for a in each.answers
        ]
        held = min(max(value, -LARGEST), LARGEST)  # beyond, counts are refused
        counts = replace(each.counts, counts=(held,) * len(cells), out_of_domain=(held,))
        return replace(each, cells=tuple(cells), answers=tuple(sizes), counts=counts)

    shown = release([odd(each) for each in two_of_six()])
    answers = tuple(replace(each, value=value, no_drift=value) for each in shown.answers)
    for text in both(replace(shown, answers=answers)):
        page = Page(text)
        for _, attributes in page.tags:
            for name in ("x", "y", "width", "height", "x1", "x2"):
                length = attributes.get(name) or "0"
                if re.fullmatch(r"[-+.\deinfa]+%?", length):
                    assert math.isfinite(float(length.rstrip("%"))), (name, length)
        assert max(map(len, page.words.splitlines())) < 5000


def test_a_release_without_any_verdict() -> None:
    columns = [replace(each, verdict=None) for each in two_of_six()]
    text = release_page(release(columns, verdict=None), PLAN, {})
    assert "There is no verdict on the 400 clients of aircraft: it could not be computed." in text
    assert "Nothing follows for or against a drift" in text
    period = ReleasedPeriod(number=3, start="", end="", previous="")
    text = release_page(release(columns, verdict=None, period=period), PLAN, {})
    words = "One period of the 400 clients of aircraft is not judged by itself: fedprikl monitor"
    assert words in text
    assert "could not be computed" not in text


def test_releases_come_back() -> None:
    key = SigningKey.generate()
    for shown in SCENES.values():
        signed = shown.sign(key)
        again = Release.from_bytes(signed.to_bytes())
        assert again == signed
        assert release_page(again, PLAN, {}) == release_page(signed, PLAN, {})


def test_values_that_the_reference_never_saw_are_shown_if_they_are_no_noise() -> None:
    columns = two_of_six()
    for rest, shown in ((111.0, 1), (30.0, 0)):  # noise of 12 on each count
        some = [
            replace(each, counts=replace(each.counts, out_of_domain=(rest * bool(each.drifted),)))
            for each in columns[:1]
        ]
        text = release_page(release(some), PLAN, {})
        assert text.count("new: not in the reference</text>") == shown


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_a_column_with_new_values_says_so(share: float) -> None:
    """Where they are what was found, in the table of text and in the story of the chart."""
    calm = column("ward", ["A", "B", "C"])
    unseen = JudgedStatistic(name="out_of_domain", value=share, threshold=0.02, unit="")
    counts = replace(calm.counts, out_of_domain=(200.0,))
    assert calm.verdict is not None
    verdict = replace(calm.verdict, statistics=(*calm.statistics, unseen))
    found = replace(calm, verdict=verdict, counts=counts)
    lines = "\n".join(column_lines((found,)))
    says = "new values, which the reference does not have"
    assert (f"drifted: {says}" in lines) is (share > 0.02)
    assert (f"There are now {says}." in column_story(found)) is (share > 0.02)
