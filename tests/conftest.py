"""Shared by all tests: a seeded generator, hypothesis without a clock, and which tests are slow.

A file of slow tests says so: `pytestmark = pytest.mark.slow`. `make check` leaves it out. What
validates statistics over many draws, or runs a whole matrix of real processes, is marked
`validation` (a file or a test): `make test` leaves it out, `make validate` runs everything.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from tests.browser import NO_BROWSER

settings.register_profile(
    "steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40
)
# `make validate` looks longer.
settings.register_profile("thorough", settings.get_profile("steady"), max_examples=300)
# New examples are looked for where somebody is there to look at what they find.
settings.register_profile("repeatable", settings.get_profile("steady"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "steady")

# Ledgers and memories are on the disk when they say so: in memory their tests need not wait for it.
IN_MEMORY, ROOM = Path("/dev/shm"), 2**31  # noqa: S108  bytes
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > ROOM:
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(IN_MEMORY))
WHOLE_FILE = re.compile(r"^pytestmark = .*?pytest\.mark\.(slow|validation)\b", re.M | re.S)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a database of a real PostgreSQL server."""
    from tests.postgres import NO_SERVER, running_server

    if NO_SERVER:
        pytest.skip(NO_SERVER)
    with running_server() as url:
        yield url


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240917)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are left out need not be imported."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    found = WHOLE_FILE.search(collection_path.read_text(encoding="utf-8"))
    return True if found and f"not {found[1]}" in config.option.markexpr else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Examples are in docstrings of src. To look for them here would take seconds."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests begin before all others, so that no core waits for one of them at the end.

    On one core nobody waits, and a mistake shows sooner in the order that was asked for.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where pages were not looked at: a skipped test is easily overlooked."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    blind = [reason for reason in skipped if NO_BROWSER in reason]
    if blind:
        terminalreporter.section("browser tests")
        terminalreporter.line(
            f"{len(blind)} tests of pages were SKIPPED, as there is no browser. Install Chromium, "
            "or run the tests as root on Debian, which installs it.",
            red=True,
        )
