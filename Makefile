# Each target installs what it needs and works in a fresh clone.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python build-tests check lint check-rust e2e e2e-again soak bench fuzz build dist clean setup

# scripts/env puts the checkout's binary and Python first on PATH.
define ready
scripts/setup
. scripts/env
endef
# One profile for demo, tests, benches and lints: nothing is built twice.
profile = --release

help: ## show the targets
	@sed -n 's/^\([a-z0-9]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r target what; do
	printf '  make %-7s %s\n' "$$target" "$$what"; done

setup: ## install missing dependencies, or print the command that installs them
	@scripts/setup

build: ## the binary, in release
	@$(ready)
	scripts/build

demo: ## TPC-H queries with a Python function, every answer checked
	$(ready)
	scripts/build
	python demo/run.py

test: test-rust test-python ## unit and integration tests of Rust and Python

test-rust: build
	@scripts/setup test
	. scripts/env
	scripts/timed test-rust scripts/rust-tests --locked $(profile) --workspace

test-python: build
	@scripts/setup test
	. scripts/env
	scripts/timed pytest python -m pytest -q python/tests tests/repository

build-tests: build
	@scripts/setup test
	. scripts/env
	scripts/timed build-tests scripts/rust-tests --locked $(profile) --workspace --no-run

check: lint check-rust ## format, lints, types, layering, licences, docs

lint: ## the part of check that takes no compiler: under a minute
	@$(ready)
	scripts/timed fmt cargo fmt --all --check
	scripts/timed ruff ruff check python bench demo examples tests scripts
	scripts/timed ruff-format ruff format --check bench demo examples tests scripts
	scripts/timed mypy mypy
	(cd python && ../scripts/timed mypy-sdk mypy)
	scripts/timed repository python -m pytest -q tests/repository

check-rust:
	@$(ready)
	scripts/timed clippy cargo clippy --locked --workspace --all-targets $(profile) -- -D warnings
	RUSTDOCFLAGS='-D warnings' scripts/timed rustdoc cargo doc --locked --no-deps $(profile) --workspace

e2e: build ## end-to-end tests: escapes, faults, kill -9, S3, complete clean-up (as root)
	@scripts/setup e2e
	. scripts/env
	scripts/timed escape scripts/escape
	scripts/e2e

# Those that failed the last time.
e2e-again: build
	@. scripts/env
	scripts/timed e2e-second scripts/apart python -m pytest -q --last-failed \
		--last-failed-no-failures none tests/e2e

soak: build ## steady work in many rounds, which must leave no file, descriptor or memory behind (as root)
	@scripts/setup e2e
	. scripts/env
	SNOWMELT_SOAK_ROUNDS=$${SNOWMELT_SOAK_ROUNDS:-200} scripts/e2e tests/e2e/test_growth.py

bench: ## benchmarks beside Docker, DataFusion and DuckDB, into bench/RESULTS.md (as root)
	@scripts/setup bench
	. scripts/env
	scripts/timed build cargo build --locked $(profile) --workspace --bins
	python bench/run.py

dist: build ## a wheel, a Debian package, a tarball and an image of the binary, into dist/ (as root)
	@. scripts/env
	scripts/timed dist scripts/dist

fuzz: ## fuzzing of every parser of images, FUZZ_SECONDS (600) each
	@scripts/setup
	scripts/fuzz

clean: ## remove the files of builds and tests; data/ is kept
	@rm -rf target fuzz/target .venv .cache bench/out dist
