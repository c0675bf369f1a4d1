#!/usr/bin/env bash
# Serves SmolLM2 with the pair on loopback, streams one completion, then runs the
# seed's shape of benchmark and prints where TTFT goes. Writes out/demo/run.json.
# Fails when a request failed, the chain does not close or the audit finds ledgers that disagree.
# Wants `make build` first.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pair.sh

out=out/demo
start_pair "$out" --model "$FIRSTLIGHT_MODEL" --model-name SmolLM2-135M-Instruct --dtype bf16 \
    -- --model "$FIRSTLIGHT_MODEL"

echo
echo 'The capital of France is'
target/release/bench-client complete --target "$SCHEDULER" --max-new-tokens 48 'The capital of France is'
echo

# Fewer prompts per round than requests in the burst, so that queue wait shows.
target/release/bench-client run --target "$SCHEDULER" --admin "$ADMIN" \
    --run-label demo --num-requests 64 --unique-prompts --max-new-tokens 32 --no-stop-on-eos \
    --prefill-max-batch-size 16 --require-closed --json-out "$out/run.json" \
    --audit --scheduler-metrics "$SCHEDULER_METRICS" --engine-metrics "$ENGINE_METRICS"
