"""Deployment: what a round needs of the machines it runs on; `flower/` holds the adapters."""
