"""A headless Chromium for tests that look at pages. Nothing else in the project needs it."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import pytest

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
    """The browser's path. Where there is none, root installs Debian's; else the test is skipped."""
    if found := _installed():
        return found
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip(f"No browser: none of {', '.join(NAMES)} is here, and only root installs one.")
    done = subprocess.run(
        ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],  # noqa: S607
        capture_output=True,
        text=True,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
    if found := _installed():
        return found
    pytest.skip(f"No browser: `apt-get install chromium` ended with {done.stderr[-200:]!r}.")


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
