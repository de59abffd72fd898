# device-taint-webhook: `make demo` shows it at work, `make test` tests every feature, `make check` is the inner loop.
# Everything needed is installed on first use: Python packages into .venv, the test control plane into a cache
# outside the tree. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
INSTALLED := $(VENV)/.installed
CODE := webhook tests benchmarks certs release
UNIT := tests/unit tests/architecture
# Images of CI often set it; tests start hundreds of processes, and each would compile half a second of modules.
unexport PYTHONDONTWRITEBYTECODE
# Processes of tests: some of them always wait for a control plane, so three more than CI has cores.
WORKERS ?= 5

.PHONY: help
help: ## list the targets
	@grep -E '^[a-z0-9.-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

$(INSTALLED): requirements-dev.lock pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or later is needed (set PYTHON=...)" >&2; exit 1; }
	@echo "==> installing the locked Python packages into $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --quiet --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --quiet --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: setup
setup: $(INSTALLED) ## install the Python packages into .venv

.PHONY: controlplane
controlplane: setup ## build the test control plane (once; 15 to 30 minutes), or find KUBEBUILDER_ASSETS
	@$(BIN)/python -m tests.controlplane.assets --kwok --cert-manager --example-driver --helm

# --- inner loop ---------------------------------------------------------------------------------

.PHONY: check
check: setup format-check lint types contracts unit ## format, lint, types, contracts, short unit tests: under a minute

.PHONY: format
format: setup ## rewrite the code in the house's format
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix --quiet $(CODE) || true

.PHONY: format-check
format-check: setup
	@$(BIN)/ruff format --check --quiet $(CODE)

.PHONY: lint
lint: setup
	@$(BIN)/ruff check --quiet $(CODE)

.PHONY: types
types: setup
	@$(BIN)/mypy

.PHONY: contracts
contracts: setup
	@$(BIN)/lint-imports --no-cache

.PHONY: unit
unit: setup ## the unit tests but for the long ones, which tests/long.txt names
	@$(BIN)/python -m pytest -q -n auto -m "not apiserver and not slow and not whole" $$(grep ^tests/ tests/long.txt | sed s/^/--ignore=/) $(UNIT)

.PHONY: unit-3.13
unit-3.13: setup ## unit tests and tests/https on Debian 13's Python 3.13, the image's (needs root and debootstrap)
	@$(BIN)/python -m tests.image.python313

# --- everything ---------------------------------------------------------------------------------

.PHONY: test
test: setup format-check lint types contracts controlplane ## every feature once, with coverage; what CI runs
	@rm -f .coverage .coverage.*
	@HYPOTHESIS_PROFILE=ci COVERAGE_FILE=$(CURDIR)/.coverage COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml \
		$(BIN)/python -m pytest -n $(WORKERS) --durations=50 -m "not whole" tests
	@$(BIN)/coverage combine --quiet
	@$(BIN)/python -m tests.coverage_report

.PHONY: test-all
test-all: test unit-3.13 test-laws test-planes test-whole test-matrix test-mutants ## test, and what takes longer, in parts that run one by one, too

.PHONY: test-laws
test-laws: setup ## the laws with 250 examples each, the same each time
	@HYPOTHESIS_PROFILE=laws $(BIN)/python -m pytest -n $(WORKERS) tests/properties

.PHONY: test-planes
test-planes: setup controlplane ## every test on a real control plane that `make test` leaves out: faults, pressure, the soak, pages
	@$(BIN)/python -m pytest -n $(WORKERS) --durations=50 -m "whole and apiserver" tests

.PHONY: test-whole
test-whole: setup controlplane ## what else is marked `whole`: releases built twice, the image, alerts, the rest of the nets
	@$(BIN)/python -m pytest -n $(WORKERS) --durations=50 -m "whole and not apiserver" tests

.PHONY: test-matrix
test-matrix: setup ## what takes too long for CI: older API servers, 1.38's evictor, managers of gangs, more examples, full scale, a long soak
	@for version in 1.34.4 1.35.4 1.36.3 1.37.0; do \
		$(BIN)/python -m tests.controlplane.assets --version $$version; \
		ENVTEST_K8S_VERSION=$$version $(BIN)/python -m pytest -s tests/apiserver/test_generated.py tests/apiserver/test_cases.py \
			tests/apiserver/test_served_fields.py; \
	done
	@ENVTEST_K8S_VERSION=1.37.0 $(BIN)/python -m pytest -n 2 tests/apiserver/eviction/test_parity.py tests/apiserver/impact \
		tests/apiserver/guard/test_extended_resources.py
	@$(BIN)/python -m tests.controlplane.assets --kwok --gang-managers
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 tests/properties
	@EMULATION=all $(BIN)/python -m pytest -s tests/release/test_plugin.py
	@EVICTION_SCALE=all SOAK_MINUTES=30 $(BIN)/python -m pytest -s -n 2 tests/apiserver/eviction

