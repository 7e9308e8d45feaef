# `make bench` runs the main job, `make check` what a change needs while you work on it, `make test` everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests that start no ranks: as many at once as there are cores. The others take the cores for themselves, two files at a
# time, for one core idles while an engine starts. `pytest -m slow` runs what is left out.
IN_PROCESS := tests/repository tests/unit tests/cases tests/golden tests/properties

.PHONY: bench check test lint types fast format clean

bench: $(VENV)/.installed
	$(BIN)/dsv4bench run smoke

check: $(VENV)/.installed
	$(MAKE) --jobs --output-sync --no-print-directory lint types fast

test: $(VENV)/.installed lint types
	$(PYTEST) -q -n auto -m "not slow" --cov --cov-report= $(IN_PROCESS)
	$(PYTEST) -n 2 --dist loadfile -m "not slow" tests/oracle tests/integration tests/serving

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
