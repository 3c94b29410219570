"""Shared by all tests: a seeded generator, and hypothesis without a clock."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240917)
