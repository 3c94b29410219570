"""Values that the reference never saw, in the whole: from a plan to the verdict."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedprikl as fk
from tests.estimation.test_sparse_drift import bimodal

pytestmark = pytest.mark.slow

NAMES = np.array([f"v{i}" for i in range(40)])
CLIENTS, RECORDS = 80, 8_000


def clients(unseen: float, rng: np.random.Generator) -> list[pl.DataFrame]:
    values = rng.choice(NAMES, RECORDS, p=bimodal())
    values = np.where(rng.random(RECORDS) < unseen, "new", values)
    return [pl.DataFrame({"value": values[i::CLIENTS]}) for i in range(CLIENTS)]


@pytest.mark.parametrize("trust", ["aggregator", "none"])
def test_a_hundredth_of_unseen_values_is_drift(
    trust: Any, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Eighty records, with noise of 3 on their count; none of them without drift."""
    public = pl.DataFrame({"value": rng.choice(NAMES, 40_000, p=bimodal())})
    reference = fk.Reference.fit(public)
    plan = fk.plan(reference, clients=CLIENTS, records=RECORDS, epsilon=1, trust=trust)
    for unseen in (0.01, 0.0):
        found = fk.compare(
            reference, clients(unseen, rng), plan, ledger=tmp_path / f"{unseen}.db"
        ).release
        assert found.verdict is not None
        assert ("out_of_domain" in found.verdict.exceeding) is (unseen > 0)
        assert found.findable is not None
        assert found.findable < 0.01
