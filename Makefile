# Two commands on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One thread per test process: two of them run side by side.
TEST_ENV := OMP_NUM_THREADS=1

.PHONY: help demo test test-slow test-flower lint format golden docs bench package clean

help: ## What there is to do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and pinned, so that nothing else decides which build is taken.
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY) ## Train, learn rates, compare all methods on new clients, and write a report
	$(TEST_ENV) $(BIN)/ttpfl demo

test: lint ## Linters, types, doctests and tests (minutes)
	$(TEST_ENV) $(BIN)/python -m pytest

test-slow: $(READY) ## Tests that take longer
	$(TEST_ENV) $(BIN)/python -m pytest -m slow

FLOWER ?= 1.42.0
OTHER := .venv-flower-$(FLOWER)

test-flower: $(READY) ## Tests of the federation with another version of Flower: FLOWER=1.42.0
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	# The packages of the usual environment, with only Flower in front of them.
	echo "$(CURDIR)/$(VENV)/lib/$$($(BIN)/python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages" \
		> $$($(OTHER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/usual.pth
	$(OTHER)/bin/python -m pip install --quiet --no-deps flwr==$(FLOWER)
	$(OTHER)/bin/python -m pip install --quiet --no-deps -e .
	$(TEST_ENV) PATH="$(CURDIR)/$(OTHER)/bin:$$PATH" $(OTHER)/bin/python -m pytest -n 1 tests/flower

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
	rm -rf $(VENV) .venv-flower-* build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
