"""The report in a real browser: on a phone and at a desk, light and dark."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest

from fedprikl.reporting import release_page, release_summary
from fedprikl.reporting.charts import Bar, bar_chart
from fedprikl.reporting.html import Html, page
from fedprikl.reporting.series_page import TOGETHER, series_page
from tests.browser import look
from tests.monitoring.statuses import SCENES as SERIES
from tests.reporting.releases import PLAN, SCENES, with_values

pytestmark = pytest.mark.slow

WIDTHS = (400, 1200)
GAP = 4  # pixels between a bar and its number
COSTS = {"bytes of masked counts per client": "1,024"}
PAGES = {name: release_page(release, PLAN, COSTS) for name, release in SCENES.items()}
VALUED, REFERENCE = with_values()
PAGES["values"] = release_page(VALUED, PLAN, COSTS, reference=REFERENCE)

# Every fold is opened, then boxes are measured, in pixels.
SCRIPT = """
const shut = [...document.querySelectorAll('details')].map(each => each.open);
document.querySelectorAll('details').forEach(each => { each.open = true; });
const box = (each) => {
  const {left, top, right, bottom} = each.getBoundingClientRect();
  return [left, top, right, bottom];
};
const charts = [...document.querySelectorAll('svg')].map(svg => ({
  box: box(svg),
  role: svg.getAttribute('role'),
  title: svg.querySelector('title').textContent,
  says: svg.querySelector('desc').textContent,
  texts: [...svg.querySelectorAll('text')].map(each => ({
    says: each.textContent, box: box(each), right: each.getAttribute('text-anchor') === 'end',
    size: parseFloat(window.getComputedStyle(each).fontSize),
  })),
  shapes: [...svg.querySelectorAll('rect, line')].map(
    each => ({says: each.tagName, box: box(each)})),
}));
const blocks = [...document.querySelectorAll('h1, h2, h3, p, dt, dd, summary, li, .card')].filter(
  each => !each.closest('.wide'));
