# Everything a person or CI needs, on a bare machine with Python 3.11, pip and make.
#
#   make run     set up and start the chat
#   make test    set up, lint, all tests
#
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run test lint fix setup soak bench clean

run: setup
	@$(BIN)/hermes chat

test: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: setup
	$(BIN)/python -m pytest -m slow --timeout 1800 tests

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt 'pip>=25.1'
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable . --group dev
	$(BIN)/python -m compileall -q src
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
