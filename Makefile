# The commands of CONTRIBUTING.md by name. test, proof and soak do their own set-up; lint and bench need .venv.
HOURS ?= 1

.PHONY: test proof lint soak bench

test:
	scripts/test

proof:
	scripts/proof

lint:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

soak:
	scripts/soak $(HOURS)

bench:
	.venv/bin/python -m benchmarks $(or $(PLACE),/tmp)
