# Everything a newcomer needs: `make demo` and `make test` set up what they use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo check test contracts slow pages mutants results torture docs slowdown audit bench-peers hashes licences clean

# As a user has it: the newest versions of what covey needs, and no others.
demo:
	test -x .venv-demo/bin/python || $(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install --quiet .
	.venv-demo/bin/covey run --with-baseline

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev,docs]'
	touch .venv/ready

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/deptry src
	$(BIN)/codespell README.md docs src tests examples benchmarks

# Two processes, and no more threads in each than it asks for itself; whatever the environment
# says, what is compiled is kept for the next process. COVERAGE=1 measures
# what they run through, at half as much time again; SHAPES=1 checks the shape of every
# array at every call.
comma := ,
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal \
	$(if $(COVERAGE),--cov --cov-report=term) \
	$(if $(SHAPES),--jaxtyping-packages=covey$(comma)covey_desk$(comma)covey_flower$(comma)covey_papers$(comma)covey_ray$(comma)covey_trackers$(comma)beartype.beartype)

# What everybody runs, in minutes.
test: setup
	$(PYTEST) -m "not slow"

# Every law again, with many more examples, and the shape and type of every argument checked;
# then what is worked by hand or promised by all components of a kind.
contracts: SHAPES = 1
contracts: setup
	$(PYTEST) -m "hypothesis and not slow" --hypothesis-profile=thorough
	$(PYTEST) -m "not hypothesis and not slow" -k "by_hand or contract"
	$(OTHER_KERNELS) $(PYTEST) -m "not slow" tests/ridge

# As on a processor with other instructions: nothing that a test asserts may depend on them.
OTHER_KERNELS := MKL_CBWR=COMPATIBLE MKL_ENABLE_INSTRUCTIONS=SSE4_2 ATEN_CPU_CAPABILITY=default

# Whole experiments, federations of real processes, and a kill at every step.
slow: setup
	$(PYTEST) -m "slow and not torture and not results and not pages" --hypothesis-profile=thorough

# Every block of every page; `.ci/wheel` plays them with what the wheel installs.
pages: setup
	$(PYTEST) -m pages

# Whether the default suite notices each fault of tests/mutants.toml, put into a copy of the
# tree. NAMES="..." plays some.
mutants: setup
	$(BIN)/python tests/mutants.py $(NAMES)

# What the published examples promise, each at its full size: before a release.
results: setup
	$(PYTEST) -m results

# Violence, as often as docs/guides/scaling.md says.
torture: setup
	$(PYTEST) -m torture -s

# The site, from nothing and without the network: open build/site/index.html. VERSION=0.3 builds
# build/site/0.3 beside the versions that are there, and the page build/site/versions.html.
SITE := build/site$(if $(VERSION),/$(VERSION))
NUMBER := $(shell echo '$(VERSION)' | grep -xE '[0-9]+(\.[0-9]+)*')

docs: setup
	$(if $(VERSION),$(if $(NUMBER),,$(error VERSION must be a number such as 0.3, found $(VERSION))))
	rm -rf $(SITE)
	PYTHONPATH=docs $(BIN)/python -m covey_site assemble build/site-source
	COVEY_DOCS_VERSION=$(VERSION) $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs build/site-source $(SITE)
	$(if $(VERSION),PYTHONPATH=docs $(BIN)/python -m covey_site versions build/site)
	PYTHONPATH=docs $(BIN)/python -m covey_site check build/site

# What a page that is open costs a run, in processor time.
slowdown: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.slowdown

# Known vulnerabilities of the pinned versions: needs the network, and an environment of its own.
audit:
	test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit \
		&& .venv-audit/bin/python -m pip install --quiet pip-audit; } || true
	$(PYTHON) tests/supply/vulnerabilities.py .venv-audit/bin/pip-audit

# Other simulators, for the rows of `python -m benchmarks speed` that compare with them: needs
# the network, and an environment of its own.
PEERS := torch==2.13.0 'pfl[pytorch]==0.6.0' 'flwr[simulation]==1.41.0' 'opacus==1.6.0'

bench-peers:
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet $(PEERS)

hashes: setup
	{ head -n 2 constraints.hashes.txt; $(BIN)/uv pip compile constraints.txt --quiet --no-deps --generate-hashes \
		--no-header --no-annotate --python-version 3.11 --no-emit-package torch; } > constraints.hashes.new
	mv constraints.hashes.new constraints.hashes.txt

licences: setup
	PYTHONPATH=tests $(BIN)/python -m supply.licences > LICENCES.md

clean:
	rm -rf .venv .venv-audit .venv-demo .venv-peers
