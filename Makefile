# Two commands matter: `make demo` and `make test`. Each sets up .venv by itself and is quick when run again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
INSTALLED := $(VENV)/.installed
# Modules are compiled when they are first imported, not all of them now: that saves a minute.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
EXTRAS := test,files,pepit,torch,flower,docs

# Containers often forbid compiled modules to be kept: every process that a test starts would compile torch again.
export PYTHONDONTWRITEBYTECODE :=
# Small products are slower on many threads, and the tests already use every core.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
# Flower reports its use unless told not to.
export FLWR_TELEMETRY_ENABLED ?= 0

.PHONY: demo test test-fast lint style install benchmarks mutate torture docs clean

demo: $(CORE)
	$(BIN)/ownstep demo

# mypy is one of the tests (tests/test_package.py), so that it shares the cores with the others.
test: style
	$(BIN)/pytest -n auto --dist loadgroup

# What to run while writing: everything but the tests marked slow (tests/conftest.py lists them by file).
test-fast: $(INSTALLED)
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

lint: style
	$(BIN)/mypy

style: $(INSTALLED)
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools

install: $(INSTALLED)

benchmarks: $(INSTALLED)
	for name in mix plateau pep tune network cluster federation; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/estimators.py
	$(BIN)/python benchmarks/pep_networks.py --part time --longest 10 --out $$(mktemp -d)
	for name in cores scale; do echo "== $$name"; env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS $(BIN)/python benchmarks/$$name.py || exit 1; done

# How many planted mistakes do the tests notice? Goes of half an hour, until results/mutation.json is complete.
mutate: $(INSTALLED)
	$(BIN)/python tools/mutate.py

# Random faults on every engine, for up to 45 minutes; what was kept and what was broken goes to results/torture.json.
torture: $(INSTALLED)
	$(BIN)/python -m tests.torture

# The site goes to site/; open site/index.html, or `mkdocs serve` while writing.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The demo needs the library alone; the tests also torch, PEPit and Flower, installed at once with it.
$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ownstep needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) -e .
	touch $@

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/pip
	$(PIP) -e '.[$(EXTRAS)]'
	touch $(CORE) $@

clean:
	rm -rf $(VENV) site ownstep-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
