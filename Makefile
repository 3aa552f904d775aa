# Two commands do all the set-up: `make demo` and `make test`. Neither needs root, Docker, a cloud account or a GPU.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
RUN_STAMP = $(VENV)/.installed
DEV_STAMP = $(VENV)/.installed-dev
PIP = $(BIN)/pip install --quiet --disable-pip-version-check --use-pep517
PYTEST = $(BIN)/python -m pytest
# tests without real processes share two cores; those with real ones are timed, so they have the machine to themselves
PARALLEL = $(PYTEST) --numprocesses 2 --dist loadfile

.PHONY: $(shell grep -hoE '^[a-z-]+:' $(lastword $(MAKEFILE_LIST)) | tr -d :)

help:  ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(RUN_STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 3.11 or newer is needed (PYTHON=/path/to/python3 make ...)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "python3 lacks venv: install your system's python3-venv package"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[lab]'
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	$(PIP) --editable '.[lab,dev]'
	@touch $@

setup: $(DEV_STAMP)  ## Make .venv with everything in it

demo: $(RUN_STAMP)  ## The first migration, end to end, on this machine; writes an HTML report
	@$(BIN)/python -m fleetctl.lab.demo

model: $(RUN_STAMP)  ## Fetch the lab's real model (93 MB, once); the lab does without it where it cannot be had
	@$(BIN)/python -c 'from fleetctl.lab.model import fetch_model; print("model:", fetch_model().reason or "is here")'

test: setup lint model  ## Every check, with seeded subsets of the long ones
	$(PARALLEL) -m 'not slow and not lab and not crash'
	$(PYTEST) -m 'not slow and (lab or crash)'

test-fast: setup lint  ## Under 2 minutes: no real processes
	$(PARALLEL) -m 'not slow and not lab and not crash'

test-full: setup lint model  ## Every count that the promises name; resumable: finished parts are not run again
	$(BIN)/python -m tests.full

lint: setup  ## Formatting, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench-start: $(RUN_STAMP)  ## Start-up time of --help and status; last line is one JSON object
	@$(BIN)/python -m tests.bench.start

bench-plan: setup  ## Planning times, proven gaps, Mélange instances, churn; last line is one JSON object
	@$(BIN)/python -m tests.bench.plan

bench-scan: setup  ## Source lines per CPU second, hazards found, names that agree; last line is one JSON object
	@$(BIN)/python -m tests.bench.scan

bench-configure: $(RUN_STAMP)  ## What fleetctl adds to plain ansible-playbook; last line is one JSON object
	@$(BIN)/python -m tests.bench.configure

bench-provision: setup  ## Overhead over bare Terraform, choice of a place, failover; last line is one JSON object
	@$(BIN)/python -m tests.bench.provision

bench-canary: setup  ## The judge's error rates, detection and cost beside other tools; ARGS=--quick; last line is one JSON object
	@$(BIN)/python -m tests.bench.canary $(ARGS)

bench-traffic: setup  ## Time to zero, whole streams, caps, buckets, batch, tee, locality; ARGS='--runs 5 --row switch'; last line is one JSON object
	@$(BIN)/python -m tests.bench.traffic $(ARGS)

bench-rollback: setup  ## From a fault to home, simulated and real; ARGS='--runs 5 --row switch'; last line is one JSON object
	@$(BIN)/python -m tests.bench.rollback $(ARGS)

bench-promises: setup  ## Cases of the promises that rules alone can keep, and how many break one; last line is one JSON object
	@$(BIN)/python -m tests.bench.promises

.venv-checkov/bin/checkov:
	$(PYTHON) -m venv .venv-checkov
	.venv-checkov/bin/pip install --quiet --disable-pip-version-check 'checkov==3.3.30'

checkov: .venv-checkov/bin/checkov  ## Static analysis of the Terraform modules, in an environment of its own
	.venv-checkov/bin/checkov --config-file terraform/.checkov.yaml -d terraform

clean:  ## Remove what was made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
