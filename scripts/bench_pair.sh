#!/usr/bin/env bash
# What the pair itself costs, over forwards that take no time; then the two standard workloads on SmolLM2.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pair.sh
. scripts/workloads.sh

out=out/bench-pair
start_pair "$out/free" --backend sim --sim-time-scale 0 --
target/release/bench-client run --target "$SCHEDULER" --admin "$ADMIN" --run-label free \
    --num-requests 2000 --request-rate 500 --unique-prompts --max-new-tokens 16 --json-out "$out/free.json"
stop_services

start_pair "$out" --model "$FIRSTLIGHT_MODEL" --model-name SmolLM2-135M-Instruct --dtype bf16 \
    -- --model "$FIRSTLIGHT_MODEL"
run_workload seed-256 "$out/seed-256.json"
run_workload seed-64 "$out/seed-64.json"
