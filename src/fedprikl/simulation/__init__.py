"""Simulation: populations held in one place, for experiments and the demo only."""

from fedprikl.simulation.comparison import Method, compare, paper_and_ours, true_divergence
from fedprikl.simulation.population import Population, deal_clients
from fedprikl.simulation.synthetic import DriftedPopulation, drifted_population

__all__ = [
    "DriftedPopulation",
    "Method",
    "Population",
    "compare",
    "deal_clients",
    "drifted_population",
    "paper_and_ours",
    "true_divergence",
]
