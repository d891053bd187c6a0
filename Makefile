# The commands of this repository. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
POLICIES ?= policies/samples
PORT   ?= 9443
SEEDS  ?= 1-300
# About a minute of fuzzing. CHANGES: the number of hostile objects of each kind for each controller.
CASES  ?= 12000
CHANGES ?= 120
FUZZ_SEED ?= 1
# The seed of random examples for `make property`; random by default.
SEED   := $(if $(SEED),$(SEED),$(shell $(PYTHON) -c 'import random; print(random.getrandbits(32))'))
# Number of test processes; each starts what its tests need.
WORKERS ?= auto
PARALLEL := --numprocesses=$(WORKERS) --maxprocesses=4 --dist=loadfile
# Tests that mostly wait; `make test` runs them in parallel with the others.
WAITING := tests/scenarios tests/http tests/cli/test_sandbox.py tests/cli/test_serve.py
# Scenarios mostly wait, so they get more processes than there are CPUs.
PARALLEL_SERVERS := --numprocesses=4 --dist=loadgroup
# Kubernetes versions besides that in tests/cluster/go.mod: the oldest, one in the middle, the newest (docs/installing.md).
VERSIONS ?= 1.24.17 1.29.15 1.37.2
NIGHTLY := test-controlplane test-cluster test-versions simulate mutants planted property chaos test-browser fuzz bench
# Folders of tests that run alone, and of those that start their own nodes: loading all tests would take longer.
ALONE := tests/scenarios tests/chaos tests/manager tests/deploy
OWN_NODES := tests/cluster tests/daemon tests/deploy
# --sample: only the tests on real clusters that CI selects (tests/selection.py).
SAMPLE ?=
# Without bytecode, each of the hundreds of processes that tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := --quiet --generate-hashes --allow-unsafe --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host \
           --no-emit-find-links --strip-extras

.DEFAULT_GOAL := help
.PHONY: help venv sandbox serve test test-code test-sandbox nightly lint format types contracts generate check-generated behaviours cluster cluster-down \
        test-controlplane test-cluster test-versions test-peers test-browser fuzz simulate mutants planted chaos property bench docs release lock clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

venv: $(STAMP) ## Create .venv with the locked dependencies and the command `pykruise`

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "pykruise needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V 2>&1`. Name one with: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV): half a minute to two, once"
	@$(PYTHON) -m venv $(VENV)
	@echo "  1 of 2: the locked dependencies"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@echo "  2 of 2: the command pykruise"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

sandbox: venv ## Run a simulated cluster: API server in memory, nodes, the manager
	@$(BIN)/pykruise sandbox

serve: venv ## Answer admission reviews without a cluster, using policies/samples
	@$(BIN)/pykruise serve --policies $(POLICIES) --port $(PORT)

test: venv ## Run the tests that need only Python
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-code test-sandbox

test-code: venv
	$(BIN)/pytest -q $(PARALLEL) $(WAITING:%=--ignore=%)

test-sandbox: venv
	$(BIN)/pytest -q --numprocesses=3 --dist=load $(WAITING)

lint: venv ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv ## Format the code and fix lint errors
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv ## Check the types of app/ and bench/ (strict)
	$(BIN)/mypy

contracts: venv ## Check the rules for imports between packages
	$(BIN)/lint-imports

generate: venv ## Write CRDs, RBAC and reference pages from the code
	$(BIN)/python -m app.generate
	$(BIN)/python -m app.generate.cri

check-generated: venv ## Fail if a generated file is out of date
	$(BIN)/python -m app.generate --check
	$(BIN)/python -m app.generate.cri --check

behaviours: venv ## Check that each rule of docs/behaviours has a test
	$(BIN)/python -m tests.behaviours --check

cluster: venv ## Start a real cluster on this machine: control plane, three nodes, real containers; make cluster KUBERNETES=1.30.14
	$(BIN)/python -m tests.cluster up

cluster-down: venv ## Stop that cluster and clean up
	$(BIN)/python -m tests.cluster down