.PHONY: test-mutants
test-mutants: SEED := 7
test-mutants: mutants ## the same sample of mutants each time

.PHONY: mutants
mutants: setup ## small changes to the pure rooms, each of which a test should notice; not in CI (MUTANTS=300 SEED=N)
	@$(BIN)/python -m tests.mutants $(if $(MUTANTS),--count $(MUTANTS)) $(if $(SEED),--seed $(SEED))

.PHONY: demo
demo: setup ## six scenes on a real control plane (ALL=1 the whole story, KEEP=1 leaves it running)
	@$(BIN)/python -m tests.demo

.PHONY: benchmark
benchmark: setup ## throughput, latency and memory beside a Go webhook, in one run
	@$(BIN)/python -m benchmarks $(BENCHMARK)

.PHONY: benchmark-scale
benchmark-scale: setup ## impact in a cluster of 100,000 devices and claims, and how it is followed, beside client-go
	@$(BIN)/python -m benchmarks.inventory
	@$(BIN)/python -m benchmarks.selectors
	@$(BIN)/python -m benchmarks.cluster
	@$(BIN)/python -m benchmarks.eviction_plan
	@$(BIN)/python -m benchmarks.patches
	@$(BIN)/python -m benchmarks.patched_cluster

.PHONY: benchmark-starts
benchmark-starts: setup ## how long verbs take to start, beside kubectl, in one run
	@$(BIN)/python -m benchmarks.starts

.PHONY: benchmark-stalls
benchmark-stalls: setup ## what small claims wait for beside sixteen of 2 MB; fails above 5 times the idle p99
	@$(BIN)/python -m benchmarks.stalls

.PHONY: benchmark-large-claims
benchmark-large-claims: setup ## what a claim of 28,160 tolerations costs, in each shape; fails above 100 ms of processor time
	@$(BIN)/python -m benchmarks.large_claims

.PHONY: benchmark-eviction
benchmark-eviction: setup ## how fast a rule empties devices, beside the in-tree controller, in one run (about half an hour)
	@$(BIN)/python -m benchmarks.eviction $(BENCHMARK)

# --- delivery -----------------------------------------------------------------------------------

