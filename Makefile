# What developers and CI run. Each target sets up what it needs, says what it does, and is quick when nothing is to be done.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Byte code is kept whatever PYTHONDONTWRITEBYTECODE says, in one folder that `clean` removes: each process would compile anew.
BYTECODE := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/bytecode
# Packages' plugins for Hypothesis stay out: selenium's trio brings one, a quarter of a second for each process.
UNIT := PYTHONHASHSEED=0 HYPOTHESIS_NO_PLUGINS=1 $(BYTECODE) $(BIN)/pytest -q --durations=5 --durations-min=5 -n 4 --dist worksteal --ignore=tests/e2e --ignore=tests/conformance --ignore=tests/gpu
NOT_HERE := not e2e and not conformance and not gpu and not bench
SHARED_CORPUS := $(or $(TESSERA_SHARED),../shared)/corpus

.PHONY: help setup quick page demo demo-down test lock check lint types fast thorough durations explore mutants planted conformance e2e e2e-versions nightly gpu foreign-nvml bench proto crds sbom clean

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## .venv with the locked packages and the console scripts

$(STAMP): requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) is missing (Debian 12: apt-get install python3.11 python3.11-venv)"; exit 2; }
	@echo "setup: a virtual environment in $(VENV), packages locked with hashes"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

quick: setup ## the first minute: the agent on simulated GPUs against a kubelet stand-in; no root, no Go. PAGE=yes|no: the page after it
	@$(BIN)/python -m hack.quick

page: setup ## the page, its controller and queues that live, over a simulated fleet; no root, no cluster. Ctrl-C ends it
	@$(BIN)/tessera try --fleet examples/live/fleet.yaml examples/live/queues.yaml examples/live/jobs.yaml

demo: setup ## a real Kubernetes with agent, controller, queues and the page; root, Debian 12 or newer
	@$(BIN)/python -m hack.demo

demo-down: ## end the demo and remove everything it made
	@$(BIN)/python -m hack.demo --down

test: check thorough conformance e2e ## everything: fast and thorough tests, other systems' cases, a real Kubernetes

# Tests begin when lint has ended: mypy without its cache takes one core for a minute, and they have the other.
check: setup ## the fast tier: lint, types, imports, unit and property tests; IN=controller/scheduler: of that room alone
ifdef IN
	@test -d "$(IN)" || { echo "check: IN: found $(IN), expected a folder of this repository such as controller/scheduler"; exit 2; }
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types fast HERE="$(IN) $(wildcard tests/$(IN))"
else
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types fast
endif

lint: setup
	@echo "check: ruff, import rules"
	@$(BIN)/ruff check --quiet $(or $(HERE),.)
	@$(BIN)/ruff format --check --quiet $(or $(HERE),.)
	@told=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$told"; exit 1; }; tail -n 1 <<< "$$told"

types: setup
	@echo "check: mypy --strict"
	@$(BIN)/mypy $(HERE)

# Four at a time suit two cores: some tests wait for processes and devices that hang, and some for leases to run out.
fast: setup
	@echo "check: fast tests"
	@test -d $(VENV)/bytecode || $(UNIT) -n 0 -m "$(NOT_HERE)" --collect-only > /dev/null || true  # compiled once, not by each worker
	@$(if $(HERE),$(if $(word 2,$(HERE)),$(UNIT) -m "$(NOT_HERE) and not thorough" $(word 2,$(HERE)),echo "check: no tests mirror $(HERE)"),$(UNIT) -m "$(NOT_HERE) and not thorough")

thorough: setup ## the unit and property tests that take long; IN=controller/scheduler: of that room alone
	@echo "thorough: the tests that tests/thorough.txt names"
	@$(UNIT) -m "$(NOT_HERE) and thorough" $(if $(IN),tests/$(IN))

durations: setup ## time all unit tests anew, and draw the line between check and thorough; on a quiet machine
	@$(UNIT) -m "$(NOT_HERE)" --junitxml=build/durations.xml
	@$(BIN)/python -m hack.durations build/durations.xml

