# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick lint fuzz bench clean

demo: .venv/.installed
	$(BIN)/acpl train --out runs/demo-$$(date +%Y%m%d-%H%M%S)
	$(BIN)/acpl evaluate $$(ls -d runs/demo-* | tail -n 1)

# Tests run side by side, each with one thread, so that they do not take the processors from each other.
JOBS ?= 2
test: .venv/.installed-dev lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal

# The tests that take no more than a few seconds each.
quick: .venv/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow"

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src tools
	$(BIN)/python tools/audit.py constraints.txt

# Hostile files for as long as you like: make fuzz MINUTES=60
MINUTES ?= 10
fuzz: .venv/.installed-dev
	$(BIN)/python -W ignore -m tests.hostile.fuzz --minutes $(MINUTES) --seed $$(date +%j)

# The benchmarks that need no GPU, small, their numbers in build/bench; docs/performance.md has the whole ones.
bench: .venv/.installed-dev
	mkdir -p build/bench
	$(BIN)/python benchmarks/step.py --far --json build/bench/step.json
	$(BIN)/python benchmarks/stage.py --small --json build/bench/stage.json
	$(BIN)/python benchmarks/end_to_end.py --json build/bench/end_to_end.json \
	    --set phantom_patients=400 warmup_epochs=20 stages=2 stage_epochs=2
	$(if $(ACPL_DATA),$(BIN)/python benchmarks/data.py --repeats 1 --json build/bench/data.json)

clean:
	rm -rf .venv

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/pip install -q -c constraints.txt -e ".[dev]"
	touch $@
