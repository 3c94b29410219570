# Needs Python 3.11+ and make, nothing else. Everything is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
FLOWER := tests/deployment/test_loopback.py tests/deployment/test_plain_words.py

# A federation is many processes: what Python compiles is kept for the next one.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dev demo federation-demo monitor-demo servers-demo paper check test validate quick-tests other-tests flower-tests \
  elsewhere matrix pythons docs tables lint dist record mutants results workflows lock clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

setup: .venv/.ready  ## install fedprikl and what it needs into .venv (requirements.lock)

dev: .venv/.dev  ## and what tests, docs, benchmarks and federations need (requirements-dev.lock)

INSTALL := -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r
CLONE := -m pip install --quiet --no-deps --no-build-isolation --editable .

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedprikl needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) requirements.lock
	$(BIN)/python $(CLONE)
	@touch $@

.venv/.dev: .venv/.ready requirements-dev.lock
	$(BIN)/python $(INSTALL) requirements-dev.lock
	@touch $@

demo: setup  ## the main job on made-up flights: from one file per client to a report
	$(BIN)/fedprikl demo

federation-demo: dev  ## a federation of real processes on this machine, one site killed on the way
	$(BIN)/python -m deploy.federation_demo

monitor-demo: setup  ## two years of weekly releases in two minutes, with the page served meanwhile
	$(BIN)/python -m deploy.monitor_demo

servers-demo: setup  ## three servers that nobody has to trust, 2,000 clients of one message each
	$(BIN)/python -m deploy.servers_demo

paper: dev  ## the paper's experiments: figures, numbers and RESULTS.md in experiments/paper
	$(BIN)/python -m experiments.paper.everything

# Style and types, and real Flower processes, which mostly wait, run beside the other tests.
check: dev  ## the daily loop: style, types, import rules and all tests that are quick
	@$(MAKE) --no-print-directory -j 2 lint quick-tests

test: dev  ## every check before a change lands: style, types, import rules, tests
	@$(MAKE) --no-print-directory -j 3 flower-tests lint other-tests

validate: dev  ## everything, also long statistics, benchmarks, coverage
	$(BIN)/python -m pytest -n 2 --dist worksteal --hypothesis-profile=thorough src tests contrib --cov --cov-report=term --cov-fail-under=95

# Two processes of one thread each: threads of NumPy and polars would only wait for each other.
quick-tests other-tests flower-tests validate elsewhere: export OMP_NUM_THREADS = 1
quick-tests other-tests flower-tests validate elsewhere: export POLARS_MAX_THREADS = 1

quick-tests: dev
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not validation"

other-tests: dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(FLOWER:%=--ignore=%) -m "not validation"

flower-tests: dev
	@said=$$($(BIN)/python -m pytest $(FLOWER) -m "not validation" 2>&1); code=$$?; echo "$$said"; exit $$code

elsewhere: dev  ## the daily tests in five arithmetic environments: as other processors compute
	tests/elsewhere.sh $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow and not validation"

# Each Python gets an environment of its own, beside .venv.
matrix:  ## the suite on every Python from 3.11 to 3.14 that this machine has
	@set -e; for version in 3.11 3.12 3.13 3.14; do \
	  python=$$($(MAKE) -s --no-print-directory pythons | sed -n "s/^$$version //p"); \
	  if [ -z "$$python" ]; then echo "no Python $$version here: left out"; continue; fi; \
	  echo "Python $$version: $$python"; place=.matrix/$$version; \
	  $$python -m venv $$place; \
	  $$place/bin/python $(INSTALL) requirements-dev.lock; \
	  $$place/bin/python $(CLONE); \
	  OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 $$place/bin/python -m pytest -q -n 2 --dist worksteal -m "not validation"; \
	done

# What is on PATH may be a shim of pyenv for a version that is not chosen: it fails.
pythons:
	@for version in 3.11 3.12 3.13 3.14; do \
	  for found in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python$$version; do \
	    if $$found -c '' 2>/dev/null; then echo $$version $$found; break; fi; \
	  done; \
	done

docs: dev  ## build the site into docs/_build/site; open its index.html, no server is needed
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -d docs/_build/doctrees docs docs/_build/site
	@echo "docs/_build/site/index.html"

tables: dev  ## rewrite the generated tables of the README and of docs/divergences.md
	$(BIN)/python docs/readme_table.py
	$(BIN)/python docs/divergence_table.py

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

dist: dev  ## wheel and sdist, built twice and tried out in an empty environment, with a list of their parts
	$(BIN)/python -m deploy.dist

record: dev  ## write anew what tests compare with: public names, files of this version, licences
	$(BIN)/python -m tests.compatibility.public
	$(BIN)/python -m tests.compatibility.make
	$(BIN)/python -m deploy.packages

QUICK ?=
results: dev  ## every benchmark with a fresh seed: results/ and docs/results.md; QUICK=1 takes a quarter of an hour
	$(BIN)/python benchmarks/everything.py $(if $(QUICK),--quick) $(if $(DATA),--data $(DATA))

mutants: dev  ## small mistakes in the core, one by one: how many do the tests notice?
	$(BIN)/python -m tests.mutants.run

.tools/.ready: tools.lock
	$(PYTHON) -m venv .tools
	.tools/bin/python -m pip install --quiet --require-hashes --no-deps --only-binary :all: -r tools.lock
	@touch $@

workflows: .tools/.ready  ## check the workflows of .github
	.tools/bin/zizmor --offline --quiet --pedantic .github

# Versions stay as they are where they can; `make lock UPGRADE=--upgrade` takes the newest.
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
  --no-strip-extras --no-header --no-annotate --no-emit-index-url

lock: dev  ## resolve both locks (exact versions and hashes, no addresses)
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) $(UPGRADE) --extra dev --output-file requirements-dev.lock
	$(COMPILE) $(UPGRADE) --extra run --constraints requirements-dev.lock --output-file requirements.lock
	echo zizmor | $(BIN)/uv pip compile - --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url $(UPGRADE) --output-file tools.lock

clean:  ## remove the environment and caches
	rm -rf .venv .tools .matrix docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
