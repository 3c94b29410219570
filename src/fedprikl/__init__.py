"""Federated, differentially private estimation of the KL divergence D(Pi || P)."""
