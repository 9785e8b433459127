# The commands of CONTRIBUTING.md by name; each is a script that does its own set-up.
HOURS ?= 1

.PHONY: test lint soak bench

test:
	scripts/test

lint:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy

soak:
	scripts/soak $(HOURS)

bench:
	.venv/bin/python -m benchmarks $(or $(PLACE),/tmp)