# What `make install.yaml` renders, whose image it names, and where it puts the file. KUBECTL or KUSTOMIZE name the
# program that renders; else kubectl is looked for on PATH, then kustomize.
OVERLAY ?= self-managed
IMAGE ?=
INSTALL ?= install.yaml
KUBECTL ?=
KUSTOMIZE ?=
OVERLAYS := $(sort $(patsubst manifests/overlays/%/kustomization.yaml,%,$(wildcard manifests/overlays/*/kustomization.yaml)))

export INSTALL_IMAGE = $(IMAGE)

# The file appears whole or not at all: a half of it would install a webhook without its pods.
.PHONY: install.yaml
install.yaml: ## the whole installation in one file (IMAGE=REGISTRY/NAME:TAG OVERLAY=self-managed KUBECTL=kubectl)
	@if [ -z "$$INSTALL_IMAGE" ]; then \
		echo "make install.yaml: IMAGE must be given: there is no image in a public registry. Build one and push it:" >&2; \
		echo "    docker build -t REGISTRY/device-taint-webhook:VERSION . && docker push REGISTRY/device-taint-webhook:VERSION" >&2; \
		echo "    make install.yaml IMAGE=REGISTRY/device-taint-webhook:VERSION" >&2; \
		exit 2; \
	elif ! [[ "$$INSTALL_IMAGE" =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$$ ]]; then \
		echo "make install.yaml: IMAGE=$$INSTALL_IMAGE is not the name of an image" >&2; exit 2; \
	elif [[ "$$INSTALL_IMAGE" == REGISTRY/* ]]; then \
		echo "make install.yaml: IMAGE=$$INSTALL_IMAGE has the placeholder REGISTRY: put your registry in its place" >&2; exit 2; \
	elif [ ! -f "manifests/overlays/$(OVERLAY)/kustomization.yaml" ]; then \
		echo "make install.yaml: there is no overlay \"$(OVERLAY)\"; OVERLAY is one of: $(OVERLAYS); manifests/README.md says how to write your own" >&2; exit 2; \
	fi
	@kubectl="$(KUBECTL)"; kustomize="$(KUSTOMIZE)"; \
	[ -n "$$kubectl$$kustomize" ] || kubectl="$$(command -v kubectl || true)"; \
	[ -n "$$kubectl$$kustomize" ] || kustomize="$$(command -v kustomize || true)"; \
	if [ -n "$$kubectl" ]; then render=("$$kubectl" kustomize); \
	elif [ -n "$$kustomize" ]; then render=("$$kustomize" build); \
	else \
		echo "make install.yaml: neither kubectl nor kustomize is on PATH; set KUBECTL or KUSTOMIZE to one of them" >&2; exit 2; \
	fi; \
	trap 'rm -f "$(INSTALL).part"' EXIT; \
	"$${render[@]}" "manifests/overlays/$(OVERLAY)" \
		| sed -E "s#^( *(- )?image: )device-taint-webhook\$$#\1$$INSTALL_IMAGE#" > "$(INSTALL).part" \
		&& mv "$(INSTALL).part" "$(INSTALL)"

# What `make release` builds, and for whom; without REGISTRY and REPOSITORY it names hosts that do not exist.
# docs/development/releasing.md has all of it.
VERSION ?=
REGISTRY ?=
REPOSITORY ?=
DOWNLOADS ?=
IMAGES ?=
PLATFORMS ?=
OUTPUT ?=
NOTES ?=

export RELEASE_VERSION = $(VERSION)

.PHONY: release-needs
release-needs: # with the machine's own Python: what is missing shows before the packages are installed
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or later is needed (set PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -m release.needs --version "$$RELEASE_VERSION" --kubectl "$(KUBECTL)" --kustomize "$(KUSTOMIZE)" \
		--images "$(IMAGES)"

.PHONY: release
release: release-needs setup ## all files of a release, in dist/vVERSION (VERSION=1.2.3 REGISTRY=... REPOSITORY=https://... IMAGES=none)
	@$(BIN)/python -m release --version "$$RELEASE_VERSION" --kubectl "$(KUBECTL)" --kustomize "$(KUSTOMIZE)" \
		$(if $(REGISTRY),--registry "$(REGISTRY)") $(if $(REPOSITORY),--repository "$(REPOSITORY)") \
		$(if $(DOWNLOADS),--downloads "$(DOWNLOADS)") $(if $(IMAGES),--images "$(IMAGES)") \
		$(if $(NOTES),--notes "$(NOTES)") $(if $(PLATFORMS),--platforms "$(PLATFORMS)") $(if $(OUTPUT),--output "$(OUTPUT)")

.PHONY: publish
publish: ## push the image and the chart of dist/vVERSION, and sign them (PUBLISH=... for python -m release.publish)
	@$(PYTHON) -m release.publish $(PUBLISH) "$(or $(OUTPUT),dist)/v$$RELEASE_VERSION"

# --- upkeep -------------------------------------------------------------------------------------

.PHONY: lock
lock: setup ## resolve the dependencies again and write both lock files, with hashes and without addresses
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet uv
	@for extra in "" "-dev"; do \
		$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
			--no-annotate --no-header --upgrade $${extra:+--extra dev} pyproject.toml -o requirements$$extra.lock; \
	done

.PHONY: audit-dependencies
audit-dependencies: setup ## ask the package index for known vulnerabilities of the locked packages (AUDIT=... for pip-audit)
	@$(BIN)/pip-audit --disable-pip --require-hashes --requirement requirements.lock --requirement requirements-dev.lock $(AUDIT)

.PHONY: openapi
openapi: setup ## write the fields that each release serves (webhook/api/fields), from Kubernetes' own OpenAPI documents
	@$(BIN)/python -m tests.controlplane.served_fields

.PHONY: docs
docs: setup ## write the pages that are made from code: the policy's fields, the command line; wrap long lines of the others
	@$(BIN)/python -m tests.architecture.policy_reference
	@$(BIN)/python -m tests.architecture.cli_reference
	@$(BIN)/python -m tests.chart.generator
	@$(BIN)/python -m tests.architecture.doc_lines

.PHONY: pictures
pictures: setup ## play the demo, and draw two of its screens and the dashboard (needs prometheus) in docs/images
	@$(BIN)/python -m tests.demo.picture docs/images/demo.svg
	@$(BIN)/python -m tests.demo.dashboard docs/images/dashboard.svg

.PHONY: clean
clean: ## remove what the tests and tools left in the tree (not the caches outside)
	@rm -rf .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
