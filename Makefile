# Two commands on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# What the demo needs is installed first; everything else needs the rest as well.
DEMO_READY := $(VENV)/.ready-demo
READY := $(VENV)/.ready
# One thread per process: tests run in two processes side by side.
TEST_ENV := OMP_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal
# Where torch comes from, if not from pip's usual index. On Linux that has the builds for CUDA, which are
# gigabytes; make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the build for CPUs.
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
LOCKED := $(PIP) --require-hashes --no-deps -r
# All platforms from Python 3.11 on. torch has locks of its own, since its builds come from two indexes; what its builds
# for GPUs need in addition is not locked.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11.7 --generate-hashes --no-annotate --no-header \
	-c constraints.txt
WITHOUT_TORCH := awk '/^[a-z]/ {keep = !/^(torch|triton|nvidia-|cuda-)/} keep'
# Not in the environment: it has many dependencies of its own.
AUDIT := $(BIN)/uv tool run pip-audit@2.10.1 --strict --disable-pip --require-hashes -r requirements/torch.lock -r requirements/dev.lock

.PHONY: help demo test test-slow test-flower lint format golden docs bench package lock audit clean

help: ## What there is to do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(DEMO_READY): pyproject.toml $(wildcard requirements/*.lock)
	@echo "Installing ttpfl and torch into $(VENV); this takes minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# Every file is compared with its hash. torch first: the build for CPUs, if pip can find it, else the usual one.
	$(LOCKED) requirements/torch-cpu.lock 2> /dev/null || $(LOCKED) requirements/torch.lock
	$(LOCKED) requirements/demo.lock
	# The libraries that torch's builds for GPUs need, which are not locked; nothing for the other builds.
	$(PIP) -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(READY): $(DEMO_READY)
	@echo "Installing the tools for tests and documentation into $(VENV); this takes minutes."
	$(LOCKED) requirements/dev.lock
	touch $@

demo: $(DEMO_READY) ## Train, learn rates, compare all methods on new clients, and write a report
	$(TEST_ENV) $(BIN)/ttpfl demo

test: lint ## Linters, types, doctests and tests (minutes)
	$(PYTEST)

test-slow: $(READY) ## Tests that take longer
	$(PYTEST) -m slow

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

lock: $(READY) ## Renew the locks in requirements/ after a change of pyproject.toml or constraints.txt
	$(COMPILE) pyproject.toml --extra dev | $(WITHOUT_TORCH) > requirements/dev.lock
	echo hatchling | $(COMPILE) pyproject.toml - --extra data --extra flower | $(WITHOUT_TORCH) > requirements/run.lock
	printf 'hatchling\neditables\n' | $(COMPILE) pyproject.toml - --extra demo | $(WITHOUT_TORCH) > requirements/demo.lock

audit: $(READY) ## Look up known vulnerabilities of everything that is locked, and write sbom.json; needs the network
	$(AUDIT) --progress-spinner off
	$(AUDIT) --progress-spinner off --format cyclonedx-json --output sbom.json

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) .venv-flower-* sbom.json build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
