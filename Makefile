# Two commands set everything up on a fresh machine:
#   make demo   the main job on an embedded default
#   make test   every test, on a clean clone
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test check lint types contracts spelling install tools clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@# torch first and pinned: a looser request may pull several GB of CUDA packages that a laptop does not need
	$(BIN)/pip install --quiet --disable-pip-version-check torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/tensorldm demo --out demo-output

tools:
	@.ci/install-tools

test: $(STAMP) tools
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope

check: lint types contracts spelling

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

spelling: $(STAMP)
	$(BIN)/codespell

clean:
	rm -rf $(VENV) demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
