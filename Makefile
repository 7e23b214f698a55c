# Two commands are the whole set-up, on a machine with Python 3.11 or newer, a C compiler and the package registries:
#
#   make run     one node in the foreground, its data under ./data
#   make test    everything that is tested, and all that it needs
#
# `make help` lists the rest.  Set-up is done once: the stamps are newer than what they were made from.

PORT ?= 7711
DATA ?= data
# How many processes run tests at once.
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)

# What `make run` starts: the compiled core, or with BUILD=source the core as it stands here.
BUILD ?= compiled
ifeq ($(filter compiled source,$(BUILD)),)
$(error BUILD is $(BUILD); allowed are compiled and source)
endif

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint requirements/constraints.txt
# As users build, apart from .venv, but with the locked versions: pip before 25.3 reads the first variable, later ones the
# second.
WHEEL := PIP_CONSTRAINT='$(CURDIR)/requirements/constraints.txt' PIP_BUILD_CONSTRAINT='$(CURDIR)/requirements/constraints.txt' \
	$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# Who tests whole nodes waits for them a third of the time: one more than there are processors keeps these busy.
PYTEST_NODES := $(BIN)/python -m pytest --numprocesses $(shell expr $(WORKERS) + 1) --dist worksteal
# Each process that tests with Spark has one of its own, which takes a while to become quick: few processes are enough.
PYTEST_SPARK := $(BIN)/python -m pytest --numprocesses $(shell expr \( $(WORKERS) + 3 \) / 4) --dist worksteal
SPHINX := $(BIN)/python -m sphinx -b html -q -W --keep-going
COMPILED := build/compiled
PACKAGES := setup.cfg pyproject.toml requirements/constraints.txt
CLIENTS := tests/integration/node
HOUSE := build/wheelhouse
OLDER := build/redis-py
FAST := tests/unit tests/property
# What starts programs and reaches into no module of the core (tests/conftest.py sees to that).
PROGRAMS := integration packaging pipeline
# The tests start hundreds of processes, and each would compile all modules for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test test-source compiled check bench bench-growth bench-load bench-spark torture audit kills mutants spark-cluster fuzz docs lock pictures site news clean

help:
	@echo 'make run     start one node in the foreground (PORT=7711 DATA=data; BUILD=source: the core not compiled)'
	@echo 'make test    run every test and every check, with all that they need'
	@echo 'make test-source  run every test on the core as it stands here, not compiled'
	@echo 'make compiled  compile the core into build/compiled, which DISQUED_BUILD=compiled lets tests and benchmarks use'
	@echo 'make check   the fast part: ruff, mypy, import contracts, unit and property tests'
	@echo 'make bench   measure this machine against redis-server'
	@echo 'make bench-growth measure what becomes of a node with more jobs, queues, connections, bytes and nodes; with plots'
	@echo 'make bench-load measure what other clients feel of those who burden a node: idle, deaf, slow, large, and a soak'
	@echo 'make bench-spark measure the data pipeline against the plain client, Spark SQL written by hand, and DuckDB'
	@echo 'make torture kill daemons for MINUTES=10, and look for what they lost; CLUSTER=3: nodes of a cluster fail,'
	@echo '             CUT=1: and the network between them is cut (as root); HOURS=2000: simulated clusters on all cores'
	@echo '             (PROFILES="retries results": stories of these kinds alone)'
	@echo 'make audit   plant faults into EVENTS=1000000 events of simulated clusters, and look whether an audit finds them'
	@echo 'make kills   kill drivers, executors and nodes while streams of Spark run (KILLS=30 MINUTES=60'
	@echo '             STREAM=source|sink for one alone; STANDIN=1: with a stand-in for Spark, many kills in a short time)'
	@echo 'make mutants plant mistakes into the sources for MINUTES=10 and print those that no test notices (PATHS=disqued/core'
	@echo '             COUNT=300 SEED=1; DIFF=main: in the lines that differ from there)'
	@echo 'make spark-cluster  submit a program to a master and two workers, with the package shipped and installed'
	@echo 'make fuzz    search for MINUTES=10 for inputs that do harm to RESP, bus, journal or HTTP, guided by coverage; then'
	@echo '             try other random examples than the property tests do, twenty times as many'
	@echo 'make docs    write disqued.conf and the reference pages anew from the code'
	@echo 'make pictures take the pictures of the admin page that the documentation shows'
	@echo 'make lock    write requirements/locked.txt and locked-build.txt anew, with the hashes of the versions in constraints.txt'
	@echo 'make site    write the documentation as a site into build/site; a link that leads nowhere is an error'
	@echo 'make news    show the news fragments as the next release will tell them'
	@echo 'make clean   remove what these commands made, but for $(DATA)/'

