"""Where there is no browser, tests of pages are skipped aloud, and fail where CI runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
TEST = "tests/dashboard/test_page_in_browser.py::test_nothing_but_the_page_is_fetched"


@pytest.mark.parametrize("ci", [False, True])
def test_what_pytest_says(tmp_path: Path, ci: bool) -> None:
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    known |= {"PATH": str(tmp_path), "CI": "1" if ci else ""}
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST],
        cwd=ROOT,
        env=known,
        capture_output=True,
        text=True,
    )
    assert said.returncode == (1 if ci else 0)
    assert "No browser" in said.stdout
    assert ("1 tests of pages were SKIPPED" in said.stdout) is not ci