return {
  width: window.innerWidth,
  scroll: document.documentElement.scrollWidth,
  ground: window.getComputedStyle(document.body).backgroundColor,
  ink: window.getComputedStyle(document.body).color,
  large: parseFloat(window.getComputedStyle(document.querySelector('h1')).fontSize),
  headings: [...document.querySelectorAll('h1, h2, h3, h4')].map(each => each.tagName),
  sections: [...document.querySelectorAll('h2')].map(each => each.textContent),
  scripts: document.querySelectorAll('script, iframe, img, link, object').length,
  shut, charts,
  stacked: [...document.querySelectorAll('.stacked')].map(
    each => each.scrollWidth - each.clientWidth),
  blocks: blocks.map(each => ({says: each.textContent.slice(0, 60), box: box(each)})),
};
"""


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> Literal["light", "dark"]:
    found: Literal["light", "dark"] = request.param
    return found


@pytest.fixture(scope="module")
def seen(
    scheme: Literal["light", "dark"], tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Any]:
    folder = tmp_path_factory.mktemp("pages")
    return look(PAGES, widths=WIDTHS, scheme=scheme, script=SCRIPT, folder=folder)


CASES = [(name, width) for name in PAGES for width in WIDTHS]
each_page = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[1]} px")


@each_page
def test_nothing_is_cut_and_the_page_does_not_scroll_sideways(
    seen: dict[Any, Any], case: tuple[str, int]
) -> None:
    found = seen[case]
    assert found["width"] == case[1]
    assert found["scroll"] <= found["width"]
    assert outside(found) == []


@each_page
def test_no_text_of_a_chart_lies_on_another(seen: dict[Any, Any], case: tuple[str, int]) -> None:
    found = seen[case]
    assert found["charts"]
    assert overlaps(found) == []
    assert touched(found) == []
    assert min(text["size"] for chart in found["charts"] for text in chart["texts"]) >= 12


@each_page
def test_everything_is_there(seen: dict[Any, Any], case: tuple[str, int]) -> None:
    found, release = seen[case], SCENES.get(case[0], VALUED)
    assert found["scripts"] == 0
    assert not any(found["shut"])  # folded until somebody asks
    drifted = sum(1 for column in release.columns if column.drifted)
    ranking = -(-len(release.columns) // 15) if len(release.columns) < 31 else 2
    assert len(found["charts"]) == drifted + ranking + len(release.answers)
    for chart in found["charts"]:
        assert chart["role"] == "img"
        assert chart["title"]
        assert chart["says"]
        assert chart["box"][2] - chart["box"][0] > 300
    assert found["sections"] == [
        *(["What has drifted"] if drifted else []),
        *(["All columns"] if release.columns else []),
        *(["Typical values", "Data quality"] if release is VALUED else []),
        *(["How large the difference is"] if release.answers else []),
        "Privacy",
        "Everything else",
    ]
    assert found["large"] >= 24
    levels = [int(name[1]) for name in found["headings"]]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_values_show_every_number(seen: dict[Any, Any], width: int) -> None:
    """Without scrolling, on a phone too."""
    wider = seen["values", width]["stacked"]
    assert len(wider) == 4  # medians, what has changed, what has not, columns in numbers
    assert max(wider) <= 0


def test_light_is_light_and_dark_is_dark(
    seen: dict[Any, Any], scheme: Literal["light", "dark"]
) -> None:
    found = seen["two of six", 400]
    ground, ink = (brightness(found[name]) for name in ("ground", "ink"))
    assert (ground > ink) is (scheme == "light")


def test_these_checks_see_what_is_wrong(tmp_path: Path) -> None:
    """A chart with texts on each other, one that is cut, and a page that is too wide."""
    row = ("a label", [Bar(value=1.0, says="a very long text, " * 8)])
    chart = Html(bar_chart([row], title="t").replace('y="13"', 'y="29"'))
    wide = page("wide", chart, Html('<p style="width: 2000px">far</p>'))
    found = look({"wide": wide}, widths=(400,), scheme="light", script=SCRIPT, folder=tmp_path)
    (only,) = found.values()
    assert only["scroll"] > only["width"]
    assert outside(only) != []
    assert overlaps(only) != []
    assert touched(only) != []


def outside(found: Any) -> list[str]:
    """Texts and shapes that stick out of their chart, and blocks that stick out of the page."""
    odd = [
        part["says"]
        for chart in found["charts"]
        for part in (*chart["texts"], *chart["shapes"])
        if sticks_out(part["box"], chart["box"])
    ]
    whole = (0, 0, found["width"], float("inf"))
    return odd + [block["says"] for block in found["blocks"] if sticks_out(block["box"], whole)]


def sticks_out(box: Any, frame: Any) -> bool:
    left, top, right, bottom = box
    return bool(
        left < frame[0] - 1 or top < frame[1] - 2 or right > frame[2] + 1 or bottom > frame[3] + 1
    )


def overlaps(found: Any) -> list[tuple[str, str]]:
    """Pairs of texts of one chart with a common part; the space above letters does not count."""
    odd = []
    for chart in found["charts"]:
        texts = chart["texts"]
        for n, one in enumerate(texts):
            odd += [(one["says"], two["says"]) for two in texts[:n] if meet(one["box"], two["box"])]
    return odd


def touched(found: Any) -> list[str]:
    """Numbers beside a bar that the bar, its whisker or its mark reaches, or nearly."""
    return [
        text["says"]
        for chart in found["charts"]
        for text in chart["texts"]
        if text["right"] and any(meet(text["box"], one["box"], GAP, 0) for one in chart["shapes"])
    ]


def meet(one: Any, two: Any, gap: float = -0.5, line: float = 3.5) -> bool:
    across = min(one[2], two[2]) - max(one[0], two[0])
    down = min(one[3], two[3]) - max(one[1], two[1])
    return bool(across > -gap and down > line)


def test_a_notebook_shows_charts_as_well(scheme: Literal["light", "dark"], tmp_path: Path) -> None:
    """Without a style sheet, in a cell of a notebook."""
    pages = {name: f"<h1>cell</h1>{release_summary(SCENES[name], PLAN)}" for name in SCENES}
    found = look(pages, widths=(700,), scheme=scheme, script=SCRIPT, folder=tmp_path)
    for case in found.values():
        assert case["charts"]
        assert overlaps(case) == []
        assert touched(case) == []


def brightness(colour: str) -> int:
    return sum(int(part) for part in colour[4:-1].split(","))


def test_reports_of_a_series_show_every_number(tmp_path: Path) -> None:
    """Also where the verdict is long: above, only together with earlier weeks."""
    status = SERIES["drift"]
    points = tuple(
        each if each.threshold is None else replace(each, threshold=1e3) for each in status.points
    )
    text = series_page(replace(status, points=points))
    assert TOGETHER in text
    script = (
        "return [...document.querySelectorAll('.stacked')].map("
        "each => each.scrollWidth - each.clientWidth)"
    )
    found = look({"series": text}, widths=WIDTHS, scheme="light", script=script, folder=tmp_path)
    assert all(found["series", width] for width in WIDTHS)
    assert max(found["series", 400] + found["series", 1200]) <= 0
