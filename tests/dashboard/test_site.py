"""The same as static files: whole, only what changed, nothing left over."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedprikl.dashboard import write_site
from fedprikl.errors import FedPriKLError, InvalidInputError
from fedprikl.monitoring.metrics import metrics_text
from fedprikl.reporting.series_page import series_page
from tests.dashboard.sources import Source
from tests.monitoring.statuses import SCENES, series

STATUS = series(7, since=4, missed=(2,))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")  # half-written, nobody reads it
    }


def test_all_files_are_there(tmp_path: Path) -> None:
    written = write_site(Source(STATUS), tmp_path / "new" / "site")
    found = files(tmp_path / "new" / "site")
    reports = {f"periods/{n:04d}.html" for n in range(7) if n != 2}
    assert set(found) == reports | {"index.html", "series.json", "metrics.prom"}
    assert len(written) == len(found)
    assert written[-1].name == "index.html"  # after everything it links to
    assert found["index.html"].decode() == series_page(STATUS)
    assert found["metrics.prom"].decode() == metrics_text([STATUS])
    assert json.loads(found["series.json"])["population"] == "aircraft"


def test_every_link_leads_to_a_file(tmp_path: Path) -> None:
    write_site(Source(STATUS), tmp_path)
    for page in tmp_path.rglob("*.html"):
        links = re.findall(r'href="([^"#]+)"', page.read_text(encoding="utf-8"))
        assert links
        for link in links:
            assert (page.parent / link).resolve().is_file(), (page, link)


def test_a_second_time_nothing_is_written(tmp_path: Path) -> None:
    source = Source(STATUS)
    write_site(source, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert write_site(source, tmp_path) == ()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_new_period_changes_its_neighbour_and_the_page(tmp_path: Path) -> None:
    def until(number: int) -> Source:
        return Source(replace(STATUS, points=STATUS.points[:number]))

    write_site(until(6), tmp_path)
    written = {path.name for path in write_site(until(7), tmp_path)}
    assert written == {"0005.html", "0006.html", "index.html", "series.json", "metrics.prom"}


def test_the_order_of_history_does_not_matter(tmp_path: Path) -> None:
    """Written step by step or at once: the same bytes."""
    for number in range(1, len(STATUS.points) + 1):
        source = Source(replace(STATUS, points=STATUS.points[:number]))
        write_site(source, tmp_path / "steps")
    write_site(Source(STATUS), tmp_path / "once")
    assert files(tmp_path / "steps") == files(tmp_path / "once")


def test_reports_without_a_release_are_removed_and_others_files_stay(tmp_path: Path) -> None:
    write_site(Source(STATUS), tmp_path)
    (tmp_path / "periods" / "notes.html").write_text("mine", encoding="utf-8")
    (tmp_path / "periods" / "9999.html").write_text("mine too", encoding="utf-8")
    write_site(Source(replace(STATUS, points=STATUS.points[:5])), tmp_path)
    left = {path.name for path in (tmp_path / "periods").iterdir()}
    assert left == {"0000.html", "0001.html", "0003.html", "0004.html",
                    "notes.html", "9999.html"}  # fmt: skip


def test_a_damaged_report_is_written_anew(tmp_path: Path) -> None:
    write_site(Source(STATUS), tmp_path)
    target = tmp_path / "periods" / "0004.html"
    good = target.read_bytes()
    for damage in (b"", b"\xff\xfe", good[5:]):
        target.write_bytes(damage)
        write_site(Source(STATUS), tmp_path)
        assert target.read_bytes() == good


@pytest.mark.parametrize("renames", range(6))
def test_a_crash_leaves_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Ended at any of its renames: every file is an old one or a new one, and the page is old."""
    write_site(Source(replace(STATUS, points=STATUS.points[:5])), tmp_path)
    old = files(tmp_path)
    left, replaced = renames, os.replace

    def sometimes(one: str, two: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        replaced(one, two)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", sometimes)
        with pytest.raises(KeyboardInterrupt):
            write_site(Source(STATUS), tmp_path)
    now = files(tmp_path)
    assert now["index.html"] == old["index.html"]
    write_site(Source(STATUS), tmp_path)
    new = files(tmp_path)
    assert all(data in (old.get(name), new[name]) for name, data in now.items())
    assert sum(now[name] != old.get(name) for name in now) == renames
    assert new["index.html"].decode() == series_page(STATUS)


def test_a_history_that_lacks_a_release_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="period 4 was released, but has no release"):
        write_site(Source(STATUS, lacking=frozenset({4})), tmp_path)
    assert not (tmp_path / "index.html").exists()


def test_a_history_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(FedPriKLError):
        write_site(Source(STATUS, unreadable=True), tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="Cannot make the folder"):
        write_site(Source(STATUS), tmp_path / "file")


@pytest.mark.parametrize("name", ["empty", "broken", "hostile"])
def test_odd_series_have_a_site_too(tmp_path: Path, name: str) -> None:
    write_site(Source(SCENES[name]), tmp_path)
    assert (tmp_path / "index.html").read_text(encoding="utf-8") == series_page(SCENES[name])
