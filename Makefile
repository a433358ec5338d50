# `make run` and `make test` need Python 3.11 or newer, pip and make; everything else is installed
# into .venv, once.
#
#   make run   ARGS="--port 9000"     serve on 127.0.0.1:8000, or as ARGS says
#   make test  ARGS="-k stream"       the whole test suite, or what ARGS selects
#   make PYTHON=/path/to/python3.12 run

.DEFAULT_GOAL := help
.PHONY: help run test lint format types docs wheels bench clean
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first of these that is new enough is used.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11 python
ARGS ?=

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := setup.cfg pyproject.toml requirements.txt $(wildcard backends/*/setup.cfg)
RUN_READY := .venv/.run-ready
DEV_READY := .venv/.dev-ready

help:
	@echo "make run      serve on 127.0.0.1:8000   (ARGS=\"--port 9000\")"
	@echo "make test     run every test            (ARGS=\"-k stream\")"
	@echo "make lint     ruff and the import layers"
	@echo "make format   let ruff lay the code out"
	@echo "make types    mypy"
	@echo "make docs     build the manual into docs/_build/html"
	@echo "make wheels   build every package into dist/ and try them in a clean environment"
	@echo "make bench    measure starts, speed and memory (several minutes), and how soon a client is missed"
	@echo "make clean    remove what the other targets made"

run: $(RUN_READY)
	@exec $(BIN)/caesar-server serve $(ARGS)

test: $(DEV_READY)
	@$(BIN)/python -m pytest $(ARGS)

lint: $(DEV_READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

format: $(DEV_READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(DEV_READY)
	@$(BIN)/mypy

docs: $(DEV_READY)
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Each wheel is built from its sdist, so both are known to be whole.
wheels: $(DEV_READY)
	@rm -rf dist build backends/*/build
	@for package in . $(wildcard backends/*/); do \
		$(BIN)/python -m build --outdir dist $$package >build.log 2>&1 || { cat build.log; exit 1; }; \
	done; rm -f build.log; ls dist
	@$(BIN)/python -m pytest tests/release --dist-dir dist

bench: $(DEV_READY)
	@$(BIN)/python benchmarks/import_time.py
	@$(BIN)/python benchmarks/first_answer.py
	@$(BIN)/python benchmarks/client_gone.py
	@$(BIN)/python benchmarks/many_backends.py
	@$(BIN)/python benchmarks/observing_cost.py
	@$(BIN)/python benchmarks/http_speed.py
	@$(BIN)/python benchmarks/paced_streams.py
	@$(BIN)/python benchmarks/memory.py

clean:
	rm -rf .venv build dist docs/_build docs/_generated tests/clients/node/node_modules
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +

# Debian's Python has no ensurepip unless python3-venv is installed; its pip can stand in.
$(BIN)/python:
	@for python in $(PYTHON); do \
		$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11 or newer is needed; looked for: $(PYTHON)." >&2; \
		for python in $(PYTHON); do \
			echo "  $$python: $$($$python --version 2>/dev/null || echo "does not run")" >&2; \
		done; \
		echo "Name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; \
		exit 1; \
	fi; \
	echo "Making .venv with $$($$python --version)" && \
	{ $$python -m venv .venv >/dev/null 2>&1 || { \
		$$python -m venv --clear --without-pip .venv && \
		$$python -m pip --python .venv/bin/python install --quiet pip; }; }

$(RUN_READY): $(PACKAGES) | $(BIN)/python
	@echo "Installing the server (once)"
	@$(PIP_INSTALL) -r requirements.txt
	@touch $@

$(DEV_READY): requirements-dev.txt $(PACKAGES) | $(BIN)/python
	@echo "Installing the server and the test tools (once)"
	@$(PIP_INSTALL) -r requirements-dev.txt
	@touch $(RUN_READY) $@
