# make demo: set everything up and take a tour of real data
# make check: style and quick tests, to run between edits
# make test: set everything up and run the tests required for a merge
# make docs: build the documentation site in build/site
# make test-build: build the kernels and the package, and check what a release needs
# make test-all: every test, including redundant combinations
# make test-peers: fetch Iceberg, Delta Lake, arrow-rs and others, and run their tests
# make test-servers: build MinIO, Vault and others, and run the tests of stores and KMS with them;
#             some of it with make test-servers NAMES="minio"
# make soak: try at random, for a long time, what must never happen
# make coverage: which branches of the core its tests execute
# make mutation: put small faults into the core, which the tests must notice
# make environments: try the oldest and the newest versions of Python and of packages, and each extra
#             in bare environments; some of it with make environments NAMES="oldest aws"
# make release: check and build a release, and publish nothing
# make bench: measure the speed against pyarrow, Arrow C++, parquet-java and Spark;
#             some of it with make bench NAMES="write lookup" BENCH_ARGS="--rounds 7"

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The tests begin with those that took longest: see tests/tiers.py. One process more than there are
# cores: they also wait, for the disk and for Spark.
PYTEST_ARGS ?= -n 3 --dist loadgroup --no-loadscope-reorder

# Without bytecode files, each process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test test-build test-all test-sweep test-peers test-servers durations soak coverage mutation environments bench lint setup tools check-tools vectors clean

help:  ## show this help
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# It installs less than `setup`, unless that was done before.
demo: $(if $(wildcard $(VENV)/.ready),setup,$(VENV)/.demo)  ## take a tour of real data: Python, DuckDB, Spark; also as demo-output/tour.html
	$(BIN)/secure-bloom demo --html demo-output/tour.html

.PHONY: docs
docs: setup  ## build the documentation site in build/site; any warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --write-all \
	  --conf-dir docs --doctree-dir build/doctrees . build/site

check: setup lint  ## check style and run the quick tests: no Spark, no other Parquet library
	$(BIN)/pytest --tier check $(PYTEST_ARGS)

test: setup tools check-tools lint  ## run the tests required for a merge
	$(BIN)/pytest --tier test $(PYTEST_ARGS)

test-build: setup tools  ## build the kernels and the package, and check what a release needs
	$(BIN)/pytest --tier all -m "build and not soak" $(PYTEST_ARGS)

durations: setup tools check-tools  ## run the tests of `make test`, and write how long they took
	$(BIN)/pytest --tier test --record-durations $(PYTEST_ARGS)

test-all: setup tools check-tools lint  ## run every test
	$(BIN)/pytest --tier all -m "not fetched and not server" $(PYTEST_ARGS)
	$(MAKE) test-peers
	$(MAKE) test-servers

test-sweep: setup tools check-tools  ## run the tests that only CI runs, after `make test`
	$(BIN)/pytest --tier all -m "sweep and not build" $(PYTEST_ARGS)

PEERS := build/peers

test-peers: setup tools check-tools $(PEERS)/.ready  ## fetch peers with Maven and Cargo, and run their tests
	$(BIN)/pytest --tier all -m fetched --ignore tests/lakehouse $(PYTEST_ARGS)
	$(PEERS)/bin/python -m pytest tests/lakehouse --tier all

