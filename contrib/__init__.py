"""Beside the package, each part with tests of its own: `make validate` runs them."""
