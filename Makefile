# Everything a newcomer needs: `make run` and `make test` set up what they use.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Our folders stand in the root, and one is called like a well-known package.
export PYTHONSAFEPATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check bench instructions test-tflite-runtime clean help

help:
	@echo "make run      a whole fleet on this machine, from nothing: one real run over MQTT, with its result"
	@echo "make test     run all tests"
	@echo "make check    style, types and packaging"
	@echo "make bench    compare with bare loops and other harnesses: 15 minutes"
	@echo "make instructions  count those of the timed path, beside another commit's (BASE=...)"

# A run that is measured but suspect (a busy machine) ends with status 1: it did its job.
run: $(VENV)/.runs
	@$(BIN)/edgeperf demo || [ $$? -eq 1 ]

# What does not measure runs on two cores at once; whole runs have the machine to themselves.
test: $(VENV)/.tests
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile
	$(BIN)/pytest -m slow

check: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Some 13 minutes on two cores, a quarter of an hour at most. Stopped in between, it goes on where it was.
bench: $(VENV)/.tests
	@mkdir -p edgeperf-results
	PYTHONPATH=tests $(BIN)/python -m benchmarks --json edgeperf-results/benchmarks.json \
	  --document docs/performance.md
	PYTHONPATH=tests $(BIN)/python -m benchmarks.recorder_cost

# Instructions of the timed path, here and in the commit BASE: the gate that a busy machine
# does not disturb. Needs valgrind.
BASE ?= origin/main
instructions: $(VENV)/.tests
	PYTHONPATH=tests $(BIN)/python -m benchmarks.instructions --against $(BASE)

# tflite-runtime needs numpy 1 and Python 3.11 at most, so it has an environment of its own.
test-tflite-runtime: .venv-tflite-runtime/.tests
	.venv-tflite-runtime/bin/pytest tests/test_backends_tflite.py tests/test_tflite_runtime.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "edgeperf needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1); say make PYTHON=python3.x" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[tflite,onnxruntime,coordinator,broker]'
	@touch $@

$(VENV)/.tests: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.runs

.venv-tflite-runtime/.tests: pyproject.toml
	$(PYTHON) -m venv .venv-tflite-runtime
	.venv-tflite-runtime/bin/pip install --quiet --editable '.[tflite-runtime,test]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-tflite-runtime .venv-ansible build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
