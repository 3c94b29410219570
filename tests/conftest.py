"""Shared by all tests: a seeded generator, and hypothesis without a clock."""

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# New examples are looked for where somebody is there to look at what they find.
settings.register_profile("repeatable", settings.get_profile("steady"), derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "steady")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240917)


# Coverage doubles the time of these, and other tests reach every line they do.
UNTRACED = {
    "test_dealing.py",
    "test_graph.py",
    "test_interval.py",
    "test_laplace_round.py",
    "test_noisy_interval.py",
    "test_one_record.py",
    "test_paper.py",
    "test_points.py",
    "test_privacy.py",
    "test_readme.py",
    "test_sum.py",
    "test_variance.py",
    "test_vectors.py",
    "test_verdict.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in UNTRACED:
            item.add_marker("no_cover")