test-controlplane: venv ## Run the tests against a real API server
	$(BIN)/python -m tests.cluster build --no-nodes
	rm -f build/recorded/simulated-nodes.jsonl
	$(BIN)/pytest -q $(SAMPLE) -m "controlplane and not alone" $(PARALLEL_SERVERS)
	$(BIN)/pytest -q $(SAMPLE) -m "controlplane and alone" $(ALONE) || test $$? = 5
	$(BIN)/pytest -q $(SAMPLE) -m recorded -k simulated-nodes tests/scenarios

test-cluster: venv ## Run the tests on nodes with real containers (root)
	$(BIN)/python -m tests.cluster build
	rm -f build/recorded/real-containers.jsonl
	$(BIN)/pytest -q $(SAMPLE) -m "cluster and not alone" $(PARALLEL_SERVERS) tests/scenarios
	$(BIN)/pytest -q $(SAMPLE) -m "cluster and alone" $(ALONE) || test $$? = 5
	$(BIN)/pytest -q $(SAMPLE) -m "cluster and not alone" $(OWN_NODES) || test $$? = 5
	$(BIN)/pytest -q $(SAMPLE) -m recorded -k real-containers tests/scenarios

test-versions: venv ## Run the core tests on API servers of other Kubernetes versions: make test-versions VERSIONS=1.30.14
	set -e; for KUBERNETES in $(VERSIONS); do export KUBERNETES; \
	  $(BIN)/python -m tests.cluster build --no-nodes; \
	  $(BIN)/pytest -q --core -m controlplane $(PARALLEL_SERVERS) tests/scenarios tests/manager tests/deploy; \
	done

test-peers: venv ## Test other projects' software with the manager, on simulated nodes (docs/works-with.md)
	$(BIN)/python -m tests.cluster build --no-nodes
	$(BIN)/pytest -q -m peers tests/peers

nightly: export PYKRUISE_NIGHTLY = 1
nightly: export CASES = 100000
nightly: venv ## Run in full what CI samples: every seed, mutant, scenario and case; continues after failures
	@failed=; for part in $(NIGHTLY); do \
	  echo "=== $$part"; start=`date +%s`; \
	  $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
	  echo "=== $$part took $$((`date +%s` - start)) s"; \
	done; if [ "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

test-browser: venv ## Test the pages in a real browser
	$(BIN)/python -m tests.kit.debian chromium
	$(BIN)/pytest -q -m browser tests/browser

simulate: venv ## Simulate managers and faults in virtual time, by seed: make simulate SEEDS=1-2000 (resumes)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --about all

mutants: venv ## Plant small bugs, each of which a seed must find
	$(BIN)/python -m tests.simulation.mutants

planted: venv ## Plant bugs in reconcilers and writers, each of which a shell test must catch
	$(BIN)/python -m tests.shells.planted

chaos: venv ## Kill processes, replicas and API servers under load, one after another
	$(BIN)/python -m tests.chaos --seconds 10

property: export PYKRUISE_NIGHTLY = 1
property: venv ## Check 100,000 random Pods and SidecarSets (resumable), and run the tests with new random examples
	$(BIN)/python -m tests.property --cases 100000
	@echo "with the seed $(SEED); the same again: make property SEED=$(SEED)"
	PYTEST_ADDOPTS=--hypothesis-seed=$(SEED) $(MAKE) --no-print-directory test

fuzz: venv ## Send hostile input to webhooks, conversion, decoders and the HTTP port: make fuzz CASES=1000000 (resumes)
	$(BIN)/python -m tests.fuzz --cases $(CASES) --seed $(FUZZ_SEED) --resume
	$(BIN)/python -m tests.fuzz.controllers --seed $(FUZZ_SEED) --changes $(CHANGES)

bench: venv ## Run all benchmarks except the soak test; results are in bench/RESULTS.md
	$(BIN)/python -m tests.kit.debian wrk
	$(BIN)/python -m bench

release: venv ## Build the files of a release in dist/: make release URL=https://… (where they will be published)
	$(BIN)/python -m deploy.release $(if $(URL),--url $(URL))

docs: venv ## Build the documentation in build/site and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: ## Update the lock files
	$(BIN)/pip-compile $(COMPILE) --extra agent --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile $(COMPILE) --all-extras --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
