# Every target does its own set-up from a bare clone: `make test` and `make demo` need nothing but Python 3.11 or later.
# Words after ARGS= go to the command: make demo ARGS='--policy hnr'

VENV := .venv
BIN := $(VENV)/bin
JOBS := 2
PACKAGES := client engine feeder protocol scheduler server
INSTALLED := $(VENV)/.packages
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test checks bench types lint contracts docs rooms tests coverage damage cluster faults soak experiments pins kills edges peers services console wheel clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 14

setup: $(READY) ## make .venv, install the pinned packages, find or install Java for Spark

# The packages first, as they take minutes; our own editable install again whenever the entry points may have changed.
$(INSTALLED): requirements/dev.txt requirements/build.txt .ci/setup
	@.ci/setup packages
	@touch $@

$(READY): $(INSTALLED) pyproject.toml
	@.ci/setup project
	@touch $@

demo: $(READY) ## a month of flights through thirteen queries, every answer checked against DuckDB
	@$(BIN)/millstream demo $(ARGS)

test: checks tests ## all checks and all tests

checks: $(READY) ## ruff, import contracts, mypy and the documents, side by side
	@$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target lint contracts types docs

# Two processes share the tests, a module each, so that what a module sets up is set up once; the long ones first (tests/conftest.py).
SHARED := -n $(JOBS) --dist loadscope --no-loadscope-reorder
tests: $(READY) ## pytest, all tests
	$(BIN)/python -m pytest $(SHARED) $(ARGS)

# Counting lines makes Python two to three times slower, so it is a run of its own.
coverage: $(READY) ## all tests again, counting the lines that they reach
	$(BIN)/python -m pytest $(SHARED) --cov --cov-report=term:skip-covered $(ARGS)

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# It reads folders side by side, as if `millstream` itself had no names.
contracts: $(READY) ## import-linter: who may import whom
	@mkdir -p build/contracts/millstream
	@for folder in $(PACKAGES); do ln -sfn "$(CURDIR)/$$folder" "build/contracts/millstream/$$folder"; done
	@cd build/contracts && "$(CURDIR)/$(BIN)/lint-imports" ../../pyproject.toml

# Our folders stand at the top but are imported as millstream.<folder>; mypy sees that through a folder of links.
types: $(READY) ## mypy, strict
	@mkdir -p build/types/millstream
	@ln -sf "$(CURDIR)/millstream/__init__.py" "$(CURDIR)/millstream/py.typed" build/types/millstream/
	@for folder in $(PACKAGES); do ln -sfn "$(CURDIR)/$$folder" "build/types/millstream/$$folder"; done
	MYPYPATH=build/types $(BIN)/mypy -p millstream

docs: $(READY) ## the documents as a site in build/docs; a broken link fails
	@$(BIN)/python -m sphinx -q -n -W --keep-going -b html docs build/docs

bench: $(READY) ## all benchmarks; each checks its answer (one: .venv/bin/millstream bench NAME)
	@$(BIN)/millstream bench all --compare docs/benchmarks.json $(ARGS)

damage: $(READY) ## ten thousand damages to journals, none of which may lose a row in silence
	$(BIN)/python -m pytest -s -m damage tests/server/test_journal_damage.py $(ARGS)

cluster: $(READY) ## every golden case and hundreds of random queries on Spark, and its kills
	$(BIN)/python -m pytest -m cluster -o faulthandler_timeout=1500 tests/feeder $(ARGS)

SEEDS := 0-199

faults: $(READY) ## worlds of faults by seed, the whole server in each; others: SEEDS=0-9999
	@$(BIN)/python -m tests.world $(SEEDS) $(ARGS)

rooms: $(READY) ## who imports whom inside each folder: files, lines of code, imports up, circles
	@$(BIN)/python -m tests.support.rooms --write docs/rooms $(ARGS)

soak: $(READY) ## a daemon under load for as long as SOAK_SECONDS says
	$(BIN)/python -m pytest -m soak -o faulthandler_timeout=0 tests/soak tests/integration/test_history.py $(ARGS)

PART = 55m
experiments: $(READY) ## run every experiment at full scale, an hour at a time: again goes on; quicker: ARGS='--scale reduced'
	@timeout --signal=INT --kill-after=60 $(PART) $(BIN)/millstream experiment run --all --scale full $(ARGS) || \
		{ [ $$? -eq 124 ] && echo "$(PART) are over: what is done is kept, make experiments goes on" && exit 1; }

pins: ## compute requirements/*.txt anew from requirements/*.in and pyproject.toml
	@.ci/setup pins

kills: $(READY) ## end connectors, daemon, database and brokers by SIGKILL again and again under load; others: KILLS=100
	KILLS=$${KILLS:-20} $(BIN)/python -m pytest tests/edges/test_kills.py tests/edges/test_kills_of_brokers.py $(ARGS)

edges: $(READY) ## how fast sources and sinks are beside the libraries of their other sides; one: ARGS=redis
	@$(BIN)/python -m tests.edges.throughput $(ARGS)

peers: $(READY) ## NEXMark here and on Flink, over the same files: FLINK=path/of/a/python/with/apache-flink; fewer: ARGS='q0 q5'
	@$(BIN)/python -m tests.peers.nexmark $(if $(FLINK),--flink $(FLINK)) $(ARGS)

services: ## install the other software that some tests talk to (Debian, as root or with sudo)
	@.ci/services

# Node 18 or later and npm, which only this needs. Without it the wheel and a clone have everything but the console.
console: ## bundle the console's page (needs Node and npm)
	@command -v npm >/dev/null || { echo "make console needs Node 18 or later with npm (Debian: apt-get install nodejs npm)" >&2; exit 1; }
	@echo "console: 1 of 2: installing the packages of the page with npm (the first time about a minute)"
	@cd client/console/web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@echo "console: 2 of 2: bundling the page (some seconds)"
	@cd client/console/web && node build.mjs

wheel: $(READY) console ## the wheel in dist, with the console's page
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove what the targets made, save .venv
	rm -rf build dist client/console/bundle client/console/web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
