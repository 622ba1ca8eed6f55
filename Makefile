# Two commands set everything up on a fresh machine:
#   make demo   the main job on an embedded default
#   make test   every test, on a clean clone
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test check lint types contracts spelling install tools sbom audit fuzz clean

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

# What stands behind this package, as CycloneDX: build/sbom.json
sbom: $(STAMP)
	$(BIN)/python tools/sbom.py --out build/sbom.json

# Known weaknesses of the pinned versions. Needs the internet: --strict fails where a package could not be looked up.
audit: $(STAMP)
	$(BIN)/pip check
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# Look for new ways to break the readers: FUZZ_EXAMPLES each, and FUZZ_SECONDS of guided search
FUZZ_EXAMPLES ?= 1000
FUZZ_SECONDS ?= 60
fuzz: $(STAMP)
	-$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt 'atheris>=3'
	TENSORLDM_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) TENSORLDM_FUZZ_SECONDS=$(FUZZ_SECONDS) OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/fuzz --hypothesis-profile=search

clean:
	rm -rf $(VENV) demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