# Iceberg and Delta have no release for the newest Spark.
$(PEERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	grep -v '^pyspark=' constraints.txt > $(PEERS)/constraints.txt
	PIP_CONSTRAINT=$(PEERS)/constraints.txt $(PEERS)/bin/python -m pip install --quiet \
	  --editable '.[spark]' 'pyspark[connect]==4.1.*' pytest pytest-xdist hypothesis deltalake \
	  'pyiceberg[sql-sqlite]' duckdb
	@touch $@

test-servers: setup tools check-tools  ## build servers with Go and npm, and run tests with them
	$(BIN)/python -m tests.servers $(NAMES)

soak: setup  ## try at random what must never happen, for SECONDS=600
	$(BIN)/python -m tests.soak --seconds $(or $(SECONDS),600) --docs $(SOAK_ARGS)

COVERAGE := build/coverage
COVERED := $(addprefix tests/,crypto sbbf parquet storage index kernels arrow pruning erasing \
	datasets maintain verify auditing keys cli mutation reading reencryption lakehouse \
	test_writer.py test_reader.py test_page_indexes.py test_exchanged_files.py \
	test_reader_missing_keys.py test_tampering.py test_encryption_requirement.py)

coverage: setup tools  ## measure which branches of the core the tests execute
	rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	COVERAGE_FOLDER=$(abspath $(COVERAGE)) $(BIN)/coverage run -m pytest -p tests.recording \
	  $(PYTEST_ARGS) $(COVERED)
	$(BIN)/coverage combine --quiet
	rm -f $(COVERAGE)/.coverage.*  # cut off when tests killed a process
	$(BIN)/coverage json --quiet --fail-under=0 -o $(COVERAGE)/coverage.json
	$(BIN)/python -m tests.recording $(COVERAGE)/coverage.json
	$(BIN)/coverage report --skip-covered --show-missing

mutation: setup $(COVERAGE)/.coverage  ## put faults into the core for SECONDS=600
	$(BIN)/python -m tests.mutation --seconds $(or $(SECONDS),600) --docs $(MUTATION_ARGS)

$(COVERAGE)/.coverage:
	$(MAKE) coverage

environments:  ## try the oldest and the newest versions of Python and packages, and each extra
	$(PYTHON) -m tests.environments --docs $(NAMES)

bench: setup check-tools  ## measure the speed and update docs/performance.md
	$(BIN)/python -m pip install --quiet 'matplotlib>=3.8'
	$(BIN)/python -m benchmarks $(NAMES) --docs --json build/benchmarks.json $(BENCH_ARGS)

lint: setup  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2

setup: $(VENV)/.ready $(VENV)/.kernels  ## create the virtual environment

KERNEL_SOURCES := $(wildcard build_kernels/*.py secure_bloom/kernels/*.py) \
	secure_bloom/parquet/footer_kernels.py secure_bloom/parquet/thrift/protocol.py

# Compiled kernels are not used after a change of their sources, until they are compiled again.
$(VENV)/.kernels: $(VENV)/.ready $(KERNEL_SOURCES)
	$(BIN)/python -m build_kernels
	@touch $@

$(VENV)/.ready: pyproject.toml setup.py | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[all,test]'
	@touch $@

$(VENV)/.demo: pyproject.toml setup.py | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[spark]' --group demo
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "secure_bloom needs Python 3.11 or newer; specify one: make PYTHON=python3.12 ..." >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

tools:
	@.ci/tools

check-tools:
	@missing=; \
	command -v java >/dev/null || missing="$$missing java"; \
	command -v javac >/dev/null || missing="$$missing javac"; \
	command -v g++ >/dev/null || missing="$$missing g++"; \
	[ -z "$$missing" ] || { echo "the tests compare with parquet-java and Arrow C++; missing:$$missing" >&2; \
	  echo "on Debian or Ubuntu: apt-get install openjdk-17-jdk-headless g++" >&2; exit 1; }

vectors: setup check-tools  ## rebuild the test vectors
	$(BIN)/python -m vectors.builder
	$(BIN)/python -m vectors.builder.indexes

.PHONY: release constraints

release: setup  ## check and build a release, without publishing it; SKIP="tests docs"
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/python -m release --skip $(SKIP)

constraints: setup  ## write the newest versions of all packages to constraints.txt
	$(BIN)/python -m release.constraints

clean:  ## remove the output of make and of the tests
	rm -rf $(VENV) build dist secure_bloom/kernels/built *.egg-info demo-output .pytest_cache .ruff_cache .mypy_cache .hypothesis
