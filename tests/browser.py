"""A headless Chromium for tests that look at pages. Nothing else in the project needs it."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import unquote

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NO_BROWSER = "No browser"
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",  # in a container; the pages are the tests' own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # nothing from outside
    "--virtual-time-budget=2000",
)
SCHEMES = {"dark": 0, "light": 1}


@cache
def browser() -> str:
    """The browser's path. Where there is none, root installs Debian's; else the test is skipped.

    Where tests must not be skipped (CI is set), it fails instead.
    """
    if found := _installed():
        return found
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        _without(f"none of {', '.join(NAMES)} is here, and only root installs one.")
    said = _install()
    return _installed() or _without(f"`apt-get install chromium` ended with {said!r}.")


def _install() -> str:
    """One process installs, others wait for it; returns the end of what it said."""
    import fcntl

    with (Path(tempfile.gettempdir()) / "fedprikl-browser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _installed():
            return ""
        said = ""
        for command in (INSTALL, ["apt-get", "update"], INSTALL):  # lists may be missing or old
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            )
            said = done.stderr[-200:]
            if _installed():
                break
        return said


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{NO_BROWSER}: {reason}")
    pytest.skip(f"{NO_BROWSER}: {reason}")


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser to click and type in. It reaches this machine and nothing else."""
    from playwright.sync_api import sync_playwright

    path = browser()
    with sync_playwright() as playwright:
        flags = [flag for flag in FLAGS if "virtual-time" not in flag and "resolver" not in flag]
        opened = playwright.chromium.launch(
            executable_path=path,
            args=[*flags, "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        try:
            yield opened
        finally:
            opened.close()


def _installed() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def look(
    pages: Mapping[str, str],
    *,
    widths: tuple[int, ...],
    scheme: Literal["light", "dark"],
    script: str,
    folder: Path,
) -> dict[tuple[str, int], Any]:
    """What `script`, the body of a function of (window, document), returns for each page and width.

    Each page stands in a frame of that width: its style sheet sees a window of that size.
    """
    frames = [(name, width) for name in pages for width in widths]
    body = "".join(
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{escape(pages[name])}">'
        "</iframe>"
        for name, width in frames
    )
    harness = folder / f"{scheme}.html"
    harness.write_text(
        f"<!doctype html><meta charset=utf-8><body>{body}<pre id=found></pre><script>"
        f"const look = (window, document) => {{ {script} }};"
        "addEventListener('load', () => { found.textContent = encodeURIComponent(JSON.stringify("
        "[...document.querySelectorAll('iframe')].map("
        "frame => look(frame.contentWindow, frame.contentDocument)))) })</script>",
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            browser(),
            *FLAGS,
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=1300,1000",
            "--dump-dom",
            harness.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return dict(zip(frames, _read(done.stdout), strict=True))


def _read(dom: str) -> list[Any]:
    text = dom.split('<pre id="found">')[1].split("</pre>")[0]
    found: list[Any] = json.loads(unquote(text))
    return found