# ---- the two commands

run: .venv/.run-stamp $(if $(filter compiled,$(BUILD)),$(COMPILED)/.stamp)
	@mkdir -p '$(DATA)'
	@echo 'disqued listens on 127.0.0.1:$(PORT) and keeps its data in $(DATA)/; Ctrl-C stops it.'
	@echo 'The admin page is at http://127.0.0.1:7780/'
	@echo 'In another terminal, with any Redis client:'
	@echo '  redis-cli -p $(PORT) ADDJOB mail "to: ann" 0'
	@echo '  redis-cli -p $(PORT) GETJOB FROM mail'
	@echo '  redis-cli -p $(PORT) ACKJOB <the id that GETJOB gave>'
	@$(if $(filter compiled,$(BUILD)),PYTHONPATH='$(CURDIR)/$(COMPILED)') exec $(BIN)/disqued --port '$(PORT)' --dir '$(DATA)'

# Branch coverage of the core by its unit tests is part of the run, and so of its exit status.  The rest runs without a
# tracer, which makes simulated hours three times as long.
#
# The unit tests run on both builds, and what starts whole nodes on the compiled one, which is what people run.  What
# needs Spark runs beside the rest.  The site is built by a test, as `make site` builds it.
TESTED := .venv/.test-stamp .venv/.programs-stamp $(CLIENTS)/node_modules/.package-lock.json $(HOUSE)/.stamp $(OLDER)/.stamp
test: $(TESTED)
	@$(MAKE) --no-print-directory --jobs 2 test-core compiled
	@$(MAKE) --no-print-directory --jobs 2 test-nodes test-spark

.PHONY: test-core
test-core: $(TESTED) lint
	$(PYTEST) tests/unit --cov=disqued.core --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=95
	$(PYTEST) tests --ignore=tests/unit $(PROGRAMS:%=--ignore=tests/%) -m reference

.PHONY: test-nodes test-spark
test-nodes: $(TESTED) $(COMPILED)/.stamp
	DISQUED_BUILD=compiled $(PYTEST_NODES) tests --ignore=tests/pipeline --durations=10

test-spark: $(TESTED) $(COMPILED)/.stamp
	@echo 'What the tests with Spark say is in build/test-spark.log, and here at their end.'
	@DISQUED_BUILD=compiled $(PYTEST_SPARK) tests/pipeline --durations=10 >build/test-spark.log 2>&1; \
		status=$$?; cat build/test-spark.log; exit $$status

# Everything on the core as it stands here.
test-source: $(TESTED)
	$(PYTEST_NODES) tests --durations=10

# ---- its parts

.PHONY: lint
lint: .venv/.test-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint
	$(PYTEST) $(FAST)

bench: .venv/.test-stamp .venv/.programs-stamp $(COMPILED)/.stamp
	DISQUED_BUILD=compiled $(BIN)/python -m benchmarks

bench-growth: .venv/.test-stamp .venv/.programs-stamp $(COMPILED)/.stamp
	DISQUED_BUILD=compiled $(BIN)/python -m benchmarks.growth --json build/growth.json
	$(BIN)/python -m benchmarks.plots build/growth.json build
	-DISQUED_BUILD=compiled $(BIN)/python -m benchmarks.counted --json build/counted.json

