#!/usr/bin/env bash
# How near what-if comes on SmolLM2: records bursts, predicts budgets that were not recorded, then runs each live five
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
# Forwards of other sizes than a burst has.
$bench run "${pair[@]}" "${load[@]}" --num-requests 24 --request-rate 12 --prefill-max-batch-size 8 \
    --forwards-out "$out/apart.jsonl"
$bench run "${pair[@]}" "${load[@]}" --num-requests 48 --repeat-runs 3 \
    --jsonl-out "$out/run.jsonl" --forwards-out "$out/forwards.jsonl"
budgets=(prefill_max_batch_size={4,64} max_active_requests=16 max_active_requests=32,prefill_max_batch_size=8
    max_batch_size=16 step_prefill_tokens=32)
$bench whatif "$out/run.jsonl" --forwards "$out/apart.jsonl" --forwards "$out/forwards.jsonl" "${pair[@]}" \
    "${budgets[@]/#/--set=}" --slo ttft=1s --verify --verify-runs "${RUNS:-5}" --json-out "$out/whatif.json"
