# The two commands: `make demo` and `make test`. `make help` lists the rest.
# What they fetch lies in the user's cache folder, so that a second clone is quick.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/firstlight
export LIBTORCH ?= $(CACHE)/libtorch-2.11.0
export FIRSTLIGHT_MODEL ?= $(CACHE)/models/SmolLM2-135M-Instruct.Q4_1.gguf
# Test programs link libtorch without an rpath of their own.
export LD_LIBRARY_PATH := $(LIBTORCH)/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
# Read where the engine is built for a GPU.
export CUDA_HEADERS ?= $(CACHE)/cuda-headers-13.0.96
# One profile for programs, tests and lints: see Cargo.toml.
CARGO_FLAGS := --release --locked --workspace
# `cargo bench` has a profile of its own that inherits release, and refuses the flag.
BENCH_FLAGS := $(filter-out --release,$(CARGO_FLAGS))

.PHONY: help setup build cuda demo up lint test test-long golden \
	bench-seed bench-admission bench-engine bench-pair bench-telemetry bench-shadow bench-whatif bench-peers
.DEFAULT_GOAL := help

help:
	@echo 'make demo       set up, build, serve SmolLM2 on loopback, print where TTFT goes'
	@echo 'make up         set up, build, start the pair and Prometheus, until Ctrl-C'
	@echo 'make test       set up, then format, lints, unit and end-to-end tests'
	@echo 'make setup      check the tools, fetch libtorch, the model and the test runner'
	@echo 'make build      the three programs into target/release'
	@echo 'make cuda       the three programs into target/cuda/release, the engine with the CUDA backend; needs no GPU'
	@echo 'make test-long  the tests that do not fit into make test; fetches a headless Chromium'
	@echo 'make golden     write tests/golden again (needs Hugging Face transformers)'
	@echo 'make bench-*    bench-seed bench-admission bench-engine bench-pair bench-telemetry bench-shadow'
	@echo '                bench-whatif bench-peers'

setup:
	@scripts/setup.sh --tests

build:
	@scripts/setup.sh
	cargo build $(CARGO_FLAGS)

# In a folder of its own: the engine that `make build` makes knows nothing of CUDA.
cuda:
	@scripts/setup.sh --cuda
	cargo build $(CARGO_FLAGS) --bins --features engine-svc/cuda --target-dir target/cuda

demo: build
	@scripts/demo.sh

up: build
	@deploy/up.sh

lint: setup
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings
	cargo clippy $(CARGO_FLAGS) --features engine-svc/cuda -- -D warnings

# Building a package's integration tests builds its programs too; end-to-end tests run them from target/release.
test: lint
	cargo nextest run $(CARGO_FLAGS)
	cargo nextest run --release --locked --package firstlight-cuda --features torch --lib

test-long: setup
	@scripts/browser.sh >/dev/null
	cargo nextest run $(CARGO_FLAGS) --profile long --run-ignored all

golden:
	python3 tests/golden/make_golden.py

# The seed's workload on the seed's model shape, beside the seed's figures.
bench-seed: build
	@scripts/bench_seed.sh

# What admission costs per request, by policy and queue length.
bench-admission: setup
	cargo bench $(BENCH_FLAGS) --bench admission

# Kernels against the machine's ceilings, whole forwards of the two models, then start-up and memory.
bench-engine: build
	cargo bench $(BENCH_FLAGS) --bench kernels
	cargo bench $(BENCH_FLAGS) --bench forward -- $(FIRSTLIGHT_MODEL) bf16
	cargo bench $(BENCH_FLAGS) --bench forward -- gpt2 bf16
	python3 scripts/bench_start.py $(FIRSTLIGHT_MODEL) --dtype bf16
	python3 scripts/bench_start.py $(FIRSTLIGHT_MODEL) --dtype auto

# What the pair adds to a model that takes no time, then the two standard workloads on SmolLM2.
bench-pair: build
	@scripts/bench_pair.sh

# What-if's predictions of budgets that were not recorded, beside five live runs of each.
bench-whatif: build
	@scripts/bench_whatif.sh

# CPU time per token that a shadow costs; fails above 2 %.
bench-shadow: build
	@python3 scripts/bench_telemetry.py --of shadow

# CPU time per token that stamps, spans, timelines and metrics cost; fails above 3 %.
bench-telemetry: build
	@python3 scripts/bench_telemetry.py

# llama.cpp and vLLM from their packages, and the pair, in turns under the same load.
bench-peers: build
	python3 scripts/bench_peers.py
