"""No single value stops a comparison, whatever object it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedprikl as fk

pytestmark = pytest.mark.slow


def endless() -> Any:
    """An array that contains itself."""
    found = np.empty(1, dtype=object)
    found[0] = found
    return found


@pytest.mark.parametrize(
    "value",
    [np.array("x"), np.array(1j), np.array(None, dtype=object), endless(), np.array([1.0, 2.0])],
    ids=["0-d text", "0-d complex", "0-d object", "endless", "numbers"],
)
def test_an_array_in_a_cell_is_one_odd_record(value: Any, tmp_path: Path) -> None:
    reference = fk.Reference.fit(pd.DataFrame({"a": ["x", "y"] * 50}))
    planned = fk.plan(reference, clients=4, records=40, epsilon=1)
    frames = [pd.DataFrame({"a": pd.Series(["x", "y"] * 5, dtype=object)}) for _ in range(4)]
    for place, frame in enumerate(frames):  # different contents, as clients have
        frame.loc[0, "a"] = f"client {place}"
    frames[2]["a"].array._ndarray[3] = value
    result = fk.compare(reference, frames, planned, ledger=tmp_path / "ledger.db")
    assert result.release.cohorts[0].included == 4