bench-load: .venv/.test-stamp .venv/.programs-stamp $(COMPILED)/.stamp
	DISQUED_BUILD=compiled $(BIN)/python -m benchmarks.burdens $(if $(MINUTES),--minutes $(MINUTES))

bench-spark: .venv/.test-stamp .venv/.programs-stamp $(COMPILED)/.stamp
	DISQUED_BUILD=compiled $(BIN)/python -m benchmarks.spark

# With HOURS it goes on where it ended: build/simulated.jsonl has a line for each story that is over.
torture: .venv/.test-stamp
ifdef HOURS
	$(BIN)/python -m tests.torture.simulated --hours $(HOURS) --workers $(WORKERS) $(addprefix --profile ,$(PROFILES))
else
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),10) $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(CUT),--cut)
endif

audit: .venv/.test-stamp .venv/.programs-stamp
	$(BIN)/python -m tests.torture.audits --events $(or $(EVENTS),1000000)

# With Spark a kill takes half a minute, with the stand-in that makes its calls a few seconds.
kills: .venv/.test-stamp .venv/.programs-stamp
	$(BIN)/python -m tests.torture.spark --kills $(or $(KILLS),30) --minutes $(or $(MINUTES),60) \
		$(if $(STREAM),--what $(STREAM)) $(if $(STANDIN),--standin)

# It goes on where it ended: build/mutants.jsonl has a line for each mutant that was tried.
mutants: .venv/.test-stamp
	$(BIN)/python -m tests.mutation $(PATHS) --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) --workers $(WORKERS) \
		$(if $(COUNT),--count $(COUNT)) $(if $(DIFF),--diff $(DIFF))

# A part of `make test`, alone.
spark-cluster: .venv/.test-stamp .venv/.programs-stamp
	$(BIN)/python -m pytest tests/packaging/test_spark_submit.py

fuzz: .venv/.fuzz-stamp
	$(BIN)/python -m tests.fuzz run --minutes $(or $(MINUTES),10)
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) tests/property

docs: .venv/.test-stamp
	$(call write,disqued.config conf,disqued.conf)
	$(call write,disqued.config markdown,docs/reference/configuration.md)
	$(call write,disqued.commands.reference,docs/reference/commands.md)
	$(call write,disqued.wire.reference,docs/reference/bus.md)
	$(call write,disqued.web.http_reference,docs/reference/http.md)
	$(call write,disqued.pipeline.reference,docs/reference/disqued-spark.md)
	$(call write,disqued.reports.reference,docs/reference/reports.md)
	$(call write,disqued.tools.reference markdown,docs/reference/command-line.md)
	$(call write,disqued.tools.reference man,man/disqued.1)
	$(BIN)/python tools/draw_states.py --write

# Pictures of the admin page, of a cluster at work: they need Chromium and take some minutes.
pictures: .venv/.test-stamp
	$(BIN)/python -m tests.browser docs/images

# The site is made anew as a whole: of a page that did not change the warnings would not be told.
site: .venv/.test-stamp
	$(SPHINX) -E -d build/doctrees docs build/site
	@echo 'The documentation is in build/site/index.html'

# $(call write,MODULE WORDS,FILE): what the module prints becomes the file, or the file stays as it was.
write = $(BIN)/python -m $(1) > $(2).new && mv $(2).new $(2) || { rm -f $(2).new; exit 1; }

# uv asks the registry for the hashes of every file of the versions in constraints.txt, for every Python from 3.11 on.
LOCK := build/lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-package pip --constraint requirements/constraints.txt
# $(call locked,WORDS,FILE): the lines behind the comment that the file begins with are written anew.
locked = (sed '/^[^\#]/,$$d' $(2) && $(LOCK) $(1)) > $(2).new && mv $(2).new $(2) || { rm -f $(2).new; exit 1; }

