# `make demo` and `make test` do everything on a machine with Python, pip, git and make; both are quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .cache/transformers-5.17.0
# One process a core, each with one thread: the tests are many and small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

.PHONY: demo test lint types unit oldest clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: lint types unit oldest

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.developer
	$(BIN)/mypy

unit: $(VENV)/.developer
	$(PYTEST)

# The parity tests again, against the oldest transformers that is supported, kept beside the environment's own.
oldest: $(VENV)/.developer $(OLDEST)/.installed
	PYTHONPATH=$(OLDEST) $(PYTEST) tests/parity

$(VENV)/.installed: pyproject.toml
	@echo "Installing Foveate, PyTorch and the rest into $(VENV): about 6 GB and some minutes the first time."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.developer: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[eval]' hypothesis mypy pytest pytest-xdist ruff
	touch $@

$(OLDEST)/.installed: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --target $(OLDEST) --upgrade transformers==5.17.0
	touch $@

clean:
	rm -rf $(VENV) .cache build dist
