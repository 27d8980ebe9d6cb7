# Two commands are all that a newcomer needs: `make demo` and `make test`. Both make .venv by themselves, which takes
# Python 3.11 or newer and the network, once. `make help` lists the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# What a test starts are processes of Python, hundreds of them: all but the first find the code compiled.
unexport PYTHONDONTWRITEBYTECODE

# The first of these that is new enough; another one: make PYTHON=/path/to/python3
PYTHON ?= $(shell for each in python3 python3.13 python3.12 python3.11; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$each" && break; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# By a path, not by a finder, which comes after all paths: a script beside the clone, whose name is ours, would import
# the clone's folder in place of the package.
EDITABLE := --config-settings editable_mode=compat
# One more than two cores: a fifth of their time, tests wait for processes, disks and deadlines.
TEST_JOBS := 3

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/  make \1\t\2/' | expand -t 16

# Made anew only when what is to be installed has changed; a run that broke off leaves no stamp and is repeated.
$(INSTALLED): pyproject.toml clients/python/pyproject.toml loadgen/pyproject.toml requirements.lock
	@if [[ -z "$(PYTHON)" ]]; then echo "Headrace needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 1; fi
	@echo "making $(VENV) and installing what requirements.lock pins (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation $(EDITABLE) -e clients/python -e .
	@touch $@

install: $(INSTALLED)  ## make .venv, if it is not there or not up to date

demo: $(INSTALLED)  ## the demo: a server, data, a miss, a hit, an eviction; ONCE=1 ends by itself, SCALE=, PORT=
	@$(BIN)/headrace demo $(if $(ONCE),--once) $(if $(SCALE),--scale $(SCALE)) $(if $(PORT),--port $(PORT))

serve: $(INSTALLED)  ## a server on headrace-data/, until Ctrl-C; PORT=
	@$(BIN)/headrace serve $(if $(PORT),--port $(PORT))

test: $(INSTALLED)  ## all tests; JOBS= processes, TESTS= paths or options of pytest
	@$(BIN)/python -m pytest -n $(or $(JOBS),$(TEST_JOBS)) --dist worksteal $(TESTS)

test-fast: $(INSTALLED)  ## under a minute, while editing: the engine and the planner; leaves out all that has files, threads or processes
	@$(BIN)/python -m pytest -n $(or $(JOBS),$(TEST_JOBS)) tests/domains tests/migrations -m 'not long and not cluster and not spark'

check: $(INSTALLED)  ## ruff, mypy and the floors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(INSTALLED)  ## bring the code into ruff's form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

fuzz: $(INSTALLED)  ## the differential campaign, and views with parameters beside constants; SECONDS=60 SEED=1, SECONDS of each
	@$(BIN)/python -m tests.campaign --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.campaign.constants --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

fuzz-nested: $(INSTALLED)  ## nested SELECTs beside MariaDB (which has to be installed) and DuckDB; SECONDS=60 SEED=1
	@$(BIN)/python -m tests.campaign.beside --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

fuzz-transactions: $(INSTALLED)  ## interleaved transactions, held against one after the other; SECONDS=60 SEED=1
	@$(BIN)/python -m tests.controller.transactions --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

histories: $(INSTALLED)  ## the checker of histories on MariaDB (which has to be installed) at each isolation level; SECONDS=60 SEED=1 KEEP=directory
	@$(BIN)/python -m tests.histories control --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep $(KEEP))

histories-served: $(INSTALLED)  ## histories of transactions on a server of Headrace that is killed meanwhile; SECONDS=60 SEED=1 KEEP=directory
	@$(BIN)/python -m tests.histories headrace --kills --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(if $(KEEP),--keep $(KEEP))

histories-long: $(INSTALLED)  ## histories of simulated shards with all that can go wrong, until so many operations are judged; before them those of a cluster, for CLUSTER seconds; OPERATIONS=10000000 SEED=1
	$(if $(CLUSTER),@$(BIN)/python -m tests.histories cluster --seconds $(CLUSTER) $(if $(SEED),--seed $(SEED)))
	@$(BIN)/python -m tests.histories simulated --operations $(or $(OPERATIONS),10000000) $(if $(SEED),--seed $(SEED))

simulate: $(INSTALLED)  ## whole clusters from seeds, with all that can go wrong; SECONDS=60 SEED=1 JOBS=2
	@$(BIN)/python -m tests.cluster_simulation --seconds $(or $(SECONDS),60) --jobs $(or $(JOBS),2) $(if $(SEED),--seed $(SEED))

damage: $(INSTALLED)  ## invert bits of every file of data directories, archive, cluster; cut, delete; SECONDS=600 SEED=1
	@$(BIN)/python -m tests.damage --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))

