# Everything a person needs: demo, test, check, bench. Each sets up what is missing; a second run takes seconds.

SHELL := /bin/sh
.DEFAULT_GOAL := help
BIN := .venv/bin

.PHONY: help setup demo test check bench lock format

help:
	@echo 'make demo    run one real session end to end, with a live image pull'
	@echo 'make test    the whole test suite, on real Docker, Postgres and Temporal'
	@echo 'make check   format, lint, types, import contracts'
	@echo 'make bench   the benchmark, with its peers in the same run'
	@echo 'make lock    pin the dependencies anew, with hashes'

setup: .venv/.ready

.venv/.ready: requirements.lock pyproject.toml scripts/venv.sh
	@sh scripts/venv.sh

demo: setup
	@KEEP="$(KEEP)" $(BIN)/python -m scripts.demo

test: setup
	@$(BIN)/python -m scripts.programs --for test
	$(BIN)/pytest $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pyright

bench: setup
	@$(BIN)/python -m scripts.programs --for test
	$(BIN)/python -m bench

format: setup
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links

lock: setup
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file requirements.server.lock pyproject.toml
