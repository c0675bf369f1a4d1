#!/usr/bin/env bash
# How near what-if comes on SmolLM2: records a burst, predicts budgets that were not recorded, then runs each live five
# times and judges the predictions. RUNS=N: another number of live runs.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/pair.sh

out=${OUT:-out/bench-whatif}
bench=target/release/bench-client
start_pair "$out" --model "$FIRSTLIGHT_MODEL" --model-name SmolLM2-135M-Instruct --dtype bf16 \
    -- --model "$FIRSTLIGHT_MODEL"
pair=(--target "$SCHEDULER" --admin "$ADMIN")
load=(--quiet --no-self-check --unique-prompts --max-new-tokens 16 --no-stop-on-eos --no-prefix-cache)
record() {
    $bench run "${pair[@]}" "${load[@]}" --forwards-out "$out/$1.jsonl" "${@:2}"
}
# Forwards of other sizes than a burst has, the burst to replay, and more of its kind for the delays.
record apart --num-requests 24 --request-rate 12 --prefill-max-batch-size 8
record burst --num-requests 96 --jsonl-out "$out/run.jsonl"
record bursts --num-requests 96 --repeat-runs 4
budgets=(prefill_max_batch_size={4,64} max_active_requests=16 max_active_requests=32,prefill_max_batch_size=8
    max_batch_size=16 step_prefill_tokens=32)
$bench whatif "$out/run.jsonl" --forwards="$out"/{apart,burst,bursts}.jsonl "${pair[@]}" \
    "${budgets[@]/#/--set=}" --slo ttft=1s --verify --verify-runs "${RUNS:-5}" --json-out "$out/whatif.json"