hostile: $(INSTALLED)  ## clients that ask for too much, each beside one that polls a view; SECONDS=10 SEED=1 ONLY=line,line; SOAK=3600: all at once
	@$(BIN)/python -m tests.hostile --seconds $(or $(SECONDS),10) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") $(if $(SOAK),--soak $(SOAK))

orms: $(INSTALLED)  ## the suites of SQLAlchemy and Alembic by MySQL's protocol, beside MariaDB; ONLY=sqlalchemy; DJANGO=all or "null_fk str": its own test apps
	@$(BIN)/python -m tests.orms $(if $(ONLY),--only $(ONLY)) $(if $(DJANGO),--django $(filter-out all,$(DJANGO)))

fuzz-wire: $(INSTALLED)  ## bytes that Atheris finds, at the decoder of a cluster's messages; RUNS=10000000 SEED=1
	@$(PIP) atheris==3.0.0
	@PYTHONPATH=.:tests/worker/wire:clients/python $(BIN)/python tests/worker/wire/fuzz.py $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED))

attack: $(INSTALLED)  ## strangers at every port of a cluster, and users of each right at every endpoint and statement; SECONDS=30 SEED=1
	@$(BIN)/python -m tests.attack --seconds $(or $(SECONDS),30) $(if $(SEED),--seed $(SEED))

crash: $(INSTALLED)  ## the long crash tests: kill -9 under writes, many rounds
	@$(BIN)/python -m pytest -m long tests/crash

spark: $(INSTALLED)  ## the long tests of Spark: the whole demo judged, every SQL case, a standalone cluster, a cluster judged and migrated in bulk; needs Java
	@$(BIN)/python -m pytest -m 'spark and long' -o faulthandler_timeout=7200 tests/migrations/spark tests/headrace tests/cluster

bench: $(INSTALLED)  ## speed on this machine, as ratios; OUT=file.json, ONLY=name, QUICK=1
	@$(BIN)/headrace bench $(if $(OUT),--out $(OUT)) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

bench-guard: $(INSTALLED)  ## two minutes: fail where a ratio to hand-written code is a third worse than the committed one
	@$(BIN)/headrace bench --guard

drill: $(INSTALLED)  ## break a local cluster under load; NAME=worker-kill (else the short set), ROUNDS=, SEED=, OUT=drills
	@$(BIN)/headrace drill $(or $(NAME),all --short) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

drills-long: $(INSTALLED)  ## every drill, and 200 random kills of workers; SEED=, OUT=drills
	@$(BIN)/headrace drill all $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))
	@$(BIN)/headrace drill worker-kill --rounds 200 $(if $(SEED),--seed $(SEED)) --out $(or $(OUT),drills)/long

bench-scale: $(INSTALLED)  ## what a request costs on clusters of 1, 2 and 4 workers; OUT=file.json, WORKERS=1,2,4, QUICK=1
	@$(BIN)/headrace bench scale $(if $(OUT),--out $(OUT)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(QUICK),--quick)

bench-peers: $(INSTALLED)  ## the Lobsters pages against MariaDB, PostgreSQL, Redis; DATA_SCALE=1 RUNTIME=20 TURNS=3 ONLY=name AGAIN=1
	@$(BIN)/python -m loadgen.bench.servers
	@$(BIN)/python -m loadgen.bench.rounds --data-scale $(or $(DATA_SCALE),1) --runtime $(or $(RUNTIME),20) --turns $(or $(TURNS),3) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)

fresh: $(INSTALLED)  ## install client, server and extras into empty environments and use them; needs the network
	@$(BIN)/python -m pytest -m long tests/packaging

screenshots: $(INSTALLED)  ## the README's pictures of the console, taken anew over the demo; needs Chromium
	@$(BIN)/python -m tests.browser.screenshots

lock: $(INSTALLED)  ## write the lock files anew from pyproject.toml; UPGRADE=1 takes the newest versions that it allows
	@compile() { printf 'setuptools>=77\n./clients/python\n%s\n' "$$1" | $(BIN)/uv pip compile - "$${@:2}" --quiet --universal \
		--python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' \
		--no-emit-package headrace --no-emit-package headrace-client --no-emit-package headrace-loadgen > /dev/null; }; \
	compile $$'./loadgen\n.[cluster,spark,upstream,bench,dev,peers]' -o requirements.lock $(if $(UPGRADE),--upgrade); \
	compile '.[cluster,spark,upstream]' -c requirements.lock -o deploy/requirements.lock

clean:  ## remove .venv, caches and build results; data stays
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help install demo serve test test-fast check format fuzz fuzz-nested fuzz-wire orms fuzz-transactions histories histories-served histories-long simulate damage hostile attack crash spark bench bench-guard bench-scale bench-peers drill drills-long fresh screenshots lock clean
