"""Evidently's drift tests of one categorical column, on raw data. For benchmarks/false_alarms.py.

`flags` calls the functions behind evidently's `ValueDrift` metric; `agrees` checks that the metric
itself, through a report, gives the same score (a report takes a tenth of a second).
"""

import os

os.environ.setdefault("DO_NOT_TRACK", "1")

import numpy as np
import numpy.typing as npt
import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.legacy.calculations.stattests import get_stattest
from evidently.legacy.core import ColumnType
from evidently.metrics import ValueDrift

Ints = npt.NDArray[np.int64]
METHODS = ("default", "jensenshannon", "kl_div", "psi")


def score(reference: pd.Series, current: pd.Series, method: str) -> tuple[float, bool]:
    """The drift score and whether evidently calls it drift, at its own default threshold."""
    name = None if method == "default" else method
    test = get_stattest(reference, current, ColumnType.Categorical, name)
    result = test(reference, current, ColumnType.Categorical, None)
    return float(result.drift_score), bool(result.drifted)


def flags(reference: Ints, populations: list[Ints], method: str) -> int:
    """How many of the populations (cells of all records) evidently calls drifted."""
    known = pd.Series(reference)
    return sum(score(known, pd.Series(one), method)[1] for one in populations)


def agrees(reference: Ints, current: Ints, method: str) -> bool:
    """Whether a report with evidently's public metric gives the same score."""
    definition = DataDefinition(categorical_columns=["x"])
    known, seen = pd.Series(reference), pd.Series(current)
    data = [
        Dataset.from_pandas(pd.DataFrame({"x": x}), data_definition=definition)
        for x in (seen, known)
    ]
    metric = ValueDrift(column="x", method=None if method == "default" else method)
    shown = Report([metric]).run(*data).dict()["metrics"][0]["value"]
    return bool(np.isclose(float(shown), score(known, seen, method)[0], rtol=1e-6, atol=1e-12))
