"""Shared by the tests of monitoring."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitoring.small_series import quick_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is one."""
    with quick_folder() as found:
        yield found
