# Needs Python 3.11+ and make, nothing else. Everything is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo federation-demo paper check test docs lint lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

setup: .venv/.ready  ## install the locked dependencies and fedprikl itself into .venv

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedprikl needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## the whole estimate on an embedded population, with a report
	$(BIN)/fedprikl demo

federation-demo: setup  ## a federation of real processes on this machine, one site killed on the way
	$(BIN)/python -m deploy.federation_demo

paper: setup  ## the paper's experiments: figures, numbers and RESULTS.md in experiments/paper
	$(BIN)/python -m experiments.paper.everything

check: setup lint  ## the daily loop: style, types, floors and all tests that are quick
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

# Three processes for two cores: tests of real Flower processes wait most of their time.
test: setup lint  ## every check: style, types, floors, tests, coverage
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --cov --cov-report=term --cov-fail-under=95

docs: setup  ## rewrite the generated tables of the README and of docs/divergences.md
	$(BIN)/python docs/readme_table.py
	$(BIN)/python docs/divergence_table.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: setup  ## resolve requirements.lock anew (exact versions and hashes, no addresses)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade --output-file requirements.lock

clean:  ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
