"""The page of a series in a real browser: clicks, keyboard, phone and desk, light and dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedprikl.dashboard import write_site
from fedprikl.dashboard.app import dashboard
from fedprikl.deployment.web import serving
from fedprikl.monitoring.status import headline
from fedprikl.reporting.html import Html
from fedprikl.reporting.html import page as make_page
from tests.browser import chromium
from tests.dashboard.sources import Source
from tests.monitoring.statuses import SCENES, series
from tests.reporting.test_in_browser import brightness, meet

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

WIDTHS = (400, 1200)
HEIGHT = 900

# Every fold is opened, then boxes are measured, in pixels.
MEASURE = """
() => {
  document.querySelectorAll('details').forEach(each => { each.open = true; });
  const box = (each) => {
    const {left, top, right, bottom} = each.getBoundingClientRect();
    return [left, top, right, bottom];
  };
  const charts = [...document.querySelectorAll('svg[role=img], svg.dates')].map(svg => ({
    frame: box(svg.closest('.card, details, main')),
    title: svg.getAttribute('aria-hidden') ? 'hidden' : svg.querySelector('title').textContent,
    says: svg.getAttribute('aria-hidden') ? 'hidden' : svg.querySelector('desc').textContent,
    width: svg.getBoundingClientRect().width,
    texts: [...svg.querySelectorAll('text')].map(each => ({
      says: each.textContent, box: box(each),
      size: parseFloat(getComputedStyle(each).fontSize)})),
  }));
  const blocks = [...document.querySelectorAll(
    'h1, h2, h3, p, dt, dd, summary, li, .card, .name, .wide, a')].filter(
    each => !each.closest('.wide table') && !each.closest('svg') && !each.matches('.skip'));
  return {
    scroll: document.documentElement.scrollWidth, width: window.innerWidth, charts,
    blocks: blocks.map(each => ({says: each.textContent.slice(0, 60), box: box(each)})),
    cut: blocks.filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth
      && !each.matches('.wide')).map(each => each.textContent.slice(0, 60)),
    heat: [...document.querySelectorAll('.heat > svg:not(.dates)')].map(
      each => each.getBoundingClientRect().width),
    ground: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
  };
}
"""


class Desk:
    """A browser, a server whose series can be changed, and what went wrong in the browser."""

    def __init__(self, browser: "Browser", source: Source, address: str) -> None:
        self.source, self.address = source, address
        self.asked: list[str] = []
        self.wrong: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": 1200, "height": HEIGHT})
        self.page.set_default_timeout(10_000)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on(
            "console",
            lambda said: (
                self.wrong.append(said.text) if said.type in ("error", "warning") else None
            ),
        )

    def show(self, name: str, width: int = 1200) -> "Page":
        """The page of a scene."""
        self.source.shown = SCENES[name]
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.page.goto(self.address)
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def address_and_source() -> Iterator[tuple[str, Source]]:
    source = Source(SCENES["drift"])
    with serving(dashboard(source, seconds=0)) as address:
        yield address, source


@pytest.fixture
def desk(browser: "Browser", address_and_source: tuple[str, Source]) -> Iterator[Desk]:
    address, source = address_and_source
    found = Desk(browser, source, address)
    yield found
    found.page.close()
    assert found.wrong == []


def test_nothing_but_the_page_is_fetched(desk: Desk) -> None:
    desk.show("drift")
    assert desk.asked == [desk.address]


def test_clicks_lead_to_a_report_and_back(desk: Desk) -> None:
    page = desk.show("drift")
    page.get_by_role("link", name="week 36", exact=True).first.click()
    assert page.url.endswith("/periods/0036.html")
    assert "Week 36:" in page.inner_text("h1")
    page.get_by_role("link", name="← week 35").click()
    assert "Week 35:" in page.inner_text("h1")
    page.get_by_role("link", name="All weeks").click()
    assert page.inner_text("h1") == headline(SCENES["drift"])
    page.go_back()
    assert "Week 35:" in page.inner_text("h1")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_point_of_the_chart_leads_to_its_report(desk: Desk, width: int) -> None:
    page = desk.show("drift", width)
    chart = page.get_by_role("img", name="Statistic over time, each week alone")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 24.5 / 37, box["y"] + 80)
    page.wait_for_url("**/periods/0024.html")
    assert "Alarm 1 was raised here." in page.inner_text("main")


def test_a_missed_period_leads_nowhere_and_says_why(desk: Desk) -> None:
    page = desk.show("drift")
    chart = page.get_by_role("img", name="Statistic over time, each week alone")
    box = chart.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 5.5 / 37, box["y"] + 80)
    assert page.url == desk.address
    assert "3 weeks (5, 9 and 10): too few clients" in page.inner_text("main")


def test_the_keyboard_reaches_everything(desk: Desk) -> None:
    """Tab shows the skip link; Enter skips; links, folds and reports follow in order."""
    page = desk.show("drift")
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("each => each === document.activeElement")
    box = skip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate("document.activeElement.tagName + ' ' + document.activeElement.innerText")
        )
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none"
    assert not any(each.startswith(("svg", "rect")) for each in seen)
    assert "SUMMARY The same in numbers" in seen
    assert "A week 36" in seen
    page.locator("a", has_text="week 36").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/periods/0036.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html")


def test_a_fold_opens_by_keyboard(desk: Desk) -> None:
    page = desk.show("drift")
    table = page.get_by_role("cell", name="no release").first
    assert not table.is_visible()
    page.locator("summary", has_text="The same in numbers").focus()
    page.keyboard.press("Enter")
    assert table.is_visible()


def test_links_of_the_top_lead_to_their_sections(desk: Desk) -> None:
    page = desk.show("three years", 400)
    for name, heading in {"Sites": "Sites", "Columns": "Columns over time"}.items():
        page.get_by_role("navigation").get_by_role("link", name=name).click()
        box = page.get_by_role("heading", name=heading, exact=True).bounding_box()
        assert box is not None
        assert -1 <= box["y"] < HEIGHT / 2


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_cut_at_any_width(desk: Desk, name: str) -> None:
    page = desk.show(name)
    for width in (1200, 700, 400):  # as when a window is made smaller
        page.set_viewport_size({"width": width, "height": HEIGHT})
        found = page.evaluate(MEASURE)
        assert found["width"] == width
        assert problems(found) == []
        assert all(text["size"] >= 12 for c in found["charts"] for text in c["texts"])
        assert all(chart["title"] and chart["says"] for chart in found["charts"])
        assert all(chart["width"] > 250 for chart in found["charts"])
        assert len(found["heat"]) == len(SCENES[name].columns)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_of_a_report_is_cut(desk: Desk, width: int) -> None:
    desk.source.shown = SCENES["drift"]
    desk.page.set_viewport_size({"width": width, "height": HEIGHT})
    desk.page.goto(f"{desk.address}periods/24")
    assert problems(desk.page.evaluate(MEASURE)) == []


def test_these_checks_see_what_is_wrong(desk: Desk) -> None:
    text = '<text x="10" y="20" style="font-size: 13px">{}</text>'
    chart = (
        '<svg role="img" width="100%" height="40"><title>t</title><desc>d</desc>'
        f"{text.format('one')}{text.format('two')}{text.format('far ' * 100)}</svg>"
    )
    body = [
        f'<div class="card">{chart}</div>',
        '<p style="width: 2000px">wide</p>',
        '<p style="width: 5rem; overflow: hidden; white-space: nowrap">cut off at its end</p>',
    ]
    desk.page.set_viewport_size({"width": 400, "height": HEIGHT})
    desk.page.set_content(make_page("wrong", *map(Html, body)))
    found = " ".join(problems(desk.page.evaluate(MEASURE)))
    for word in ("scrolls", "overlap", "outside", "cut"):
        assert word in found


def problems(found: Any) -> list[str]:
    """What is too wide, cut, or lies on something else."""
    odd = []
    if found["scroll"] > found["width"]:
        odd.append("the page scrolls sideways")
    odd += [f"cut: {words}" for words in found["cut"]]
    for block in found["blocks"]:
        if block["box"][0] < -1 or block["box"][2] > found["width"] + 1:
            odd.append(f"outside the page: {block['says']}")
    for chart in found["charts"]:
        left, _, right, _ = chart["frame"]
        for n, one in enumerate(chart["texts"]):
            if one["box"][0] < left or one["box"][2] > right + 1:
                odd.append(f"outside its card: {one['says']}")
            odd += [
                f"overlap: {one['says']} and {two['says']}"
                for two in chart["texts"][:n]
                if meet(one["box"], two["box"])
            ]
    return odd


@pytest.mark.parametrize("name", ["drift", "empty"])
def test_light_is_light_and_dark_is_dark(desk: Desk, name: str) -> None:
    page = desk.show(name)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(MEASURE)
        assert (brightness(found["ground"]) > brightness(found["ink"])) is (scheme == "light")


def test_on_paper_there_are_no_links_of_the_top_and_it_is_light(desk: Desk) -> None:
    page = desk.show("drift")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.get_by_role("navigation").is_visible()
    found = page.evaluate(MEASURE)
    assert brightness(found["ground"]) > brightness(found["ink"])


def test_three_years_are_there_and_quick(desk: Desk) -> None:
    page = desk.show("three years")
    took = page.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
    assert took < 8000  # milliseconds; a tenth of it is usual
    assert page.locator(".heat .name").count() == 20
    page.locator("summary", has_text="All 156 weeks").click()
    assert page.get_by_role("link", name="week 3", exact=True).is_visible()


def test_a_broken_history_says_so_first(desk: Desk) -> None:
    page = desk.show("broken", 400)
    alert = page.get_by_role("alert")
    box = alert.bounding_box()
    assert box is not None
    assert box["y"] < HEIGHT / 2
    assert "not signed by the aggregator" in alert.inner_text()
    assert page.inner_text("h1") == headline(SCENES["broken"])


def test_the_empty_state_says_what_comes(desk: Desk) -> None:
    page = desk.show("empty", 400)
    assert page.inner_text("h1") == "No release yet."
    assert "ends on 11 January 2027" in page.inner_text("main")


def test_an_error_is_a_page_that_leads_back(desk: Desk) -> None:
    desk.source.shown = SCENES["drift"]
    answer = desk.page.goto(f"{desk.address}periods/5")
    assert answer is not None
    assert answer.status == 404
    desk.page.get_by_role("link", name="The series").click()
    assert desk.page.inner_text("h1") == headline(SCENES["drift"])
    assert [words for words in desk.wrong if "404" not in words] == []
    desk.wrong.clear()


def test_hostile_names_run_nothing(desk: Desk) -> None:
    said: list[str] = []

    def note(dialog: "Dialog") -> None:
        said.append(dialog.message)
        dialog.dismiss()

    desk.page.on("dialog", note)
    page = desk.show("hostile")
    assert said == []
    assert page.locator("main b, main script").count() == 0


def test_files_without_a_server(browser: "Browser", tmp_path: Path) -> None:
    write_site(Source(series(7, since=4, missed=(2,))), tmp_path)
    page = browser.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    page.get_by_role("link", name="week 6", exact=True).first.click()
    assert "Week 6:" in page.inner_text("h1")
    page.get_by_role("link", name="All weeks").click()
    assert page.inner_text("h1") == "Drift since week 4 (1 February 2027), mostly departure delay."
    page.close()
