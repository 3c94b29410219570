"""Demo: made-up flights, and a population on which all estimators are compared."""

from fedprikl.demo.comparison import (
    DriftedPopulation,
    compare,
    drifted_population,
    leavers,
    paper_and_ours,
    true_divergence,
)
from fedprikl.demo.flights import flight_table

__all__ = [
    "DriftedPopulation",
    "compare",
    "drifted_population",
    "flight_table",
    "leavers",
    "paper_and_ours",
    "true_divergence",
]
