"""The site builds without a warning, its links lead somewhere, and it needs no network."""

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fedprikl as fk
from tests.docs.pages import DOCS, PAGES, ROOT, site_parts, text_of

pytestmark = pytest.mark.slow


def test_every_page_is_in_the_navigation() -> None:
    """By name in index.md, or as a decision."""
    index = text_of("index.md")
    for page in set(PAGES) - {"index.md"}:
        if not re.match(r"decisions/\d", page):
            assert re.search(rf"^{page.removesuffix('.md')}$", index, re.MULTILINE), page


def test_headings_that_pages_link_to_exist() -> None:
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", text_of(page)):
            where = (DOCS / page).parent / target if target else DOCS / page
            titles = re.findall(r"^#+ (.*)$", where.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in slugs, f"{page} links to {target}#{heading}"


def test_built_parts_are_whole() -> None:
    filled = site_parts("site_parts").filled
    api = filled(text_of("reference/api.md"))
    for name in set(fk.__all__) - {"__version__"}:
        assert f"### fk.{name}\n" in api
    commands = filled(text_of("reference/commands.md"))
    for page, built in (("api", api), ("commands", commands)):
        assert "In the repository the list is not here" in text_of(f"reference/{page}.md")
        assert "In the repository" not in built
    for name in site_parts("typer.main").get_command(site_parts("fedprikl.cli.app").app).commands:
        assert f"## fedprikl {name}\n" in commands
    metrics = filled(text_of("reference/metrics.md"))
    assert "`fedprikl_series_epsilon_left`" in metrics
    assert "`fedprikl_release_threshold`" in metrics
    assert "<!-- built" not in api + commands + filled(text_of("reference/formats.md"))


def test_every_row_of_the_comparison_names_a_source_or_a_command() -> None:
    tables = text_of("comparison.md").partition("## What each party sees")[2]
    rows = re.findall(r"^\| (?!tool|---).*", tables.partition("## Together")[0], re.MULTILINE)
    assert len(rows) == 18  # six tools: what each sees, guarantees, costs
    for row in rows:
        assert re.search(r"\]\([^)]+\)|`(fedprikl|python) ", row), row


def test_a_docstring_becomes_markdown() -> None:
    doc = "It.\n\n    a = b\n\nParameters\n----------\none, two\n    Both\n    of them.\n\n>>> 1\n1"
    assert (
        site_parts("site_parts.docstrings")
        .markdown(doc)
        .startswith("It.\n\n```text\na = b\n```\n\n**Parameters**\n\n- `one`, `two`: Both of them.")
    )


def test_pictures_have_a_title_and_load_nothing() -> None:
    pictures = [*DOCS.glob("*.svg"), *DOCS.glob("concepts/*.svg")]
    assert len(pictures) >= 7
    for picture in pictures:
        text = picture.read_text(encoding="utf-8")
        assert re.search(r"<title.*?>[^<]{40}|aria-label=\"[^\"]{20}", text), picture.name
        assert not re.search(r"<script|href=|url\(http|@import", text), picture.name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    pytest.importorskip("sphinx", reason="pip install 'fedprikl[docs]'")
    out = tmp_path_factory.mktemp("site")
    (line,) = re.findall(r"-m sphinx (.*) -d ", (ROOT / "Makefile").read_text(encoding="utf-8"))
    options = line.split()
    assert "--fail-on-warning" in options
    command = [sys.executable, "-m", "sphinx", *options, str(DOCS), str(out)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return out


class Links(HTMLParser):
    """What a page links to, what it loads, and which places it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.places.add(found.get("id", ""))
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif "src" in found or (tag == "link" and "href" in found):
            self.loads.append(found.get("src") or found["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page) for page in site.rglob("*.html")}


def test_links_lead_to_files_and_places(pages: dict[Path, Links]) -> None:
    assert len(pages) > len(PAGES)
    for page, found in pages.items():
        for link in (*found.links, *found.loads):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            assert not parts.path.startswith("/"), f"{page.name}: {link} is not relative"
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), f"{page.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].places, f"{page.name}: {link}"


def test_the_notebook_is_shown_as_it_ran(site: Path) -> None:
    page = (site / "notebook.html").read_text(encoding="utf-8")
    text = unescape(re.sub(r"<[^>]*>", "", page))
    assert re.search(r"spent epsilon (0\.9\d*|1) of 1 in 1 round", text)
    assert re.search(r"aircraft_age +true tv 0\.1", text)
    assert "differ from the reference. " in text  # the result as a page
    drifted = re.search(r"^\s*\(('\w+',? ?)+\)$", text, re.MULTILINE)
    assert drifted, "result.columns.drifted is shown"
    assert {"carrier", "departure_delay"} <= set(re.findall(r"\w+", drifted[0]))
    assert len(re.findall(r"<svg[^>]*viewBox", page)) >= 1  # result.plot()
    assert re.search(r'"release\.json"\)\.drifted\s.*\sTrue\s', text, re.DOTALL)


def test_nothing_is_loaded_from_the_network(site: Path, pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        for each in found.loads:
            assert urlsplit(each).scheme in ("", "data"), f"{page.name} loads {each}"
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", style.read_text()), style.name
