"""Simulation: populations held in one place, for experiments and the demo only."""

from fedprikl.simulation.comparison import compare, paper_and_ours, true_divergence
from fedprikl.simulation.digits import Digits
from fedprikl.simulation.experiment import BASELINE_FLOOR, Pair, Repetition, Setting
from fedprikl.simulation.femnist import load_compact, load_leaf, load_stand_in
from fedprikl.simulation.handwriting import synthetic_handwriting
from fedprikl.simulation.methods import Method
from fedprikl.simulation.population import GONE, BatchHistograms, Population, deal_clients
from fedprikl.simulation.synthetic import DriftedPopulation, drifted_population

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
