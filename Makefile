# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
.DEFAULT_GOAL := help

.venv/ready: pyproject.toml constraints.txt tools/setup.sh
	@tools/setup.sh

.PHONY: help setup demo test check format bench docs golden clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/ready ## make the virtual environment ready

demo: .venv/ready ## show the product at work on this machine
	@$(PY) -m dranet demo

test: .venv/ready ## run the tests of the host tier
	@$(PY) -m pytest -q -n 2 --dist loadgroup

check: .venv/ready ## lint, types, import contracts, generated files
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) -m tools.docs --check

format: .venv/ready ## format the code
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

docs: .venv/ready ## write the generated reference pages
	@$(PY) -m tools.docs

bench: .venv/ready ## measure, side by side with the tools people know; prints JSON
	@$(PY) -m bench

golden: .venv/ready ## compare with recorded answers of the real scheduler: make golden FILE=path
	@$(PY) -m dranet golden $(FILE)

clean: ## remove what the targets made inside the tree
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
