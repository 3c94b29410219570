"""Simulation: populations held in one place, for experiments and the demo only."""

from fedprikl.simulation.comparison import Method, compare, paper_and_ours, true_divergence
from fedprikl.simulation.digits import (
    Digits,
    load_compact,
    load_leaf,
    load_stand_in,
    synthetic_handwriting,
)
from fedprikl.simulation.experiment import BASELINE_FLOOR, Pair, Repetition, Setting
from fedprikl.simulation.population import (
    GONE,
    BatchHistograms,
    DriftedPopulation,
    Population,
    deal_clients,
    drifted_population,
)

__all__ = [
    "BASELINE_FLOOR",
    "GONE",
    "BatchHistograms",
    "Digits",
    "DriftedPopulation",
    "Method",
    "Pair",
    "Population",
    "Repetition",
    "Setting",
    "compare",
    "deal_clients",
    "drifted_population",
    "load_compact",
    "load_leaf",
    "load_stand_in",
    "paper_and_ours",
    "synthetic_handwriting",
    "true_divergence",
]
