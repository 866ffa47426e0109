# Two commands on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# The demo needs fewer packages than the other targets.
DEMO_READY := $(VENV)/.ready-demo
READY := $(VENV)/.ready
# One thread per test process, since tests run in two processes.
TEST_ENV := OMP_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal
# Additional index for torch. On Linux, pip's default index has the CUDA builds, which take gigabytes. For the CPU
# build: make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
INSTALL := -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP := $(BIN)/python $(INSTALL)
LOCKED := $(PIP) --require-hashes --no-deps -r
# Lock for all platforms and Python 3.11 or newer. torch has separate locks, because its builds come from two indexes.
# The extra dependencies of its GPU builds are not locked.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11.7 --generate-hashes --no-annotate --no-header
COMPILE := $(LOCK) -c constraints.txt
WITHOUT_TORCH := awk '/^[a-z]/ {keep = !/^(torch|triton|nvidia-|cuda-)/} keep'
# Run outside of the environment, because pip-audit has many dependencies.
AUDIT := $(BIN)/uv tool run pip-audit@2.10.1 --strict --disable-pip --require-hashes -r requirements/torch.lock -r requirements/dev.lock

.PHONY: help demo test test-slow test-flower test-interop lint format golden docs bench package test-wheel lock audit clean

help: ## Show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(DEMO_READY): pyproject.toml $(wildcard requirements/*.lock)
	@echo "Installing ttpfl and torch into $(VENV). This takes a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# Every file is verified by its hash. Install torch first: the CPU build if pip can find it, else the default one.
	$(LOCKED) requirements/torch-cpu.lock 2> /dev/null || $(LOCKED) requirements/torch.lock
	$(LOCKED) requirements/demo.lock
	# Install the unlocked libraries of torch's GPU builds; a no-op for other builds.
	$(PIP) -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(READY): $(DEMO_READY)
	@echo "Installing test and documentation tools into $(VENV). This takes a few minutes."
	$(LOCKED) requirements/dev.lock
	touch $@

demo: $(DEMO_READY) ## Train, learn rates, compare methods on new clients, and write a report
	$(TEST_ENV) $(BIN)/ttpfl demo

test: lint ## Run linters, type checks, doctests and tests (takes minutes)
	$(PYTEST)

test-slow: $(READY) ## Run slow tests
	$(PYTEST) -m slow

FLOWER ?= 1.42.0
OTHER := .venv-flower-$(FLOWER)

test-flower: $(READY) ## Run the federation tests with another version of Flower, such as FLOWER=1.42.0
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	# Use the packages of the main environment, with only Flower replaced.
	echo "$(CURDIR)/$(VENV)/lib/$$($(BIN)/python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages" \
		> $$($(OTHER)/bin/python -c 'import site; print(site.getsitepackages()[0])')/usual.pth
	$(OTHER)/bin/python -m pip install --quiet --no-deps flwr==$(FLOWER)
	$(OTHER)/bin/python -m pip install --quiet --no-deps -e .
	$(TEST_ENV) PATH="$(CURDIR)/$(OTHER)/bin:$$PATH" $(OTHER)/bin/python -m pytest -n 1 tests/flower

INTEROP := .venv-interop
INTEROP_LOCKED := $(INTEROP)/bin/python $(INSTALL) --require-hashes --no-deps -r

test-interop: ## Run the tests with timm, Transformers, torchvision, Lightning, OpenCLIP, the Hub and trackers
	test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	$(INTEROP_LOCKED) requirements/torch-cpu.lock 2> /dev/null || $(INTEROP_LOCKED) requirements/torch.lock
	$(INTEROP_LOCKED) requirements/interop.lock
	# Install torchvision, whose build must be that of torch, and the libraries of torch's GPU builds; neither is locked.
	$(INTEROP)/bin/python $(INSTALL) -c requirements/interop.txt torch torchvision
	$(INTEROP)/bin/python $(INSTALL) --no-deps -e .
	$(TEST_ENV) TTPFL_TEST_INTEROP=1 $(INTEROP)/bin/python -m pytest -n 2 tests/interop

lint: $(READY) ## Run linters and type checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(READY) ## Update the golden --help texts after an intended change
	COLUMNS=100 _TYPER_FORCE_DISABLE_TERMINAL=1 $(BIN)/python tests/cli/help_texts.py --write

docs: $(READY) ## Build the documentation into site/, for offline use
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(READY) ## Measure speed and memory of the core, corruptions, populations, engines and methods
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/core.py --soak 20000
	$(TEST_ENV) $(BIN)/python benchmarks/corruptions.py
	$(TEST_ENV) $(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/federation.py
	$(TEST_ENV) $(BIN)/python benchmarks/flower.py
	$(TEST_ENV) $(BIN)/python benchmarks/method_costs.py

package: $(READY) ## Build wheel and source archive into dist/
	$(BIN)/python -m build --no-isolation

WHEEL := .venv-wheel

test-wheel: package ## Install the wheel in an environment of its own and run it away from the repository
	rm -rf $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python $(INSTALL) "$$(ls -t dist/*.whl | head -1)[demo]"
	bin="$(CURDIR)/$(WHEEL)/bin" && cd "$$(mktemp -d)" && "$$bin/ttpfl" --version && "$$bin/ttpfl" recipe list \
		&& "$$bin/ttpfl" demo --help && "$$bin/ttpfl" run demo --preset smoke

lock: $(READY) ## Update requirements/ after a change of pyproject.toml, constraints.txt or interop.txt
	$(COMPILE) pyproject.toml --extra dev | $(WITHOUT_TORCH) > requirements/dev.lock
	echo hatchling | $(COMPILE) pyproject.toml - --extra data --extra flower | $(WITHOUT_TORCH) > requirements/run.lock
	printf 'hatchling\neditables\n' | $(COMPILE) pyproject.toml - --extra demo | $(WITHOUT_TORCH) > requirements/demo.lock
	# All versions are in the file, also those of dependencies.
	grep -vE '^torch(vision)?=' requirements/interop.txt | $(LOCK) --no-deps - > requirements/interop.lock

audit: $(READY) ## Check locked packages for known vulnerabilities and write sbom.json (needs the network)
	$(AUDIT) --progress-spinner off
	$(AUDIT) --progress-spinner off --format cyclonedx-json --output sbom.json

clean: ## Remove the environment and all generated files
	rm -rf $(VENV) .venv-flower-* $(INTEROP) $(WHEEL) sbom.json build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
