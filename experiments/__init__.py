"""Experiments, one folder each. Run from the root of the repository."""
