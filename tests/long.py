"""Cases of a test that take long: `make validate` has them all, `make test` the others."""

from typing import Any

import pytest


def long(*values: Any) -> Any:
    """A case of `pytest.mark.parametrize` that only `make validate` runs."""
    return pytest.param(*values, marks=pytest.mark.validation)
