# `make bench` runs the main job, `make check` what a change needs while you work on it, `make test` everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: bench check test lint types fast format clean

bench: $(VENV)/.installed
	$(BIN)/dsv4bench run smoke

check: $(VENV)/.installed
	$(MAKE) --jobs --output-sync --no-print-directory lint types fast

test: $(VENV)/.installed lint types
	$(PYTEST) -m "not slow" --cov --cov-report=

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

# What needs neither an engine of ranks nor seconds for a file of tests; about two minutes of processor time.
fast: $(VENV)/.installed
	$(PYTEST) -q -n auto -m "not medium and not slow" tests/repository tests/unit tests/cases

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
