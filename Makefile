# Everything a person or CI needs, on a bare machine with Python 3.11, pip and make.
#
#   make run     set up, fetch the embedded model, start the chat
#   make test    set up, lint, all tests
#   make clients the matrix of client libraries
#
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
SAMPLE := What is the capital of France?

.PHONY: run test lint fix setup dev services clients clients-browser soak bench fresh clean

run: setup
	@$(BIN)/hermes setup --non-interactive
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/hermes chat; \
	 else echo "You: $(SAMPLE)"; $(BIN)/hermes chat -Q -q "$(SAMPLE)"; fi

test: dev services lint
	$(BIN)/python -m pytest -n 3 --dist loadgroup

lint: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: dev services
	EXPLORE=1 $(BIN)/python -m pytest -m 'slow or not slow' --timeout 1800 tests

# Published client libraries against a gateway; they live in environments of their own.
clients: dev services
	@scripts/test-clients.sh
	$(BIN)/python -m pytest -m clients -s --timeout 600 tests/clients

# The same with Open WebUI in a browser.
clients-browser: dev services
	@scripts/test-clients.sh browser
	$(BIN)/python -m pytest -m clients -s --timeout 900 tests/clients

bench: dev
	$(BIN)/python -m bench

fresh:
	scripts/fresh-clone.sh

services:
	@scripts/test-services.sh

setup: $(VENV)/.installed

dev: $(VENV)/.dev

# Debian ships venv without pip unless python3-venv is installed; pip can fill it from outside.
$(BIN)/python:
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV); }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --quiet --python $(BIN)/python install pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing Hermes ..."
	@$(PIP) install -c constraints.txt --editable '.[local,discord,mcp,slack]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "Installing what the tests need ..."
	@$(PIP) install -c constraints.txt 'pip>=25.1'
	@$(PIP) install -c constraints.txt --group dev
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
