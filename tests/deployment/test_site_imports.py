"""What the processes of `fedprikl site` load: a site needs no estimation, no planning, no pages."""

import subprocess
import sys
import textwrap

import pytest

from tests.deployment.test_warm_executor import ENVIRONMENT

pytestmark = pytest.mark.slow

LOWER = {
    *("checks", "documents", "errors", "libraries", "search", "store"),
    *("divergence", "privacy", "protocol", "records", "reference", "secure_sum"),
}
# What answers messages, and the command that keeps it running.
EXECUTOR = LOWER | {"deployment", "monitoring"}
COMMAND = LOWER | {"cli", "deployment"}


def loaded(code: str) -> set[str]:
    """The packages of fedprikl that a fresh process has loaded after it ran the code."""
    program = f"""
{textwrap.dedent(code)}
import sys
print(*{{name.split(".")[1] for name in sys.modules if name.startswith("fedprikl.")}})
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def by_the_executor() -> set[str]:
    return loaded(
        """
        from fedprikl.deployment.flower import executor
        executor.preload("site")
        from fedprikl.protocol import SignedPlan
        """
    )


@pytest.fixture(scope="module")
def by_the_command() -> set[str]:
    return loaded("import fedprikl.cli.site_command")


def test_a_site_loads_no_estimation_no_planning_and_no_pages(
    by_the_executor: set[str], by_the_command: set[str]
) -> None:
    assert by_the_executor == EXECUTOR
    assert by_the_command == COMMAND
