"""Parts beside the package, each with its own tests: `pytest contrib`. `make validate` runs them."""
