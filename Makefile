# The commands of CONTRIBUTING.md by name. All but bench do their own set-up; bench needs .venv with the extra `bench`.
HOURS ?= 1

.PHONY: test proof lint docs soak bench

test:
	scripts/test

proof:
	scripts/proof

lint:
	scripts/lint

docs:
	scripts/docs

soak:
	scripts/soak $(HOURS)

bench:
	.venv/bin/python -m benchmarks $(or $(PLACE),/tmp)