explore: setup ## the properties with fresh seeds for TIME (10m), then histories judged from outside; ONLY=outside, ONLY=tests/kube: these alone
	@$(BIN)/python -m hack.explore $(or $(TIME),10m) $(ONLY)

mutants: setup ## plants COUNT (100) mistakes drawn by SEED (1), ROOM=engine, IN=folder: only there; do the tests notice?
	@echo "mutants: $(or $(COUNT),100) planted mistakes, seed $(or $(SEED),1)"
	@$(BIN)/python -m hack.mutants --count $(or $(COUNT),100) --seed $(or $(SEED),1) $(if $(ROOM),--room $(ROOM)) $(if $(IN),--in $(IN))

planted: setup ## plants realistic faults (all; COUNT drawn by SEED): do nets that do not know the code find them?
	@echo "planted: $(or $(COUNT),all) faults"
	@$(BIN)/python -m hack.planted $(if $(COUNT),--count $(COUNT)) --seed $(or $(SEED),1)

conformance: setup ## other systems' own cases (../shared or TESSERA_SHARED; CORPUS=folder: that one's)
ifdef CORPUS
	@echo "conformance: cases in $(CORPUS)"
	@TESSERA_CORPUS="$(CORPUS)" $(BIN)/pytest -q -m conformance tests/conformance/kueue tests/conformance/kueuejobs tests/conformance/kai/test_cases.py
else
	@if [ -d "$(SHARED_CORPUS)" ]; then \
	  echo "conformance: other systems' cases in $(SHARED_CORPUS)"; \
	  $(BIN)/pytest -q -m conformance -n 2 --dist worksteal tests/conformance; \
	elif [ -n "$(CI)" ]; then \
	  echo "conformance: $(SHARED_CORPUS) is missing"; exit 1; \
	else \
	  echo "conformance: NOT RUN: no corpus in $(SHARED_CORPUS); it is not part of this repository (TESSERA_SHARED names another folder)"; \
	fi
endif

e2e: setup ## real components: Kubernetes, containerd, Helm (root; the first run compiles them)
	@$(BIN)/python -m hack.cluster build all
	@$(BYTECODE) $(BIN)/python -m hack.e2e

e2e-versions: setup ## scenes on real older Kubernetes; VERSION=1.35: only that one, ONLY=claims,chart: those
	@$(BYTECODE) $(BIN)/python -m hack.e2e.versions $(if $(VERSION),--version $(VERSION)) $(if $(ONLY),--only '$(ONLY)')

nightly: setup ## what shows more than CI has time for: parts of an hour at most; PART=fuzz: only that one; results in docs/nightly.md
	@$(BIN)/python -m hack.nightly $(if $(PART),--part $(PART))

gpu: setup ## on a machine with a real NVIDIA GPU
	@$(BIN)/pytest -q -m gpu tests

foreign-nvml: setup ## the agent on any libnvidia-ml: LIB=path (default: our own), TRIP= and RESET= commands for {gpu}
	@$(BIN)/python -m hack.foreignnvml $(if $(LIB),--library "$(LIB)") $(if $(TRIP),--trip '$(TRIP)') $(if $(RESET),--reset '$(RESET)')

bench: setup ## measures, prints ratios
	@$(BIN)/python -m hack.bench

proto: setup ## regenerate kubeletapi/ from proto/
	@PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python -m hack.proto
	@echo "proto: kubeletapi/ is up to date"

crds: setup ## regenerate the chart's CRDs from the typed structs
	@$(BIN)/python -m hack.crds

lock: setup ## resolve and lock the packages anew
	@$(BIN)/python -m hack.lock

sbom: setup ## what is locked, as CycloneDX: build/sbom.json; fails for a licence that is not allowed
	@$(BIN)/python -m hack.supply

clean: ## remove what setup and the tests made in this folder
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
