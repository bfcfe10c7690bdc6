# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo check test slow clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch .venv/ready

demo: setup
	$(BIN)/covey run --with-baseline

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell README.md docs src tests examples

# Two processes, and no more threads in each than it asks for itself; COVERAGE=1 measures
# what they run through, at half as much time again.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow" $(if $(COVERAGE),--cov --cov-report=term)

slow: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m slow

clean:
	rm -rf .venv