lock: .venv/.test-stamp
	$(BIN)/python -m venv build/lock
	build/lock/bin/pip --disable-pip-version-check --quiet install uv
	$(call locked,setup.cfg,requirements/locked.txt)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > build/lock/build.in
	$(call locked,build/lock/build.in,requirements/locked-build.txt)

news: .venv/.test-stamp
	@$(BIN)/towncrier build --draft --version next

clean:
	rm -rf .venv build dist *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache $(CLIENTS)/node_modules twisted/plugins/dropin.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up, once

.venv/bin/python:
	PYTHON='$(PYTHON)' tools/virtualenv .venv

.venv/.run-stamp: $(PACKAGES) | .venv/bin/python
	@echo 'Installing disqued into .venv'
	@$(PIP) --editable .
	@touch $@

.venv/.test-stamp: $(PACKAGES) | .venv/bin/python
	@echo 'Installing disqued and what its tests need into .venv'
	@$(PIP) --editable '.[dev]'
	@touch $@ .venv/.run-stamp

# A Python that atheris has no wheel for searches blindly.
.venv/.fuzz-stamp: .venv/.test-stamp
	@$(PIP) --only-binary atheris --editable '.[fuzz]' || echo 'atheris cannot be installed: inputs are made without it'
	@touch $@

# The wheel as it would be published, unpacked where programs find it by PYTHONPATH.
SOURCES := setup.py setup.cfg pyproject.toml pyspark_disqued.py \
	$(shell find clients disqued man persistence pipeline systemd twisted web -type f ! -name '*.pyc' ! -name dropin.cache)
compiled: $(COMPILED)/.stamp
$(COMPILED)/.stamp: $(SOURCES) | .venv/.run-stamp
	@echo 'Compiling the core into $(COMPILED) (about a minute)'
	@rm -rf $(COMPILED) build/wheel build/lib* build/bdist*
	@DISQUED_COMPILE=1 $(WHEEL) --wheel-dir build/wheel .
	@$(BIN)/python -m zipfile --extract build/wheel/disqued-*.whl $(COMPILED)
	@touch $@

.venv/.programs-stamp: Makefile | .venv/bin/python
	PATH="$$PATH:/usr/sbin" tools/debian-packages redis-server redis-cli=redis-tools redis-benchmark=redis-tools \
		node=nodejs npm ip=iproute2 nft=nftables curl chromium chromedriver=chromium-driver \
		java=openjdk-17-jre-headless systemd-analyze=systemd zsh fish
	@touch $@

# What the tests of installations install, and build with, without a network.
$(HOUSE)/.stamp: requirements/locked.txt requirements/locked-build.txt | .venv/bin/python
	@echo 'Fetching into $(HOUSE) what is installed in tests'
	@rm -rf $(HOUSE)
	@for set in locked locked-build; do \
		$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir $(HOUSE) \
			-r requirements/$$set.txt || exit 1; \
	done
	@$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --wheel-dir $(HOUSE) pip
	@touch $@

# The oldest redis-py that is allowed, and one from before and from after 7.2, where its options changed.
$(OLDER)/.stamp: Makefile | .venv/bin/python
	@echo 'Fetching into $(OLDER) the releases of redis-py that the blocking client is tested with'
	@rm -rf $(OLDER)
	@for release in 5.0.0 6.4.0 7.4.0; do \
		$(BIN)/python -m pip --disable-pip-version-check --quiet install --no-deps --target $(OLDER)/$$release \
			redis==$$release || exit 1; \
	done
	@touch $@

$(CLIENTS)/node_modules/.package-lock.json: $(CLIENTS)/package.json $(CLIENTS)/package-lock.json | .venv/.programs-stamp
	cd $(CLIENTS) && npm ci --no-fund --no-audit --loglevel=error
	@touch $@
