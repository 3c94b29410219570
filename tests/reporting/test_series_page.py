"""The page of a series, as text: what it says, links to, and how long it takes."""

import re
import time
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from fedprikl.monitoring.alarms import Alarm
from fedprikl.monitoring.status import SeriesStatus, headline
from fedprikl.protocol import Release
from fedprikl.reporting.charts import Frame, Scale
from fedprikl.reporting.facts import relative
from fedprikl.reporting.series_page import _said, period_page, series_page
from tests.dashboard.sources import RELEASE
from tests.monitoring.statuses import HOSTILE, MISSED, SCENES, SENSORS, series
from tests.reporting.releases import PLAN
from tests.reporting.test_style import contrast, luminance, schemes

VOID = {"meta", "rect", "circle", "line", "path", "br", "link"}


class Outline(HTMLParser):
    """Tags that do not close, ids, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def pages() -> dict[str, str]:
    found = {name: series_page(status) for name, status in SCENES.items()}
    release = Release.from_bytes(RELEASE)
    for name in ("drift", "hostile"):
        status = SCENES[name]
        found[f"period of {name}"] = period_page(status, status.released[-1], release, PLAN)
    return found


PAGES = pages()
each_page = pytest.mark.parametrize("name", PAGES)


@each_page
def test_pages_are_whole(name: str) -> None:
    outline = Outline(PAGES[name])
    assert outline.wrong == []
    assert outline.open == []
    assert len(set(outline.ids)) == len(outline.ids)
    for target in re.findall(r'href="#([^"]+)"', PAGES[name]):
        assert target in outline.ids


@each_page
def test_nothing_is_run_or_fetched(name: str) -> None:
    text = PAGES[name]
    assert not re.search(r"<(script|iframe|img|link|object|embed|form|base)\b", text)
    assert not re.search(r"\son\w+=", text)
    assert "javascript:" not in text
    outside = set(re.findall(r"https?://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()
    assert "\x1b" not in text


@pytest.mark.parametrize("name", SCENES)
def test_the_headline_is_the_first_thing_said(name: str) -> None:
    said = re.findall(r"<h1(?: class=\"\w+\")?>(.*?)</h1>", PAGES[name])
    assert len(said) == 1
    if name != "hostile":
        assert said == [headline(SCENES[name])]


@pytest.mark.parametrize("name", ["drift", "three years", "acknowledged", "columns only"])
def test_every_release_has_a_link_and_nothing_else_has(name: str) -> None:
    status = SCENES[name]
    links = re.findall(r'<th scope="row"><a href="periods/(\d{4})\.html">', PAGES[name])
    assert {int(link) for link in links} == {point.number for point in status.released}
    everywhere = {int(n) for n in re.findall(r'href="periods/(\d{4})\.html"', PAGES[name])}
    assert everywhere == {point.number for point in status.released}


def test_missed_periods_are_gaps_with_their_reason() -> None:
    text = PAGES["drift"]
    assert f"<li>3 weeks (5, 9 and 10): {MISSED}</li>" in text
    assert text.count('class="c-gap"') == 4 * 3  # charts times gaps
    assert f"week 5, 8 February 2027: missed, {MISSED}" in text
    (line,) = re.findall(r'class="c-now" d="([^"]*)"', text)[:1]
    assert line.count("M") == 3  # before, between and after the gaps


def test_alarms_and_what_people_did() -> None:
    text = PAGES["acknowledged"]
    assert (
        "Alarm 1: Drift since week 23 (14 June 2027), mostly departure delay. Also carrier." in text
    )
    assert "Acknowledged on 15 November 2027: New boarding software" in text
    assert text.count('class="c-known"') == text.count('class="c-flag"') == 2
    assert 'class="c-known"' not in PAGES["drift"]
    assert 'class="c-flag"' not in PAGES["no drift"]


def test_thresholds_are_drawn_where_they_are_known() -> None:
    status = SCENES["no drift"]
    unknown = tuple(
        replace(point, threshold=None, cumulative_threshold=None, exceeds=None)
        for point in status.points
    )
    assert 'class="c-limit"' in PAGES["no drift"]
    assert 'class="c-limit"' not in series_page(replace(status, points=unknown))


def test_the_empty_state_says_what_will_happen() -> None:
    text = PAGES["empty"]
    assert "Week 0 begins on 4 January 2027 and ends on 11 January 2027." in text
    assert "<svg" in text  # the budget
    assert "Is there drift?" not in text


def test_a_series_that_never_released_and_is_over() -> None:
    status = SCENES["drift"]
    points = tuple(
        replace(p, state="missed", reason=MISSED, columns=(), whole=None) for p in status.points[:3]
    )
    text = series_page(replace(status, points=points, next_due="", alarms=(), windows=()))
    assert "The series is over, and nothing was released." in text
    assert "3 weeks missed so far." in text
    assert text.count(MISSED) >= 3


def test_faults_come_first_and_are_an_alert() -> None:
    text = PAGES["broken"]
    assert text.index('role="alert"') < text.index("<dl")
    for fault in SCENES["broken"].faults:
        assert fault in text


def test_a_history_that_cannot_be_read_claims_nothing() -> None:
    text = PAGES["unreadable"]
    assert "The file is not a history" in text
    for claim in ("No ledger is kept", "nothing was released", "What happens next", "False alarms"):
        assert claim not in text


def test_a_release_that_is_not_judged_hides_nothing() -> None:
    text = PAGES["unjudged"]
    assert '<h2 id="columns">' in text
    assert '<h2 id="size">' in text
    assert "<td>not judged</td>" in text


def test_drift_is_shaded_where_it_was_counted() -> None:
    """Not in weeks to come, in missed ones, or after its end."""
    text = PAGES["stopped"].split("Several weeks together")[0]
    shaded = re.findall(r'class="c-drift" x="(\d+)" y="20" width="(\d+)"', text)
    assert shaded == [("1", "2"), ("4", "1"), ("8", "4"), ("12", "3")]  # week 3 was missed


def test_a_series_is_not_over_while_weeks_are_due() -> None:
    text = PAGES["stopped"]
    assert "<dd>24 weeks due now</dd>" in text
    none = [replace(p, state="due") for p in SCENES["stopped"].points if p.state == "due"]
    empty = series_page(replace(SCENES["stopped"], points=tuple(none), alarms=(), windows=()))
    assert "24 weeks are over and not counted yet" in empty
    assert "over, and nothing was released" not in text + empty
    assert "the series is over" not in text + empty


def test_what_is_due_is_told() -> None:
    status = SCENES["no drift"]
    due = replace(status.points[-1], state="due")
    text = series_page(replace(status, points=(*status.points[:-1], due)))
    assert "1 week is over and not counted yet, from week 37 on." in text


@pytest.mark.parametrize("every", ["day", "week", "month", "quarter"])
def test_periods_have_the_name_of_their_length(every: str) -> None:
    text = series_page(replace(SCENES["drift"], every=every))
    assert (
        f'<h1 class="drift">Drift since {every} 23 (14 June 2027), mostly departure delay.</h1>'
        in text
    )
    assert f"Each {every} alone" in text
    if every != "week":
        body = text.replace("clients", "")
        assert not re.search(r"\bweeks?\b", body.partition('<h2 id="privacy">')[0])


def test_where_only_columns_are_asked_their_sizes_are_shown() -> None:
    text = PAGES["columns only"]
    assert "departure delay: Total variation (tv)" in text
    assert "Kullback-Leibler divergence (kl)" not in text.partition('<h2 id="windows">')[0]


def test_columns_without_a_chart_of_their_size_are_named() -> None:
    text = PAGES["columns only"]
    sizes = text[text.index('id="size"') : text.index('id="windows"')]
    last = SCENES["columns only"].judged[-1].columns
    assert len(last) > 3
    for view in last:
        assert view.name in sizes


def test_a_period_that_is_above_only_with_others_says_so() -> None:
    point = next(point for point in SCENES["drift"].judged if point.exceeds)
    alone = max(view.statistic or 0.0 for view in point.views)
    assert _said(replace(point, threshold=alone / 2)) == "above"
    assert _said(replace(point, threshold=alone * 2)) == "above, together with earlier ones"


def columns_of(page: str) -> str:
    """The section about columns."""
    return page.partition('<h2 id="columns">')[2].partition("<h2")[0]


def test_the_heat_map_has_a_table_with_the_same_numbers() -> None:
    status = SCENES["drift"]
    text = columns_of(series_page(status))
    point = status.released[-1]
    found = relative(point, point.columns[0])
    assert f"<td>{found:.2f} above</td>" in text
    assert text.count("no release") == 1 + 3 * len(status.columns)  # the key, then the table
    assert "departure delay <span" in text
    assert "above since week 23" in text


def test_columns_that_stand_out_come_first() -> None:
    status = series(30, SENSORS[::-1], since=20)
    names = re.findall(r'class="name" title="([^"]+)"', columns_of(series_page(status)))
    assert names[:2] == ["sensor 20", "sensor 19"]
    assert len(names) == 20


def test_many_columns_are_folded() -> None:
    text = series_page(series(6, tuple(f"c{n}" for n in range(50))))
    assert "30 more columns" in text
    assert text.count('class="name"') == 50


def test_a_thousand_periods_share_cells_and_none_that_speaks_is_lost() -> None:
    status = thousand()
    text = columns_of(series_page(status))
    assert "Each cell stands for 7 weeks" in text
    (width,) = set(re.findall(r'viewBox="0 0 (\d+) 1"', text))
    assert int(width) == 143
    first = next(point.number for point in status.released if point.columns[0].exceeds)
    assert 900 <= first < 905
    assert f'sensor 01 <span class="says">above since week {first}</span>' in text


@cache
def thousand() -> SeriesStatus:
    return series(1000, SENSORS, since=900, missed=tuple(range(40, 60)))


def test_a_thousand_periods_take_less_than_a_second() -> None:
    status = thousand()
    began = time.process_time()
    text = series_page(status)
    assert time.process_time() - began < 6  # a sixth of it is usual; machines differ
    assert len(text) < 2_500_000
    assert len(set(re.findall(r'href="periods/(\d+)\.html"', text))) == 980


def test_many_alarms_share_labels() -> None:
    status = SCENES["three years"]
    many = tuple(
        Alarm(number=n, raised=n, since=n, columns=(), test="period", state="ended")
        for n in range(1, 120)
    )
    text = series_page(replace(status, alarms=many))
    labels = re.findall(r'class="c-alarm" x="([\d.]+)%"', text)
    places = sorted(map(float, labels[: len(labels) // 2]))
    assert all(b - a >= 13 for a, b in pairwise(places))
    assert text.count("<strong>Alarm ") == 119


def test_an_enormous_statistic_leaves_the_threshold_in_sight() -> None:
    scale = Scale.of([400.0, 1.0, -2.0], 4.0)
    assert scale.bend == "roots"
    assert scale.place(4.0) - scale.place(0.0) > 0.08
    assert scale.place(400.0) < 1
    assert Scale.of([12.0], 4.0).bend == "linear"


@pytest.mark.parametrize("values", [[], [0.0], [-3.0], [1e-12], [1e12], [float("inf"), 2.0]])
def test_every_scale_has_ticks_in_order(values: list[float]) -> None:
    for threshold in (None, 4.0):
        scale = Scale.of(values, threshold)
        ticks = scale.ticks(5)
        assert ticks == sorted(ticks)
        assert len(ticks) >= 2 or values == [-3.0]
        heights = [scale.place(tick) for tick in ticks]
        assert all(0 <= height <= 1 for height in heights)


def test_dates_below_a_chart() -> None:
    ticks = list(Frame.of(SCENES["three years"]).dates())
    assert [words for _, words, _ in ticks] == ["4 Jan 2027", "3 Jul 2028", "24 Dec 2029"]
    assert [words for _, words, _ in Frame.of(SCENES["first week"]).dates()] == ["4 Jan 2027"]
    two = [(at, end) for at, _, end in Frame.of(series(2)).dates()]
    assert two == [(0.0, "start"), (100.0, "end")]


def test_heat_colours_are_told_apart_by_lightness() -> None:
    """In their order, each clearly from the next, and all that is above from the ground."""
    known = schemes()
    heat = {name: [known[name][f"heat{n}"] for n in range(5)] for name in ("light", "dark")}
    light, dark = ([luminance(colour) for colour in heat[name]] for name in ("light", "dark"))
    assert light == sorted(light, reverse=True)
    assert dark == sorted(dark)
    for scheme, colours in heat.items():
        assert all(contrast(a, b) > 1.2 for a, b in pairwise(colours))
        assert contrast(colours[2], colours[3]) > 1.5
        ground = known[scheme]["card"]
        assert all(contrast(colour, ground) >= 3 for colour in colours[3:])


def test_hostile_words_are_only_words() -> None:
    assert "<script" not in PAGES["hostile"]
    assert "&lt;script&gt;" in PAGES["hostile"]
    assert HOSTILE not in PAGES["hostile"]


def test_the_report_of_a_period() -> None:
    status, release = SCENES["drift"], Release.from_bytes(RELEASE)
    raised = period_page(status, status.points[24], release, PLAN)
    assert "Alarm 1 was raised here." in raised
    assert "What has drifted" in raised
    assert "no verdict" not in raised.lower()
    quiet = period_page(status, status.points[11], release, PLAN)
    assert "<h1>Week 11: nothing is above its threshold.</h1>" in quiet
    assert "What has drifted" not in quiet
    assert re.findall(r'<a href="([^"#]+)"', quiet) == ["../index.html", "0008.html", "0012.html"]
    first = period_page(status, status.points[0], release, PLAN)
    assert re.findall(r'<a href="([^"#]+)"', first) == ["../index.html", "0001.html"]


def test_a_period_where_only_the_whole_speaks() -> None:
    status, release = SCENES["drift"], Release.from_bytes(RELEASE)
    whole = status.points[24].whole
    assert whole is not None
    above = replace(whole, statistic=9.0, period_exceeds=True)
    point = replace(status.points[24], columns=(), whole=above)
    text = period_page(status, point, release, PLAN)
    assert "<h1>Week 24: the whole is above its threshold.</h1>" in text
    unjudged = period_page(status, replace(point, exceeds=None), release, PLAN)
    assert "<h1>Week 24: not judged.</h1>" in unjudged


@pytest.mark.parametrize("name", PAGES)
def test_no_row_of_a_table_is_wider_than_its_head(name: str) -> None:
    """Cells that span several columns count as many."""
    for table in re.findall("<table.*?</table>", PAGES[name], re.DOTALL):
        rows = re.findall("<tr>.*?</tr>", table, re.DOTALL)
        wide = {
            len(re.findall("<t[hd][ >]", row))
            + sum(int(more) - 1 for more in re.findall('colspan="(\\d+)"', row))
            for row in rows
        }
        assert len(wide) == 1, wide


def test_what_is_due_hides_no_report() -> None:
    """24 weeks are over and not counted yet: one row, and then the latest reports."""
    text = PAGES["stopped"].split('id="reports"')[1]
    shown, _ = text.split("<details", 1)
    names = re.findall('<th scope="row">(?:<a[^>]*>)?([^<]*)', shown)
    assert names == ["week 15 to 38", *(f"week {number}" for number in range(14, 9, -1))]


def test_a_population_of_any_name_is_spoken_of_as_one() -> None:
    text = series_page(replace(SCENES["drift"], population="clients"))
    assert "How far the population is from the reference" in text
