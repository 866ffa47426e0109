# Two commands on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet -c constraints.txt
# What the demo needs is installed first; everything else needs the rest as well.
DEMO_READY := $(VENV)/.ready-demo
READY := $(VENV)/.ready
# Where torch comes from, if not from pip's usual index. On Linux that has the builds for CUDA, which are
# gigabytes; make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the build for CPUs.
TORCH_INDEX ?=
# One thread per test process: two of them run side by side.
TEST_ENV := OMP_NUM_THREADS=1

.PHONY: help demo test test-slow lint format golden docs bench package clean

help: ## What there is to do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(DEMO_READY): pyproject.toml constraints.txt
	@echo "Installing ttpfl and torch into $(VENV); this takes minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and pinned, so that nothing else decides which build is taken.
	$(PIP) "$$(grep '^torch==' constraints.txt)" $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	$(PIP) -e '.[demo]'
	touch $@

$(READY): $(DEMO_READY)
	@echo "Installing the tools for tests and documentation into $(VENV); this takes minutes."
	$(PIP) -e '.[dev]'
	touch $@

demo: $(DEMO_READY) ## Train, learn rates, compare all methods on new clients, and write a report
	$(TEST_ENV) $(BIN)/ttpfl demo

test: lint ## Linters, types, doctests and tests (minutes)
	$(TEST_ENV) $(BIN)/python -m pytest

test-slow: $(READY) ## Tests that take longer
	$(TEST_ENV) $(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(READY) ## Renew the texts that --help is compared with, after a change that is meant
	COLUMNS=100 _TYPER_FORCE_DISABLE_TERMINAL=1 $(BIN)/python tests/cli/help_texts.py --write

docs: $(READY) ## Build the documentation into site/, to be read without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(READY) ## Speed and memory of the core, of corruptions, populations, engines and methods
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/core.py --soak 20000
	$(TEST_ENV) $(BIN)/python benchmarks/corruptions.py
	$(TEST_ENV) $(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/federation.py
	$(TEST_ENV) $(BIN)/python benchmarks/flower.py
	$(TEST_ENV) $(BIN)/python benchmarks/method_costs.py

package: $(READY) ## Wheel and source archive, in dist/
	$(BIN)/python -m build --no-isolation

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
