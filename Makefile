# The commands of CONTRIBUTING.md by name. test, proof, soak and docs do their own set-up; lint and bench need .venv.
HOURS ?= 1

.PHONY: test proof lint docs soak bench

test:
	scripts/test

proof:
	scripts/proof

lint:
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && .venv/bin/lint-imports

docs:
	scripts/docs

soak:
	scripts/soak $(HOURS)

bench:
	.venv/bin/python -m benchmarks $(or $(PLACE),/tmp)
