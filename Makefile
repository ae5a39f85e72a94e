# Two commands do everything on a machine that has only Python and Node: make check, make test.
# uv is used from the path, or else installed by pip into .tools/uv of this folder.

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null || echo .tools/uv/bin/uv)
RUN := .venv/bin/

.PHONY: help setup check test lint full bench field prover docs clean

help:
	@echo "make check   set up, then judge the reference server offline"
	@echo "make test    set up, then lint, type-check and run every test"
	@echo "make bench   measure the judge and the reference server side by side"
	@echo "make full    what is too long for every change: all counterfeits and the whole law, both clients and every server"
	@echo "make docs    write the generated documents anew"

setup: .venv/.quenchz-ready

.tools/uv/bin/uv:
	@echo "Installing uv into .tools/uv"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .tools/uv uv

.venv/.quenchz-ready: pyproject.toml uv.lock | $(UV)
	@echo "Setting up .venv from uv.lock"
	@$(UV) sync --frozen --all-extras --quiet
	@touch $@

check: setup
	$(RUN)quenchz check --reference

lint: setup
	$(RUN)ruff check .
	$(RUN)ruff format --check .
	$(RUN)mypy
	$(RUN)pyright
	$(RUN)lint-imports --config pyproject.toml

field: setup
	$(RUN)python tests/field/fastmcp/environment.py
	$(RUN)python tests/field/oidc_provider/environment.py

# The second client: install from its lock file, check, build, unit tests, then prove the Python server on both wires.
prover: setup
	cd clients/typescript && npm ci --no-fund --no-audit && npm run typecheck && npm run lint && npm run build && npm test
	cd clients/typescript && QUENCHZ_PYTHON=$(CURDIR)/.venv/bin/python npm run test:server

test: lint field prover
	$(RUN)python -m pytest -n 4 --dist worksteal

full: test
	$(RUN)python tests/full_matrix.py
	$(RUN)python tests/all_agree.py

bench: setup
	$(RUN)python bench/run.py --json bench/result.json

docs: setup
	$(RUN)python tests/documents.py --write

clean:
	rm -rf .venv .tools dist .hypothesis .mypy_cache .ruff_cache .pytest_cache
