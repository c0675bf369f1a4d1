#!/usr/bin/env bash
# What the pair itself costs, over forwards that take no time; how many tokens pass it, 2,000 streams at once, and where
# the CPU time goes; then the two standard workloads on SmolLM2.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pair.sh
. scripts/workloads.sh

out=out/bench-pair
start_pair "$out/free" --backend sim --sim-time-scale 0 --
target/release/bench-client run --target "$SCHEDULER" --admin "$ADMIN" --run-label free \
    --num-requests 2000 --request-rate 500 --unique-prompts --max-new-tokens 16 --json-out "$out/free.json"
stop_services

# streams US: 2,000 sequences, all in each decode forward of US µs: their tokens leave one by one as long as everybody
# keeps up, and several to a message where somebody does not.
streams() {
    start_pair "$out/streams-$1" --backend sim --sim-decode-base-us "$1" --sim-decode-row-us 0 --sim-attend-us 0 \
        --sim-prefill-base-us 0 --sim-prefill-row-us 0 --sim-prefill-token-us 0 --sim-buckets 2048 \
        --max-sequences 2048 --kv-tokens 400000 --
    target/release/bench-client run --target "$SCHEDULER" --admin "$ADMIN" --run-label streams --no-self-check \
        --num-requests 2000 --unique-prompts --max-new-tokens 128 --no-stop-on-eos --max-active-requests 2000 \
        --max-batch-size 2000 --prefill-max-batch-size 2000 --prefill-max-tokens 65536 \
        --step-prefill-tokens 65536 --json-out "$out/streams-$1.json"
    python3 scripts/cpu_time.py $((2000 * 128)) "${pair_pids[@]}"
    stop_services
}
streams 0
streams 30000

start_pair "$out" --model "$FIRSTLIGHT_MODEL" --model-name SmolLM2-135M-Instruct --dtype bf16 \
    -- --model "$FIRSTLIGHT_MODEL"
run_workload seed-256 "$out/seed-256.json"
run_workload seed-64 "$out/seed-64.json"
